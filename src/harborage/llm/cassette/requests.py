"""A request as a cassette knows it, without secrets and without the parts that differ between runs. Pure.

Ids of runs, tasks and artifacts become numbered marks, in the order in which they appear; times become a mark. The
name of the model, callbacks and streaming do not count, so a recording answers for any of them. A request carries no
headers and no key of the provider, but a prompt, a tool's result or an answer may quote one. Secrets are recognised by
name, by shape, and by the values in this process's environment.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harborage import codec
from harborage.llm.client import ChatMessage, CompleteRequest, Role
from harborage.llm.content import Part, TextPart

if TYPE_CHECKING:
    from harborage.events.scrubbing import Scrubber

_IDS: Final = re.compile(
    r"(?<![0-9A-Za-z])(?:"
    r"[0-7][0-9A-HJKMNP-TV-Z]{25}|"  # ULID
    r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}|"  # UUID
    r"sha256:[0-9a-f]{64}|"
    r"[A-Za-z][A-Za-z0-9.-]*_(?:[0-9a-f]{64}|[0-9a-f]{32}|[0-9a-f]{24}|[0-9a-f]{16}|[0-9a-f]{12})"  # artifact
    r")(?![0-9A-Za-z])"
)
_TIMES: Final = re.compile(
    r"(?<!\d)\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?(?!\d)"
    r"|(?<![\d.])1[5-9]\d{11}(?![\d.])"  # milliseconds since the epoch
)
_DATE: Final = re.compile(r"(?<!\d)\d{4}-\d{2}-\d{2}(?!\d)")
_TIME: Final = "⟦time⟧"
_MARK: Final = re.compile(r"⟦id (\d+)⟧")


class NormalRequest(msgspec.Struct, frozen=True):
    """A request in its normal form, and the ids behind its marks, in order."""

    messages: tuple[dict[str, Any], ...]
    tools: tuple[dict[str, Any], ...]
    settings: dict[str, Any]
    ids: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The same for requests that ask the same."""
        return digest([self.messages, self.tools, self.settings])


def normalise_request(request: CompleteRequest, scrubber: Scrubber) -> NormalRequest:
    """Return the normal form of `request`."""
    ids: dict[str, int] = {}
    messages = tuple(
        _anonymous(scrubber.plain(_message(message)), ids, is_dated=message.role is Role.SYSTEM)
        for message in request.messages
    )
    tools = tuple(
        _anonymous(scrubber.plain({"name": one.name, "description": one.description, "schema": one.schema}), ids)
        for one in request.tools
    )
    settings = _anonymous(scrubber.plain(_settings(request)), ids)
    return NormalRequest(messages, tools, settings, tuple(ids))


def mark_ids(text: str, ids: Sequence[str]) -> str:
    """Return a text of the answer with marks in place of the ids that were in the request."""
    numbers = {each: number for number, each in enumerate(ids, 1)}
    return _IDS.sub(lambda found: _mark(numbers[found[0]]) if found[0] in numbers else found[0], text)


def unmark_ids(text: str, ids: Sequence[str]) -> str:
    """Return a recorded text with the ids of the request that it now answers."""

    def named(found: re.Match[str]) -> str:
        number = int(found[1])
        return ids[number - 1] if 0 < number <= len(ids) else found[0]

    return _MARK.sub(named, text)


def digest(value: Any) -> str:
    """Return a short hash of plain data, the same for equal data."""
    return hashlib.sha256(codec.encode_canonical(value)).hexdigest()[:12]


def _message(message: ChatMessage) -> dict[str, Any]:
    out: dict[str, Any] = {"role": str(message.role)}
    if message.content.text is not None:
        out["text"] = message.content.text
    if message.content.parts is not None:
        out["parts"] = [_part(part) for part in message.content.parts]
    if message.name is not None:
        out["name"] = message.name
    if message.tool_call_id is not None:
        out["answers"] = message.tool_call_id
    if message.tool_calls:
        out["calls"] = [
            {"id": call.id, "name": call.name, "args": call.args.decode("utf-8", "replace")}
            for call in message.tool_calls
        ]
    return out


def _part(part: Part) -> dict[str, Any]:
    """Return a part as plain data, with a hash in the place of inline bytes."""
    plain: dict[str, Any] = codec.to_plain(part)
    if not isinstance(part, TextPart) and part.data_url:
        head = part.data_url.partition(",")[0][:64]
        plain["data_url"] = f"{head.removeprefix('data:')} {hashlib.sha256(part.data_url.encode()).hexdigest()[:16]}"
    return plain


