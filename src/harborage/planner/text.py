"""Values as text for a prompt, and cutting of text. Pure; nothing fails: a value without a JSON form shows its type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from harborage import codec
from harborage.llm import Content, TextPart

_PIECE_CHARS: Final = 8_000
_NAME_BYTES: Final = 64


def to_content(text: str) -> Content:
    """Return `text` as the content of a message; a long text in several parts.

    One heavy text would be refused as raw content that leaked into the prompt. Use this for text that belongs there.
    """
    if len(text) <= _PIECE_CHARS:
        return Content(text=text)
    # A part that shows nothing is refused by some providers.
    return Content(parts=tuple(TextPart(piece) for piece in _pieces(text) if piece.strip()))


def _pieces(text: str) -> Iterator[str]:
    """Split the text into pieces; each ends with a line where one ends in its second half."""
    at = 0
    while at < len(text):
        end = at + _PIECE_CHARS
        if end < len(text):
            line_end = text.rfind("\n", at + _PIECE_CHARS // 2, end)
            end = end if line_end < 0 else line_end + 1
        yield text[at:end]
        at = end


def one_line(text: str) -> str:
    """Return `text` with each line break as a space, and none at its ends."""
    return text.replace("\n", " ").replace("\r", " ").strip()


def render_value(value: Any) -> str:
    """Render a tool's result: text as it is, bytes by their length alone, everything else as compact JSON."""
    match value:
        case None:
            return "(nil)"
        case str():
            return value
        case msgspec.Raw():
            return bytes(value).decode("utf-8", "replace")
        case bytes() | bytearray() | memoryview():
            return f"({len(bytes(value))} bytes)"
        case _:
            return _as_json(value)


def to_object(value: Any) -> dict[str, Any] | None:
    """Return the JSON object that `value` is, encodes or converts to; None for anything else."""
    if value is None or isinstance(value, dict):
        return value
    try:
        if isinstance(value, bytes | bytearray):
            value = bytes(value).decode("utf-8")
        plain = codec.decode(value) if isinstance(value, str) else codec.to_plain(value)
    except (codec.UnserializableError, msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return plain if isinstance(plain, dict) else None


def _as_json(value: Any) -> str:
    try:
        return codec.encode_text(value)
    except (codec.UnserializableError, RecursionError):
        return f"({type(value).__name__} without a JSON form)"


def clip(text: str, limit: int = 256) -> str:
    """Return `text` in at most `limit` bytes of UTF-8; a longer text ends in `...`, never in half a character."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= limit:
        return encoded.decode()
    return encoded[: limit - 3].decode("utf-8", "ignore") + "..."


def truncate(text: str, limit: int) -> str:
    """Return `text`, or its first `limit` bytes of UTF-8 and an ellipsis; never half a character."""
    encoded = text.encode("utf-8", "replace")
    return encoded.decode() if len(encoded) <= limit else encoded[:limit].decode("utf-8", "ignore") + "…"


def printable_name(tool: str) -> str:
    """Return a tool's name as the model wrote it, made safe for one line of a message."""
    plain = "".join(character if character.isprintable() else " " for character in tool)
    return truncate(plain, _NAME_BYTES) if plain.strip() else "<empty>"
