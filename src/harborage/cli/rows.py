"""Rows of calls, steps and children: a glyph, a step, what was called with what, what came of it, and how long it took.

Pure. A row that is too long for its terminal loses its result first, then its arguments; name, glyph and time stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

import msgspec
from rich.text import Text

from harborage.cli.terminal import columns, cut_columns
from harborage.cli.text import compact, duration, masked, one_line, printable, size

RESULT_COLUMNS: Final = 40
"""No result on the row of a call is wider."""

INDENT: Final = 5
"""Where the rows below a step begin."""

_LEAST_RESULT: Final = 10
_LEAST_ARGS: Final = 12
_ARGS: Final = 400
_GAP: Final = "  "
_ARTIFACT_KEYS: Final = frozenset({"id", "mime_type", "size_bytes", "filename", "sha256"})
_HEAVY_KEYS: Final = frozenset({"size_bytes", "truncated", "artifact_ref"})
_TURNING: Final = "◐◓◑◒"


class Mark(StrEnum):
    """Where a call, a step or a child is."""

    OPEN = "open"
    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    HELD_BACK = "held_back"


_LOOKS: Final[Mapping[Mark, tuple[str, str]]] = MappingProxyType(
    {
        Mark.OPEN: ("◐", "blue"),
        Mark.WAITING: ("┄", "dim"),
        Mark.DONE: ("✓", "green"),
        Mark.FAILED: ("✗", "red"),
        Mark.REFUSED: ("⊘", "dim"),
        Mark.UNKNOWN: ("▲", "magenta"),
        Mark.HELD_BACK: ("▹", "dim"),
    }
)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One row. `name` is bold, `args` stand in brackets behind it, `result` behind those; `took` at the right edge.

    `tag` is the number of the step; a row below a step has none, and stands in.
    """

    mark: Mark
    tag: str = ""
    name: str = ""
    args: str | None = None
    said: str = ""
    result: str = ""
    took: str = ""
    is_below: bool = False

    def text(self, width: int, now: datetime | None = None) -> Text:
        """Render the row for a terminal of so many columns; the glyph of what goes on turns with `now`."""
        glyph, style = _LOOKS[self.mark]
        if self.mark is Mark.OPEN and now is not None:
            glyph = turning(now)
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(" " * INDENT if self.is_below else "").append(glyph, style).append(" ")
        if not self.is_below:
            text.append(f"{self.tag:<2} ", "dim")
        text.append(self.name, "bold" if self.args is None and not self.is_below else "")
        room = width - columns(text.plain) - (len(self.took) + 2 if self.took else 0)
        for part, look in self._parts(room):
            text.append(part, look)
        if self.took:
            text.append(" " * max(2, width - columns(text.plain) - len(self.took))).append(self.took, "dim")
        return text

    def _parts(self, room: int) -> list[tuple[str, str]]:
        """What stands behind the name in so many columns, and how it looks."""
        args = "" if self.args is None else f"({self.args})"
        result = f"{_GAP}{self.result}" if self.result else ""
        quiet = "" if self.mark is Mark.OPEN else "dim"
        if self.said:
            return [(_cut(self.said, room), "")]
        if columns(args) + columns(result) <= room:
            return [(args, quiet), (result, "")]
        if self.mark is Mark.FAILED and args:  # the reason of a failure is worth more than what was asked for
            short = _cut_args(args, max(room - columns(result), min(columns(args), room // 3)))
            return [(short, quiet), (_cut(result, room - columns(short)), "")]
        short = _cut(result, room - columns(args))
        if short and columns(short) >= min(columns(result), _LEAST_RESULT):
            return [(args, quiet), (short, "")]
        short = _cut_args(args, room - min(columns(result), _LEAST_RESULT + 2))
        return [(short, quiet), (_cut(result, room - columns(short)), "")]


def turning(now: datetime) -> str:
    """Return the glyph of what goes on, which turns once a second."""
    return _TURNING[int(now.timestamp()) % len(_TURNING)]


def clock(since: datetime, now: datetime) -> str:
    """Return how long something has gone on, by whole seconds; "" for the first one."""
    seconds = int(max(0.0, (now - since).total_seconds()))
    return duration(seconds).replace(".0 s", " s") if seconds else ""


def took(began: datetime, ended: datetime) -> str:
    """Return how long something took."""
    return duration(max(0.0, (ended - began).total_seconds()))


def brief(value: Any) -> str:
    """Return a result in at most 40 columns: an artifact by its name, a text of several lines by its first."""
    if isinstance(value, Mapping):
        if value.keys() >= _HEAVY_KEYS:
            return f"{size(int(value['size_bytes']))}, stored as artifact {one_line(str(value['artifact_ref']))}"
        if value.keys() >= _ARTIFACT_KEYS:
            name = one_line(str(value["filename"] or value["id"]))
            return f"{name}, {value['mime_type']}, {size(int(value['size_bytes']))}"
    clean = masked(value)
    if clean is None:
        return ""
    if not isinstance(clean, str):
        return _cut(one_line(compact(clean)), RESULT_COLUMNS)
    lines = clean.strip().splitlines()
    if len(lines) < 2:
        return _cut(one_line(clean), RESULT_COLUMNS)
    more = f" +{len(lines) - 1:,} line{'' if len(lines) == 2 else 's'}"
    return f"{_cut(one_line(lines[0]), RESULT_COLUMNS - len(more))}{more}"


def brief_args(args: Any) -> str:
    """Return the arguments of a call, such as `path="a", deep=true`, on one line and whole up to 400 characters."""
    clean = masked(args)
    if not isinstance(clean, Mapping):
        return one_line(compact(clean), _ARGS)
    return one_line(", ".join(f"{key}={compact(value)}" for key, value in clean.items()), _ARGS)


def counted(tools: Iterable[str]) -> str:
    """Return the names of tools, each once and with how often it was called: `look ×3, forecast`."""
    counts: dict[str, int] = {}
    for tool in tools:
        counts[tool] = counts.get(tool, 0) + 1
    return ", ".join(f"{tool} ×{count}" if count > 1 else tool for tool, count in counts.items())


def prose(text: str) -> Text:
    """Return words of the model, which wrap."""
    return Text(printable(str(masked(text)).strip()))


def _cut(text: str, room: int) -> str:
    """A text in so many columns, cut with a sign; "" where there is none to speak of."""
    if columns(text) <= room:
        return text
    return cut_columns(text, room) if room > 3 else ""


def _cut_args(args: str, room: int) -> str:
    """Arguments in brackets, cut at their end but for the bracket."""
    if columns(args) <= room:
        return args
    return f"{cut_columns(args[:-1], room - 1)})" if room >= _LEAST_ARGS else "(…)" if room >= 3 else ""
