"""What a stream shows: its width, whether it has colours, and whether its glyphs must be ASCII.

Colour is on glyphs alone and never says anything that the words beside it do not. Importing this is cheap.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TextIO

import msgspec

RED, GREEN, YELLOW, BLUE, MAGENTA = 31, 32, 33, 34, 35
DIM, BOLD = 2, 1

_WIDE: Final = frozenset("WF")
_ZERO: Final = frozenset({"Mn", "Me", "Cf"})
_ASCII: Final[Mapping[int, str]] = MappingProxyType(
    str.maketrans(
        {
            "◐": "*",
            "◓": "*",
            "◑": "*",
            "◒": "*",
            "◆": "!",
            "‖": "=",
            "▲": "?",
            "✓": "+",
            "✗": "x",
            "⊘": "/",
            "▹": "o",
            "◌": ".",
            "┄": "-",
            "◠": "~",
            "⊟": "#",
            "›": ">",
            "∴": ":",
            "└": "`",
            "·": "-",
            "─": "-",
            "•": "-",
            "−": "-",
            "×": "x",
            "→": "->",
            "…": "...",
            "↪": ">",
        }
    )
)


class Look(msgspec.Struct, frozen=True):
    """What a stream shows: `width` is None for what is no terminal, where nothing is cut or wrapped."""

    width: int | None = None
    has_colour: bool = False
    is_ascii: bool = False

    def paint(self, text: str, *codes: int) -> str:
        """Return `text` in a colour of the terminal, by its SGR codes; as it is where there are none."""
        return f"\x1b[{';'.join(map(str, codes))}m{text}\x1b[0m" if self.has_colour and codes and text else text

    def plain(self, text: str) -> str:
        """Return `text` with ASCII in place of glyphs where the stream needs it; before it is measured and cut."""
        return text.translate(_ASCII) if self.is_ascii else text

    def cut(self, text: str, width: int) -> str:
        """Return `text` in at most `width` columns; one that is longer ends with a whole word and the sign of a cut."""
        if columns(text) <= width:
            return text
        sign = self.plain("…")
        head = _head(text, max(0, width - columns(sign)))
        words, _, rest = head.rpartition(" ")
        is_cut_inside = bool(words) and len(words) > len(rest) and not text[len(head)].isspace()
        return f"{(words if is_cut_inside else head).rstrip()}{sign}"


def look_of(stream: TextIO, environ: Mapping[str, str]) -> Look:
    """Return what `stream` shows: NO_COLOR and TERM=dumb switch colours off, FORCE_COLOR on, HARBORAGE_ASCII glyphs."""
    is_terminal = stream.isatty()
    is_ascii = bool(environ.get("HARBORAGE_ASCII")) or not (stream.encoding or "utf-8").lower().startswith("utf")
    if environ.get("FORCE_COLOR"):
        has_colour = True
    else:
        has_colour = is_terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
    return Look(_width(stream) if is_terminal else None, has_colour, is_ascii)


def _width(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def columns(text: str) -> int:
    """Return how many columns a terminal gives to `text`: none to combining marks, two to wide characters."""
    if text.isascii():
        return len(text)
    return sum(_columns(char) for char in text)


def _columns(char: str) -> int:
    if unicodedata.category(char) in _ZERO:
        return 0
    return 2 if unicodedata.east_asian_width(char) in _WIDE else 1


def _head(text: str, width: int) -> str:
    taken = 0
    for index, char in enumerate(text):
        taken += _columns(char)
        if taken > width:
            return text[:index]
    return text


def cut_columns(text: str, width: int) -> str:
    """Return `text` in at most `width` columns, within a word if need be; what is left out is marked by …."""
    return text if columns(text) <= width else f"{_head(text, max(0, width - 1)).rstrip()}…"


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Return `text` filled with spaces to `width` columns, at its right side, or `right`-aligned at its left."""
    fill = " " * max(0, width - columns(text))
    return f"{fill}{text}" if right else f"{text}{fill}"
