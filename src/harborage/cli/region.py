"""The live region of a session: what goes on, the question that is open, one status line, and what is being typed.

Pure: the state of the session in, rows out.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from harborage.cli.answers import Mode
from harborage.cli.block import render_block
from harborage.cli.rows import clock, turning
from harborage.cli.text import count, one_line, plural, printable
from harborage.cli.view import current_activity, spent

if TYPE_CHECKING:
    from harborage.cli.block import Folds
    from harborage.cli.journal_view import View
    from harborage.cli.keyboard import LineEditor
    from harborage.cli.questions import QuestionQueue

_STREAM_ROWS: Final = 6
_FIXED_ROWS: Final = 6
_LEAST_BLOCK: Final = 3
_NARROW, _WIDE = 80, 120
_MEASURE = Console(file=io.StringIO(), color_system=None)
_HINT = "type a message for the agent · /help"


def render_region(
    view: View,
    queue: QuestionQueue,
    editor: LineEditor | None,
    now: datetime,
    width: int,
    *,
    height: int = 24,
    folds: Folds | None = None,
    queued: Sequence[str] = (),
) -> list[Text]:
    """Render the live region, no line wider than `width`; without an editor it has no input line.

    `queued` are the messages that follow this answer of a conversation.
    """
    lines: list[Text] = []
    if folds is not None:
        lines += render_block(folds, now, width, max(_LEAST_BLOCK, height - _FIXED_ROWS - _STREAM_ROWS))
    if view.thinking and not view.streaming:
        lines.append(Text(f"∴ {_tail(view.thinking, width - 4)}", style="dim italic"))
    lines.extend(Text(row) for row in _last_rows(view.streaming, width - 2))
    for text in queued:
        row = Text("  › ", style="bold", no_wrap=True, overflow="ellipsis")
        lines.append(row.append(one_line(text)).append("  queued: after this answer", "dim"))
    pane = queue.pane
    if pane is not None:
        lines += pane.rows(width, height)
    is_told = folds is not None and folds.is_busy
    lines.append(_status(view, queue, now, width, has_keys=editor is not None, is_told=is_told))
    if editor is not None:
        lines.append(_input(queue, editor, width))
    return [Text(), *lines]


def _status(view: View, queue: QuestionQueue, now: datetime, width: int, *, has_keys: bool, is_told: bool) -> Text:
    """The status line: what goes on, for how long, and what it has cost; at its right what can be typed.

    `is_told` leaves out what the run does, because the rows above say so.
    """
    glyph, style, what = _activity(view, queue, now, is_short=is_told or width < _NARROW)
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"{glyph} ", style).append(what, "bold" if style == "yellow" else "")
    text.append("".join(f" · {part}" for part in _facts(view, queue, now, width)), "dim")
    hint = ("^C cancels · /help" if width < _NARROW else "Ctrl-C cancels · /help") if has_keys else ""
    gap = width - cell_len(text.plain) - len(hint)
    return text.append(f"{' ' * gap}{hint}", "dim") if hint and gap > 1 else text


def _activity(view: View, queue: QuestionQueue, now: datetime, *, is_short: bool) -> tuple[str, str, str]:
    """The glyph, its colour, and what the run does or waits for."""
    step = f"step {max(1, view.main.step)}"
    if len(queue):
        return "◆", "yellow", f"waiting for your answer · {step}"
    if view.main.pause_reason:
        return "‖", "yellow", f"paused: /resume continues it · {step}"
    what, _ = current_activity(view)
    return turning(now), "blue", step if is_short else f"{step}, {what}"


def _facts(view: View, queue: QuestionQueue, now: datetime, width: int) -> list[str]:
    parts = [f"{plural(len(queue), 'question')} open"] if len(queue) > 1 else []
    if width >= _WIDE:
        parts += [plural(view.calls, "call")] if view.calls else []
        parts += [plural(len(view.tasks), "child", "children")] if view.tasks else []
    if view.main.began is not None and (lasted := clock(view.main.began, now)):
        parts.append(lasted)
    if view.tokens and width >= _NARROW:
        parts.append(f"{count(view.tokens)} tokens")
    if paid := spent(view):
        parts.append(paid)
    return parts


def _input(queue: QuestionQueue, editor: LineEditor, width: int) -> Text:
    prompt = _prompt(queue)
    text = Text(prompt, style="yellow" if len(queue) else "cyan", no_wrap=True)
    if not editor.text and queue.mode is Mode.FREE:
        text.append(" ", "reverse")
        text.append(set_cell_size(_HINT, max(0, min(len(_HINT), width - cell_len(prompt) - 2))), "dim")
        return text
    before, at, after = visible_part(editor.text.replace("\n", "⏎"), editor.cursor, width - cell_len(prompt) - 1)
    text.append(before, "default")
    text.append(at or " ", "reverse")
    text.append(after, "default")
    return text


def _prompt(queue: QuestionQueue) -> str:
    question = queue.current
    if question is None:
        return "› "
    match queue.mode:
        case Mode.EDIT:
            return "arguments › "
        case Mode.APPROVAL:
            can_approve = queue.pane is None or queue.pane.is_read
            return f"{one_line(question.subject, 30)}? {'y/n/e/r' if can_approve else 'n/e'} › "
        case Mode.INTERRUPTED:
            return f"{one_line(question.subject, 30)}? done/again/unknown › "
        case Mode.CONFIRM:
            return "y/n or an answer › "
        case Mode.PAUSE | Mode.FREE:
            return "answer › "


def visible_part(text: str, cursor: int, room: int) -> tuple[str, str, str]:
    """Return the part of `text` around the cursor that fits into `room` cells: before, under and after the cursor."""
    room = max(4, room)
    before, at, after = text[:cursor], text[cursor : cursor + 1], text[cursor + 1 :]
    while cell_len(before) > room - 2:
        before = before[1:]
    left = room - cell_len(before) - cell_len(at or " ")
    while cell_len(after) > left:
        after = after[:-1]
    return before, at, after


def _last_rows(text: str, room: int) -> list[str]:
    """The last rows of a text that is being streamed, wrapped at white space."""
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
