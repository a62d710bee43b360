"""The few lines at the bottom of the screen that change: what the run does now, and what is being typed. Pure."""

from __future__ import annotations

import io
from datetime import datetime
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from harborage.cli.answers import Mode
from harborage.cli.text import duration, one_line, plural, printable
from harborage.cli.view import doing

if TYPE_CHECKING:
    from harborage.cli.lineedit import LineEditor
    from harborage.cli.questions import Desk
    from harborage.cli.seen import View

__all__ = ["region", "window"]

_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_FRAMES_PER_SECOND = 8
_STREAM_ROWS = 6
_MEASURE = Console(file=io.StringIO(), color_system=None)
_HINT = "type to tell the agent something · /help"


def region(view: View, desk: Desk, editor: LineEditor | None, now: datetime, width: int) -> list[Text]:
    """The changing lines, none wider than `width`; without an editor nobody can type, and there is no input line."""
    lines = [Text()]
    if view.thinking and not view.streaming:
        lines.append(Text(f"∴ {_tail(view.thinking, width - 4)}", style="dim italic"))
    lines.extend(Text(row) for row in _last_rows(view.streaming, width - 2))
    lines.append(_status(view, desk, now))
    if editor is not None:
        lines.append(_input(desk, editor, width))
    return lines


def _status(view: View, desk: Desk, now: datetime) -> Text:
    what, since = doing(view)
    is_waiting = len(desk) > 0 or bool(view.main.held)
    glyph = "?" if len(desk) else "‖" if is_waiting else _frame(now)
    if len(desk):
        what = "waiting for your answer"
    elif view.main.held:
        what = "parked: /resume lets it go on"
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"{glyph} ", "yellow" if is_waiting else "cyan")
    text.append(what, "bold")
    if since is not None and not is_waiting:
        text.append(f" {_elapsed(now, since)}", "dim")
    text.append(_rest(view, desk, now), "dim")
    return text


def _rest(view: View, desk: Desk, now: datetime) -> str:
    parts = [f"step {view.main.step}"]
    running = [task.label for task in view.tasks if not task.ended]
    if running:
        parts.append(f"{', '.join(running)} running")
    if len(desk) > 1:
        parts.append(f"{plural(len(desk), 'question')} open")
    if view.main.began is not None:
        parts.append(f"{_elapsed(now, view.main.began)} in all")
    return "".join(f" · {part}" for part in parts)


def _elapsed(now: datetime, since: datetime) -> str:
    """Time that runs while one looks at it: in tenths of a second at the finest, or it would flicker."""
    seconds = max(0.0, (now - since).total_seconds())
    return f"{seconds:.1f} s" if seconds < 1 else duration(seconds)


def _frame(now: datetime) -> str:
    return _SPINNER[int(now.timestamp() * _FRAMES_PER_SECOND) % len(_SPINNER)]


def _input(desk: Desk, editor: LineEditor, width: int) -> Text:
    prompt = _prompt(desk)
    text = Text(prompt, style="yellow" if len(desk) else "cyan", no_wrap=True)
    if not editor.text and desk.mode is Mode.FREE:
        text.append(" ", "reverse")
        text.append(set_cell_size(_HINT, max(0, min(len(_HINT), width - cell_len(prompt) - 2))), "dim")
        return text
    before, at, after = window(editor.text.replace("\n", "⏎"), editor.cursor, width - cell_len(prompt) - 1)
    text.append(before, "default")
    text.append(at or " ", "reverse")
    text.append(after, "default")
    return text


def _prompt(desk: Desk) -> str:
    question = desk.current
    if question is None:
        return "› "
    match desk.mode:
        case Mode.EDIT:
            return "arguments › "
        case Mode.APPROVAL:
            return f"{one_line(question.subject, 30)}? y/n/e › "
        case Mode.DOUBT:
            return f"{one_line(question.subject, 30)}? done/again/unknown › "
        case Mode.CONSENT:
            return "y/n or an answer › "
        case Mode.PAUSE | Mode.FREE:
            return "answer › "


def window(text: str, cursor: int, room: int) -> tuple[str, str, str]:
    """The part of `text` around the cursor that fits into `room` cells: before the cursor, under it, behind it."""
    room = max(4, room)
    before, at, after = text[:cursor], text[cursor : cursor + 1], text[cursor + 1 :]
    while cell_len(before) > room - 2:
        before = before[1:]
    left = room - cell_len(before) - cell_len(at or " ")
    while cell_len(after) > left:
        after = after[:-1]
    return before, at, after


def _last_rows(text: str, room: int) -> list[str]:
    """The last rows of a text that is still being written, broken at white space."""
    rows: list[str] = []
    for paragraph in printable(text).expandtabs(4).splitlines():
        rows.extend(row.plain.rstrip() for row in Text(paragraph).wrap(_MEASURE, max(8, room)) or [Text()])
    return rows[-_STREAM_ROWS:]


def _tail(text: str, room: int) -> str:
    line = one_line(text, len(text) + 1)
    if cell_len(line) <= max(4, room):
        return line
    while cell_len(line) > max(4, room) - 1:
        line = line[1:]
    return f"…{line}"
