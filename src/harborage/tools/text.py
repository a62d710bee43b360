"""Pieces of long texts and bytes: a range that never cuts a character, and whether bytes are text at all. Pure."""

from __future__ import annotations

import re
from typing import Final

import msgspec

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
_CONTROL: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]"
)


class TextRange(msgspec.Struct, frozen=True):
    """A range of some bytes: its start, its end, and its content."""

    start: int
    end: int
    data: bytes


def is_text(data: bytes, mime: str) -> bool:
    """Whether `data` is text in UTF-8: its type is one of text, or unknown and the data has no NUL."""
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


def read_window(data: bytes, offset: int, max_bytes: int) -> TextRange:
    """Return at most `max_bytes` of UTF-8 from `offset` on, in whole characters.

    An offset inside a character goes back to its beginning. A range too small for one character holds that character
    all the same, so that reading on from `end` always advances.
    """
    start = find_character_start(data, min(offset, len(data)))
    end = find_character_start(data, min(start + max_bytes, len(data)))
    if end == start < len(data):
        end = start + 1
        while end < len(data) and data[end] & 0xC0 == 0x80:
            end += 1
    return TextRange(start, end, data[start:end])


def find_character_start(data: bytes, at: int) -> int:
    """Return the start of the UTF-8 character at `at`; `at` itself at the end, or in bytes that are no UTF-8."""
    if at >= len(data):
        return at
    for back in range(min(_LONGEST_CHARACTER, at + 1)):
        if data[at - back] & 0xC0 != 0x80:
            return at - back
    return at


def trim_cut_character(data: bytes) -> bytes:
    """Return `data` without a character that its end cuts."""
    start = find_character_start(data, len(data) - 1) if data else 0
    last = data[start:]
    try:
        last.decode()
    except UnicodeDecodeError as error:
        return data[:start] if error.reason == "unexpected end of data" else data
    return data


def _bare(mime: str) -> str:
    return mime.partition(";")[0].strip().lower()


def clean_text(text: str, most_bytes: int, *, one_line: bool = False) -> str:
    """Return a text from outside as it may be shown: without control characters, cut with `…` to `most_bytes`.

    Escape sequences of terminals, and marks that turn the direction of text, are control characters, too.
    """
    shown = _CONTROL.sub("", text)
    if one_line:
        shown = " ".join(shown.split())
    data = shown.encode("utf-8", "replace")
    if len(data) <= most_bytes:
        return data.decode()
    return trim_cut_character(data[: max(0, most_bytes - 3)]).decode() + "…"
