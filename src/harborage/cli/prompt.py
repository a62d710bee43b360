"""The prompt of a conversation: one message, of one line or of several, read from the terminal."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from rich.text import Text

from harborage.cli.keyboard import Job, Keyboard, LineEditor, handle_signals
from harborage.cli.region import visible_part
from harborage.cli.text import printable

if TYPE_CHECKING:
    from harborage.cli.session import Terminal

_ALT_ENTER: Final = frozenset({"\x1b\r", "\x1b\n"})
_CTRL_D: Final = "\x04"
_MOST_ROWS: Final = 10
_PROMPT: Final = "› "
_MOST_INTERRUPTS: Final = 3


class MessageEditor(LineEditor):
    """Edits a message: Enter ends it, Alt-Enter and a backslash before Enter break its line; Ctrl-D on an empty message
    leaves."""

    def __init__(self) -> None:
        super().__init__()
        self.is_left = False

    def recall_from(self, said: list[str]) -> None:
        """Offer these messages, the newest last, as if they had been typed here."""
        self._past = [*said]
        self._at = len(self._past)

    def _press(self, key: str) -> str | None:
        if key == _CTRL_D and not self.text:
            self.is_left = True
            return None
        if key in _ALT_ENTER:
            self._insert("\n")
            return None
        if key in "\r\n" and not self._is_pasting and self.text[: self.cursor].endswith("\\"):
            self._cut(self.cursor - 1, self.cursor)
            self._insert("\n")
            return None
        return super()._press(key)


async def read_message(terminal: Terminal, editor: MessageEditor, hint: str) -> str | None:
    """Ask for a message; None when the person leaves, or the terminal is gone. `hint` is shown while it is empty."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[str | None] = loop.create_future()

    def finish(text: str | None) -> None:
        if not done.done():
            done.set_result(text)

    def changed() -> None:
        if editor.is_left:
            finish(None)
        screen.refresh()

    assert terminal.keys is not None
    keyboard = Keyboard(
        terminal.keys,
        on_line=finish,
        on_change=changed,
        on_gone=lambda: finish(None),
        is_echoing=terminal.is_echoing,
        write=terminal.write,
    )
    keyboard.editor = editor
    editor.is_left = False
    pressed = 0

    def interrupt() -> None:
        """The first Ctrl-C clears the message, the second says how to leave, the third leaves."""
        nonlocal pressed
        pressed += 1
        editor.fill("")
        if pressed == _MOST_INTERRUPTS:
            finish(None)
        elif pressed > 1:
            screen.show([Text("Ctrl-D leaves", style="dim")])
        screen.refresh()

    with ExitStack() as stack:
        stack.enter_context(keyboard.opened())
        screen = terminal.open_screen(lambda width: render_prompt(editor, hint, width))
        stack.callback(screen.close)
        if terminal.is_echoing and terminal.write is not None:
            terminal.write(_PROMPT)

        @contextmanager
        def suspend() -> Iterator[None]:
            with keyboard.suspended(), screen.suspended():
                yield

        job = Job(suspend=suspend, renew=keyboard.renew, is_terminal_lent=lambda: False)
        leave: Callable[[], None] = lambda: finish(None)  # noqa: E731 - one for two signals
        in_turn = {signal.SIGINT: interrupt, signal.SIGWINCH: screen.refresh, signal.SIGTSTP: job.stop}
        in_turn |= {signal.SIGCONT: job.resume, signal.SIGTERM: leave, signal.SIGHUP: leave}
        stack.enter_context(handle_signals(in_turn, {}))
        return await done


def read_piped_message() -> str | None:
    """The next line of standard input that says something; None at its end."""
    for line in sys.stdin:
        if line.strip():
            return line.rstrip("\n")
    return None


def render_prompt(editor: LineEditor, hint: str, width: int) -> list[Text]:
    """Render the message that is being typed, in rows of at most `width` columns, the one with the cursor in view."""
    if not editor.text:
        text = Text(_PROMPT, style="bold", no_wrap=True, overflow="ellipsis")
        text.append(" ", "reverse")
        text.append(hint, "not bold dim")
        return [Text(), text]
    before = editor.text[: editor.cursor]
    at, column = before.count("\n"), len(before) - (before.rfind("\n") + 1)
    lines = editor.text.split("\n")
    first = max(0, min(at - _MOST_ROWS + 2, len(lines) - _MOST_ROWS)) if len(lines) > _MOST_ROWS else 0
    first = min(first, at)
    rows = [Text()]
    for number, line in enumerate(lines[first : first + _MOST_ROWS], first):
        row = Text(_PROMPT if not number else "  ", style="bold", no_wrap=True)
        shown = printable(line, keep="")
        is_at = number == at
        head, under, tail = visible_part(shown, column if is_at else 0, width - 4)
        row.append(head, "not bold")
        row.append(under or (" " if is_at else ""), "reverse" if is_at else "not bold")
        row.append(tail, "not bold")
        rows.append(row)
    return rows
