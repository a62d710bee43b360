"""Pieces of long texts and bytes: a range that never cuts a character, and whether bytes are text at all. Pure."""

from __future__ import annotations

import msgspec

__all__ = [
    "Window",
    "character_start",
    "is_text",
    "is_text_type",
    "text_window",
    "trimmed",
]

_TEXT_TYPES = frozenset(
    {
        "application/json",
        "application/javascript",
        "application/sql",
        "application/toml",
        "application/x-ndjson",
        "application/x-sh",
        "application/x-www-form-urlencoded",
        "application/x-yaml",
        "application/xhtml+xml",
        "application/xml",
        "application/yaml",
        "image/svg+xml",
    }
)
_TEXT_SUFFIXES = ("+json", "+xml", "+yaml")
_UNKNOWN = frozenset({"", "application/octet-stream", "binary/octet-stream"})
_LONGEST_CHARACTER = 4


class Window(msgspec.Struct, frozen=True):
    """A range of some bytes: where it really begins, where it ends, and what is in it."""

    start: int
    end: int
    data: bytes


def is_text(data: bytes, mime: str) -> bool:
    """Whether `data` is text in UTF-8: its type says text, or says nothing and no NUL speaks against it."""
    if not (is_text_type(mime) or (_bare(mime) in _UNKNOWN and b"\0" not in data)):
        return False
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def is_text_type(mime: str) -> bool:
    """Whether a MIME type, parameters and all, is one of text."""
    bare = _bare(mime)
    return bare.startswith("text/") or bare in _TEXT_TYPES or bare.endswith(_TEXT_SUFFIXES)


def text_window(data: bytes, offset: int, max_bytes: int) -> Window:
    """At most `max_bytes` of UTF-8 from `offset` on, in whole characters: one that is begun or cut is moved out.

    An offset inside a character goes back to its beginning, and a window too small for one character holds it all the
    same, so that reading on from `end` always gets somewhere.
    """
    start = character_start(data, min(offset, len(data)))
    end = character_start(data, min(start + max_bytes, len(data)))
    if end == start < len(data):
        end = start + 1
        while end < len(data) and data[end] & 0xC0 == 0x80:
            end += 1
    return Window(start, end, data[start:end])


def character_start(data: bytes, at: int) -> int:
    """The beginning of the UTF-8 character that `at` falls into; `at` itself at the end, or where there is none."""
    if at >= len(data):
        return at
    for back in range(min(_LONGEST_CHARACTER, at + 1)):
        if data[at - back] & 0xC0 != 0x80:
            return at - back
    return at


def trimmed(data: bytes) -> bytes:
    """`data` without a character that its end cuts short."""
    start = character_start(data, len(data) - 1) if data else 0
    last = data[start:]
    try:
        last.decode()
    except UnicodeDecodeError as error:
        return data[:start] if error.reason == "unexpected end of data" else data
    return data


def _bare(mime: str) -> str:
    return mime.partition(";")[0].strip().lower()