def _settings(request: CompleteRequest) -> dict[str, Any]:
    """Return the other fields that change the answer, without the unset ones."""
    out: dict[str, Any] = {
        "temperature": request.temperature,
        "max_tokens": request.max_tokens,
        "stops": list(request.stops) or None,
        "reasoning_effort": str(request.reasoning_effort) or None,
        "extra": codec.to_plain(request.extra) or None,
        "tool_choice": str(request.tool_choice) or None,
        "parallel_tool_calls": request.parallel_tool_calls or None,
    }
    if request.response_format is not None:
        schema = request.response_format.json_schema
        out["answer_form"] = {"kind": str(request.response_format.kind)} | (
            {"schema": _decoded(schema)} if schema else {}
        )
    return {name: value for name, value in out.items() if value is not None}


def _decoded(schema: bytes) -> Any:
    try:
        return codec.decode(schema)
    except msgspec.DecodeError:
        return schema.decode("utf-8", "replace")


def _anonymous(value: Any, ids: dict[str, int], *, is_dated: bool = False) -> Any:
    """Return plain data with marks in place of ids and times, and of dates in `is_dated` texts."""
    match value:
        case str():
            text = _TIMES.sub(_TIME, _IDS.sub(lambda found: _mark(ids.setdefault(found[0], len(ids) + 1)), value))
            return _DATE.sub("⟦date⟧", text) if is_dated else text
        case dict():
            return {key: _anonymous(inner, ids, is_dated=is_dated) for key, inner in value.items()}
        case list():
            return [_anonymous(inner, ids, is_dated=is_dated) for inner in value]
        case int() if not isinstance(value, bool) and _TIMES.fullmatch(str(value)):
            return _TIME
        case _:
            return value


def _mark(number: int) -> str:
    return f"⟦id {number}⟧"


# ── How two requests differ, for people to read ─────────────────────────────────────────────────────────────────────

_MAX_LINES: Final = 40
_MAX_CHARS: Final = 200
_CANDIDATES: Final = 12
_MAX_COMPARED: Final = 400


def find_nearest(wanted: NormalRequest, recorded: Sequence[NormalRequest], preferred: Collection[int]) -> int:
    """Return the index of the recording most similar to `wanted`; of equal ones, one of `preferred`."""
    # Requests of one conversation begin alike, which costs little to check.
    first = sorted(range(len(recorded)), key=lambda at: (-_shared(wanted, recorded[at]), at not in preferred))
    lines = _lines(wanted)[-_MAX_COMPARED:]

    def likeness(at: int) -> tuple[float, bool]:
        other = _lines(recorded[at])[-_MAX_COMPARED:]
        return difflib.SequenceMatcher(None, lines, other, autojunk=False).ratio(), at in preferred

    return max(first[:_CANDIDATES], key=likeness)


def diff_requests(recorded: NormalRequest, wanted: NormalRequest) -> str:
    """Return the lines that differ, as a diff of at most 40 lines."""
    diff = list(difflib.unified_diff(_lines(recorded), _lines(wanted), "recorded", "asked now", lineterm="", n=1))
    shown = [_around_change(line) for line in diff[:_MAX_LINES]]
    if len(diff) > _MAX_LINES:
        shown.append(f"… and {len(diff) - _MAX_LINES} more lines")
    return "\n".join(shown)


def describe_request(request: NormalRequest) -> str:
    """Return a request in one line: the number of its messages and the last one."""
    if not request.messages:
        return "no messages"
    last = request.messages[-1]
    text = " ".join(_body(last))[:_MAX_CHARS]
    return f"{len(request.messages)} messages, the last by {last.get('role')}: {text}"


def _shared(one: NormalRequest, other: NormalRequest) -> int:
    """Return with how many equal messages two requests begin."""
    count = 0
    for mine, theirs in zip(one.messages, other.messages, strict=False):
        if mine != theirs:
            break
        count += 1
    return count


def _lines(request: NormalRequest) -> list[str]:
    """Return a request as lines, one message under another."""
    lines: list[str] = []
    for at, message in enumerate(request.messages):
        head = " ".join([f"[{at}]", str(message.get("role")), *_details(message)])
        lines += [head, *(f"    {line}" for line in _body(message))]
    for tool in request.tools:
        lines.append(f"tool {tool.get('name')}: {tool.get('description')}")
        lines.append(f"    {codec.encode_text(tool.get('schema'))}")
    lines += [f"{name} = {codec.encode_text(value)}" for name, value in sorted(request.settings.items())]
    return lines


def _details(message: dict[str, Any]) -> Iterator[str]:
    for name in ("name", "answers"):
        if name in message:
            yield f"{name}={message[name]}"


def _body(message: dict[str, Any]) -> list[str]:
    lines = str(message.get("text", "")).splitlines()
    lines += [codec.encode_text(part) for part in message.get("parts", ())]
    lines += [f"calls {call.get('name')} {call.get('args')} as {call.get('id')}" for call in message.get("calls", ())]
    return lines


def _around_change(line: str) -> str:
    return line if len(line) <= _MAX_CHARS else f"{line[:_MAX_CHARS]}… ({len(line)} characters)"
