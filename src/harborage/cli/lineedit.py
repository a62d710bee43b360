"""One line of input as keys build it up: what is typed, where the cursor stands, what was typed before. Pure.

The terminal echoes nothing while a run is watched, so that log lines and typing cannot run into each other; this is
what echoes instead. Keys come as the text that a terminal sends.
"""

from __future__ import annotations

import re

__all__ = ["PASTE_OFF", "PASTE_ON", "LineEditor"]

PASTE_ON, PASTE_OFF = "\x1b[?2004h", "\x1b[?2004l"
"""Ask the terminal to mark what is pasted, and to stop that."""

_KEY = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[@-~]|[^\x1b\[O])|\x1b|[^\x1b]", re.DOTALL)
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|O)?$")
_PASTED, _PASTED_END = "\x1b[200~", "\x1b[201~"
_KEPT = 100


class LineEditor:
    """Feed it what the terminal sent; it gives the lines that were finished with Return."""

    def __init__(self) -> None:
        self.text = ""
        self.cursor = 0
        self._rest = ""
        self._is_pasting = False
        self._past: list[str] = []
        self._at = 0
        self._draft = ""

    def feed(self, data: str) -> list[str]:
        """Take in keys; returns the finished lines, in order. A key that came in halves waits for its other half."""
        data, self._rest = self._rest + data, ""
        unfinished = _UNFINISHED.search(data)
        if unfinished:
            data, self._rest = data[: unfinished.start()], unfinished.group()
        return [done for key in _KEY.findall(data) if (done := self._press(key)) is not None]

    def fill(self, text: str) -> None:
        """Begin with `text` already typed."""
        self.text = text
        self.cursor = len(text)

    def _press(self, key: str) -> str | None:
        if key in (_PASTED, _PASTED_END):
            self._is_pasting = key == _PASTED
        elif key in "\r\n":
            if not self._is_pasting:
                return self._finish()
            self._insert("\n")
        elif key.isprintable():
            self._insert(key)
        elif key == "\t":
            self._insert(" ")
        else:
            self._edit(key)
        return None

    def _insert(self, text: str) -> None:
        self.text = self.text[: self.cursor] + text + self.text[self.cursor :]
        self.cursor += len(text)

    def _finish(self) -> str:
        done = self.text
        if done.strip() and self._past[-1:] != [done]:
            self._past = [*self._past[1 - _KEPT :], done]
        self._at = len(self._past)
        self.fill("")
        return done

    def _edit(self, key: str) -> None:
        match key:
            case "\x7f" | "\x08":
                self._cut(self.cursor - 1, self.cursor)
            case "\x1b[3~" | "\x04":
                self._cut(self.cursor, self.cursor + 1)
            case "\x15":
                self._cut(0, self.cursor)
            case "\x0b":
                self._cut(self.cursor, len(self.text))
            case "\x17":
                self._cut(self.text[: self.cursor].rstrip().rfind(" ") + 1, self.cursor)
            case "\x1b[D" | "\x1bOD" | "\x02":
                self.cursor = max(0, self.cursor - 1)
            case "\x1b[C" | "\x1bOC" | "\x06":
                self.cursor = min(len(self.text), self.cursor + 1)
            case "\x01" | "\x1b[H" | "\x1bOH" | "\x1b[1~":
                self.cursor = 0
            case "\x05" | "\x1b[F" | "\x1bOF" | "\x1b[4~":
                self.cursor = len(self.text)
            case "\x1b[A" | "\x1bOA":
                self._recall(-1)
            case "\x1b[B" | "\x1bOB":
                self._recall(1)
            case _:
                pass  # a key that means nothing here

    def _cut(self, start: int, end: int) -> None:
        start = max(0, start)
        self.text = self.text[:start] + self.text[end:]
        self.cursor = start

    def _recall(self, step: int) -> None:
        at = self._at + step
        if not 0 <= at <= len(self._past):
            return
        if self._at == len(self._past):
            self._draft = self.text
        self._at = at
        self.fill(self._draft if at == len(self._past) else self._past[at])
