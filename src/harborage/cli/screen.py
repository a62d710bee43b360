"""The screen of a session: lines that scroll by, and in a terminal a live region at the bottom.

The live region shows what the run does now, and what is being typed.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from harborage.cli.answers import Mode
from harborage.cli.text import duration, one_line, plural, printable
from harborage.cli.view import current_activity

if TYPE_CHECKING:
    from harborage.cli.journal_view import View
    from harborage.cli.keyboard import LineEditor
    from harborage.cli.output import BackgroundStream
    from harborage.cli.questions import QuestionQueue

Region = Callable[[int], Sequence[Text]]
"""Renders the live region for a width in columns."""

_DRAIN_S = 1.0


class Screen(Protocol):
    """Where a session is shown."""

    @property
    def width(self) -> int:
        """The width of a line in columns."""
        ...

    def show(self, lines: Sequence[Text], *, is_urgent: bool = False) -> None:
        """Write lines that stay; urgent ones are written even on a quiet screen."""
        ...

    def refresh(self) -> None:
        """Draw the live region again."""
        ...

    def suspended(self) -> AbstractContextManager[None]:
        """Lend the terminal to another program inside a block."""
        ...

    def close(self) -> None:
        """Remove the live region; the lines above it stay."""
        ...


class LiveScreen:
    """A terminal: lines scroll by, the live region stays below them and below what tools print.

    While `stream` is behind, because the terminal is not read, the region is not drawn and lines wait; none is lost.
    """

    def __init__(self, console: Console, region: Region, stream: BackgroundStream | None = None) -> None:
        self._console = console
        self._region = region
        self._stream = stream
        self._waiting: list[Text] = []
        self._live: Live | None = self._open()

    @property
    def width(self) -> int:
        return self._console.width

    def show(self, lines: Sequence[Text], *, is_urgent: bool = False) -> None:
        self._waiting.extend(lines)
        if not self._is_behind:
            self._write()

    def refresh(self) -> None:
        if not self._is_behind:
            self._write()
            if self._live is not None:
                self._live.refresh()

    @contextmanager
    def suspended(self) -> Iterator[None]:
        self.close()
        if self._stream is not None:
            self._stream.drain(_DRAIN_S)
        try:
            yield
        finally:
            self._live = self._open()

    def close(self) -> None:
        self._write()
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    @property
    def _is_behind(self) -> bool:
        # A closed screen draws no region, so its lines need not wait.
        return self._live is not None and self._stream is not None and self._stream.is_behind

    def _write(self) -> None:
        lines, self._waiting = self._waiting, []
        for text in lines:
            # Console.print forgets the wrapping of a text unless it gets it again.
            self._console.print(text, no_wrap=text.no_wrap, overflow=text.overflow)

    def _open(self) -> Live:
        live = Live(
            console=self._console,
            auto_refresh=False,
            transient=True,
            get_renderable=lambda: Group(*self._region(self._console.width)),
        )
        live.start(refresh=True)
        return live


class PlainScreen:
    """A stream without a live region. A quiet one writes urgent lines only."""

    def __init__(self, console: Console, *, is_quiet: bool = False) -> None:
        self._console = console
        self._is_quiet = is_quiet

    @property
    def width(self) -> int:
        return self._console.width

    def show(self, lines: Sequence[Text], *, is_urgent: bool = False) -> None:
        if is_urgent or not self._is_quiet:
            for text in lines:
                self._console.print(text, soft_wrap=True)

    def refresh(self) -> None:
        return

    def suspended(self) -> AbstractContextManager[None]:
        return nullcontext()

    def close(self) -> None:
        return


_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_FRAMES_PER_SECOND = 8
_STREAM_ROWS = 6
_MEASURE = Console(file=io.StringIO(), color_system=None)
_HINT = "type a message for the agent · /help"


def render_region(view: View, queue: QuestionQueue, editor: LineEditor | None, now: datetime, width: int) -> list[Text]:
    """Render the live region, no line wider than `width`; without an editor it has no input line."""
    lines = [Text()]
    if view.thinking and not view.streaming:
        lines.append(Text(f"∴ {_tail(view.thinking, width - 4)}", style="dim italic"))
    lines.extend(Text(row) for row in _last_rows(view.streaming, width - 2))
    lines.append(_status(view, queue, now))
    if editor is not None:
        lines.append(_input(queue, editor, width))
    return lines


def _status(view: View, queue: QuestionQueue, now: datetime) -> Text:
    what, since = current_activity(view)
    is_waiting = len(queue) > 0 or bool(view.main.pause_reason)
    glyph = "?" if len(queue) else "‖" if is_waiting else _frame(now)
    if len(queue):
        what = "waiting for your answer"
    elif view.main.pause_reason:
        what = "paused: /resume continues it"
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"{glyph} ", "yellow" if is_waiting else "cyan")
    text.append(what, "bold")
    if since is not None and not is_waiting:
        text.append(f" {_elapsed(now, since)}", "dim")
    text.append(_rest(view, queue, now), "dim")
    return text


def _rest(view: View, queue: QuestionQueue, now: datetime) -> str:
    parts = [f"step {view.main.step}"]
    running = [task.label for task in view.tasks if not task.ended]
    if running:
        parts.append(f"{', '.join(running)} running")
    if len(queue) > 1:
        parts.append(f"{plural(len(queue), 'question')} open")
    if view.main.began is not None:
        parts.append(f"{_elapsed(now, view.main.began)} in all")
    return "".join(f" · {part}" for part in parts)


def _elapsed(now: datetime, since: datetime) -> str:
    """A running time, at the finest in tenths of a second, because more digits would flicker."""
    seconds = max(0.0, (now - since).total_seconds())
    return f"{seconds:.1f} s" if seconds < 1 else duration(seconds)


def _frame(now: datetime) -> str:
    return _SPINNER[int(now.timestamp() * _FRAMES_PER_SECOND) % len(_SPINNER)]


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
            return f"{one_line(question.subject, 30)}? y/n/e › "
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
