"""A request as a cassette knows it: what the model is asked, without what differs from one run to the next. Pure.

Ids of runs, tasks and artifacts become numbered marks, in the order in which they appear; times become a mark. The
model's name, callbacks and whether the answer is streamed do not matter, so that a recording answers for any of them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harborage import codec
from harborage.llm.client import ChatMessage, CompleteRequest, Role
from harborage.llm.content import Part, TextPart

if TYPE_CHECKING:
    from harborage.llm.cassette.scrubbing import Scrubber

__all__ = ["Asked", "asked", "marked", "unmarked"]

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


class Asked(msgspec.Struct, frozen=True):
    """A request in its normal form, and the ids that its marks stand for, in order."""

    messages: tuple[dict[str, Any], ...]
    tools: tuple[dict[str, Any], ...]
    settings: dict[str, Any]
    ids: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Equal for requests that ask the same."""
        return digest([self.messages, self.tools, self.settings])


def asked(request: CompleteRequest, scrubber: Scrubber) -> Asked:
    """The normal form of `request`."""
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
    return Asked(messages, tools, settings, tuple(ids))


def marked(text: str, ids: Sequence[str]) -> str:
    """A text of the answer with the marks of the ids that were in the request."""
    numbers = {each: number for number, each in enumerate(ids, 1)}
    return _IDS.sub(lambda found: _mark(numbers[found[0]]) if found[0] in numbers else found[0], text)


def unmarked(text: str, ids: Sequence[str]) -> str:
    """A recorded text with the ids of the request that it now answers."""

    def named(found: re.Match[str]) -> str:
        number = int(found[1])
        return ids[number - 1] if 0 < number <= len(ids) else found[0]

    return _MARK.sub(named, text)


def digest(value: Any) -> str:
    """A short name of plain data, equal for equal data."""
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
    """A part as plain data; inline bytes are told by their hash, which says as much and is short."""
    plain: dict[str, Any] = codec.to_plain(part)
    if not isinstance(part, TextPart) and part.data_url:
        head = part.data_url.partition(",")[0][:64]
        plain["data_url"] = f"{head.removeprefix('data:')} {hashlib.sha256(part.data_url.encode()).hexdigest()[:16]}"
    return plain


def _settings(request: CompleteRequest) -> dict[str, Any]:
    """Everything else that changes the answer; what is unset is left out."""
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
    """Plain data with marks in place of ids and times; `is_dated` texts also name a day that is not always the same."""
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
