"""What a request that is not on a cassette differs in from the most similar one that is. Pure; for people to read."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from harborage import codec

if TYPE_CHECKING:
    from harborage.llm.cassette.normal import Asked

__all__ = ["difference", "nearest", "told"]

_MAX_LINES: Final = 40
_MAX_CHARS: Final = 200
_CANDIDATES: Final = 12
_MAX_COMPARED: Final = 400


def nearest(wanted: Asked, recorded: Sequence[Asked], preferred: Collection[int]) -> int:
    """The index of the recording that is most similar to `wanted`; one of `preferred` if that makes no difference."""
    # The same beginning is what makes requests of one conversation similar, and costs little to see.
    first = sorted(range(len(recorded)), key=lambda at: (-_shared(wanted, recorded[at]), at not in preferred))
    lines = _lines(wanted)[-_MAX_COMPARED:]

    def likeness(at: int) -> tuple[float, bool]:
        other = _lines(recorded[at])[-_MAX_COMPARED:]
        return difflib.SequenceMatcher(None, lines, other, autojunk=False).ratio(), at in preferred

    return max(first[:_CANDIDATES], key=likeness)


def difference(recorded: Asked, wanted: Asked) -> str:
    """The lines that differ, as a diff of at most 40 lines."""
    diff = list(difflib.unified_diff(_lines(recorded), _lines(wanted), "recorded", "asked now", lineterm="", n=1))
    shown = [_around_change(line) for line in diff[:_MAX_LINES]]
    if len(diff) > _MAX_LINES:
        shown.append(f"… and {len(diff) - _MAX_LINES} more lines")
    return "\n".join(shown)


def told(asked: Asked) -> str:
    """A request in one line: how long it is and what was said last."""
    if not asked.messages:
        return "no messages"
    last = asked.messages[-1]
    said = " ".join(_body(last))[:_MAX_CHARS]
    return f"{len(asked.messages)} messages, the last by {last.get('role')}: {said}"


def _shared(one: Asked, other: Asked) -> int:
    """How many messages two requests begin with alike."""
    count = 0
    for mine, theirs in zip(one.messages, other.messages, strict=False):
        if mine != theirs:
            break
        count += 1
    return count


def _lines(asked: Asked) -> list[str]:
    """A request as lines, one message under another."""
    lines: list[str] = []
    for at, message in enumerate(asked.messages):
        head = " ".join([f"[{at}]", str(message.get("role")), *_details(message)])
        lines += [head, *(f"    {line}" for line in _body(message))]
    for tool in asked.tools:
        lines.append(f"tool {tool.get('name')}: {tool.get('description')}")
        lines.append(f"    {codec.encode_text(tool.get('schema'))}")
    lines += [f"{name} = {codec.encode_text(value)}" for name, value in sorted(asked.settings.items())]
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
