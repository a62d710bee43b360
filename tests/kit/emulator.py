"""A terminal in memory: what a person sees on the screen, and above it, of what a program has written to it."""

from __future__ import annotations

import re

_SEQUENCE = re.compile(r"\x1b(?:\[([0-?]*)[ -/]*([@-~])|\][^\x07]*\x07|[^\[\]])")


class Emulator:
    """Rows of text, as many as were written, and a cursor; colours are dropped.

    It knows what the command line writes: line breaks, returns, movements up, down and sideways, and erasing.
    """

    def __init__(self, width: int) -> None:
        self._width = width
        self._rows: list[list[str]] = [[]]
        self._row = self._column = 0

    @property
    def text(self) -> str:
        """Everything on the screen and above it, without spaces at the ends of lines."""
        return "\n".join("".join(row).rstrip() for row in self._rows).rstrip("\n") + "\n"

    def feed(self, data: str) -> None:
        """Take what a program writes."""
        at = 0
        while at < len(data):
            found = _SEQUENCE.match(data, at)
            if found is not None:
                self._move(found[1] or "", found[2] or "")
                at = found.end()
                continue
            self._put(data[at])
            at += 1

    def _put(self, char: str) -> None:
        match char:
            case "\n":
                self._down()
            case "\r":
                self._column = 0
            case _ if char >= " ":
                if self._column >= self._width:
                    self._column = 0
                    self._down()
                row = self._rows[self._row]
                row.extend(" " * (self._column + 1 - len(row)))
                row[self._column] = char
                self._column += 1
            case _:
                return

    def _down(self) -> None:
        self._row += 1
        if self._row == len(self._rows):
            self._rows.append([])

    def _move(self, given: str, kind: str) -> None:
        count = int(given) if given.isdigit() else 1
        match kind:
            case "A":
                self._row = max(0, self._row - count)
            case "B":
                for _ in range(count):
                    self._down()
            case "C":
                self._column += count
            case "D":
                self._column = max(0, self._column - count)
            case "G":
                self._column = count - 1
            case "K":
                row = self._rows[self._row]
                del row[0 if given == "2" else self._column :]
            case "J":
                del self._rows[self._row][self._column :]
                del self._rows[self._row + 1 :]
            case _:
                return
