"""The live region of a terminal: rows at its bottom that are drawn again in place, and lines that scroll by above them.

Each change is one write, marked so that a terminal shows it at once, and only rows that differ are written: nothing
flickers, and an idle region writes nothing.
"""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, TextIO, cast

from rich.ansi import AnsiDecoder
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

_SYNC_ON, _SYNC_OFF = "\x1b[?2026h", "\x1b[?2026l"
_HIDE, _SHOW = "\x1b[?25l", "\x1b[?25h"
_ERASE_ROW, _ERASE_BELOW = "\x1b[2K", "\x1b[J"
_LEAST_ROWS: Final = 3

Rows = Callable[[int], Sequence[Text]]
"""Renders the rows of the region for a width in columns."""


class Painter:
    """Draws the region below the lines that are printed, until it is closed.

    Safe for the threads of tools: what they print goes above the region, too. `translate` changes each text last, for
    terminals without the glyphs.
    """

    def __init__(self, console: Console, rows: Rows, translate: Callable[[str], str] = str) -> None:
        self._console = console
        self._rows = rows
        self._translate = translate
        self._lock = threading.RLock()
        self._sheet = _sheet(console)
        self._drawn: list[str] = []
        self._sizes: list[int] = []
        self._streams: tuple[TextIO, TextIO] | None = (sys.stdout, sys.stderr)
        sys.stdout = cast(TextIO, _Printed(self.print, sys.stdout))
        sys.stderr = cast(TextIO, _Printed(self.print, sys.stderr))
        self._write(_HIDE)
        self.paint()

    def print(self, lines: Sequence[Text]) -> None:
        """Write lines that stay, above the region."""
        with self._lock:
            if self._streams is None:
                self._write(self._printed(lines))
                return
            above = self._erased() + self._printed(lines)
            rows = self._render()
            self._write(f"{_SYNC_ON}{above}{chr(10).join(rows)}{_SYNC_OFF}")
            self._drawn = rows

    def paint(self, *, is_whole: bool = False) -> None:
        """Draw the rows that differ from those on the screen, or all of them; nothing is written when none does."""
        with self._lock:
            if self._streams is None:
                return
            is_whole = is_whole or self._console.width != self._sheet.width
            above = self._erased() if is_whole else ""
            before = [] if is_whole else self._drawn
            rows = self._render()
            if above or rows != before:
                self._write(f"{_SYNC_ON}{above}{_difference(before, rows)}{_SYNC_OFF}")
            self._drawn = rows

    def close(self) -> None:
        """Remove the region and give the streams back; the lines above it stay. Closing twice does nothing."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, _Printed):
                stream.finish()  # before the lock is taken: a tool that prints takes both the other way round
        with self._lock:
            if self._streams is None:
                return
            sys.stdout, sys.stderr = self._streams
            self._streams = None
            self._write(self._erased() + _SHOW)
            self._drawn = []

    def _render(self) -> list[str]:
        self._sheet.width = self._console.width
        most = max(_LEAST_ROWS, self._console.height - 1)
        texts = list(self._rows(self._console.width))[-most:]
        self._sizes = [cell_len(text.plain) for text in texts]
        return [self._ansi(text, is_row=True).rstrip("\n") for text in texts]

    def _printed(self, lines: Sequence[Text]) -> str:
        self._sheet.width = self._console.width
        return "".join(self._ansi(line) for line in lines)

    def _ansi(self, text: Text, *, is_row: bool = False) -> str:
        overflow = text.overflow or ("crop" if is_row else None)
        self._sheet.print(text, no_wrap=is_row or text.no_wrap, overflow=overflow)
        file = cast(io.StringIO, self._sheet.file)
        shown = file.getvalue()
        file.seek(0)
        file.truncate()
        return self._translate(shown)

    def _erased(self) -> str:
        """What removes the region. A terminal that became narrower has wrapped its rows."""
        if not self._drawn:
            return ""
        width = max(1, self._console.width)
        rows = sum(max(1, -(-size // width)) for size in self._sizes)
        return f"{_up(rows - 1)}\r{_ERASE_BELOW}"

    def _write(self, data: str) -> None:
        if data:
            self._console.file.write(data)
            self._console.file.flush()


def _sheet(console: Console) -> Console:
    """A console that renders to text what `console` would show."""
    return Console(
        file=io.StringIO(),
        force_terminal=True,
        color_system=cast(Any, console.color_system),
        no_color=console.no_color,
        width=console.width,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )


def _difference(before: list[str], rows: list[str]) -> str:
    """What turns the rows on the screen, the cursor in the last of them, into other ones."""
    first = next((at for at, (old, new) in enumerate(zip(before, rows, strict=False)) if old != new), None)
    if first is None:
        first = min(len(before), len(rows))
    if not before:
        return "\n".join(rows)
    if len(before) == len(rows):
        return _changed(before, rows, first)
    if first == len(before):
        return "".join(f"\n{row}" for row in rows[first:])
    climb = f"{_up(len(before) - 1 - first)}\r{_ERASE_BELOW}"
    if first == len(rows):  # the cursor belongs in the last row that is left
        return f"{climb}{_up(1)}" if rows else climb
    return climb + "\n".join(rows[first:])


def _changed(before: list[str], rows: list[str], first: int) -> str:
    """What writes again those rows that differ."""
    parts, at = [], len(before) - 1
    for index in range(first, len(rows)):
        if before[index] != rows[index]:
            parts.append(f"{_moved(index - at)}\r{_ERASE_ROW}{rows[index]}")
            at = index
    return "".join(parts) + _moved(len(rows) - 1 - at)


def _moved(rows: int) -> str:
    return f"\x1b[{rows}B" if rows > 0 else _up(-rows)


def _up(rows: int) -> str:
    return f"\x1b[{rows}A" if rows > 0 else ""


class _Printed(io.TextIOBase):
    """Standard output or error while there is a region: whole lines are printed above it."""

    def __init__(self, show: Callable[[Sequence[Text]], None], stream: TextIO) -> None:
        self._show = show
        self._stream = stream
        self._rest = ""
        self._lock = threading.RLock()
        self._decoder = AnsiDecoder()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        with self._lock:
            *lines, self._rest = (self._rest + text).split("\n")
            if lines:
                self._show([self._decoder.decode_line(line) for line in lines])
        return len(text)

    def flush(self) -> None:
        """Nothing: a line is shown when it is whole, or when the region is gone."""

    def finish(self) -> None:
        """Show what was written without the end of a line."""
        with self._lock:
            rest, self._rest = self._rest, ""
            if rest:
                self._show([self._decoder.decode_line(rest)])
