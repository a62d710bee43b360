"""What a person does at the terminal while a run goes on: lines they type, and signals.

Reads the terminal from the event loop, without a thread that could keep the process alive, and gives the terminal back
as it was. This file knows nothing of what a line means.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import signal
import termios
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from harborage.cli.lineedit import PASTE_OFF, PASTE_ON, LineEditor

__all__ = ["Keyboard", "can_ask", "signals"]

_READ_BYTES = 4096
_LFLAG, _CC = 3, 6


def can_ask(fd: int) -> bool:
    """Whether a person can be asked on this terminal: it is one, and this process is in its foreground."""
    try:
        return os.isatty(fd) and os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return False


def _is_of_another_job(fd: int) -> bool:
    """Whether the terminal has another job in front: changing it now would stop this process too."""
    try:
        return os.tcgetpgrp(fd) != os.getpgrp()
    except OSError:
        return False  # not this process's own terminal, or gone


class Keyboard:
    """The terminal that standard input is: finished lines go to `on_line`, each key press to `on_change`.

    Open, it owns the terminal: it echoes nothing unless `is_echoing`, and the program's own standard input is empty, so
    that no tool takes the keys away. `on_gone` hears when the terminal is gone. What the terminal is told goes through
    `write`, where that is given: what else is written there keeps its order.
    """

    def __init__(
        self,
        fd: int,
        *,
        on_line: Callable[[str], None],
        on_change: Callable[[], None],
        on_gone: Callable[[], None],
        is_echoing: bool = False,
        write: Callable[[str], object] | None = None,
    ) -> None:
        self.editor = LineEditor()
        self.is_echoing = is_echoing
        self._fd = fd
        self._own = -1
        self._before: list[Any] | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._on_line = on_line
        self._on_change = on_change
        self._on_gone = on_gone
        self._write = self._write_now if write is None else write

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Own the terminal for the length of a block, inside a running event loop."""
        self._own = os.dup(self._fd)
        self._before = termios.tcgetattr(self._own)
        empty = os.open(os.devnull, os.O_RDONLY)
        os.dup2(empty, self._fd)
        os.close(empty)
        self._listen()
        try:
            yield
        finally:
            self.close()

    @contextmanager
    def suspended(self) -> Iterator[int]:
        """Leave the terminal to another program for the length of a block; gives the descriptor to read it by."""
        self._unlisten()
        try:
            yield self._own
        finally:
            self._listen()

    def renew(self) -> None:
        """Set the terminal up again, which a shell may have had meanwhile."""
        if self._own >= 0 and not _is_of_another_job(self._own):
            self._set_mode()

    def close(self) -> None:
        """Give the terminal back as it was. Closing twice does nothing."""
        if self._own < 0:
            return
        self._unlisten()
        os.dup2(self._own, self._fd)
        os.close(self._own)
        self._own = -1

    def _listen(self) -> None:
        self._set_mode()
        asyncio.get_running_loop().add_reader(self._own, self._read)

    def _unlisten(self) -> None:
        asyncio.get_running_loop().remove_reader(self._own)
        if self._before is None:
            return
        try:
            if not self.is_echoing:
                self._write(PASTE_OFF)
            if not _is_of_another_job(self._own):
                # Not once all is written, which may be never: see Outlet.
                termios.tcsetattr(self._own, termios.TCSANOW, self._before)
        except (OSError, termios.error):
            return  # the terminal is gone; there is nothing to give back

    def _set_mode(self) -> None:
        if self.is_echoing:
            return
        mode = termios.tcgetattr(self._own)
        mode[_LFLAG] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN)
        mode[_CC][termios.VMIN], mode[_CC][termios.VTIME] = 1, 0
        termios.tcsetattr(self._own, termios.TCSANOW, mode)
        self._write(PASTE_ON)

    def _write_now(self, text: str) -> None:
        os.write(self._own, text.encode())

    def _read(self) -> None:
        try:
            data = os.read(self._own, _READ_BYTES)
        except OSError:
            data = b""
        if not data:
            if self.is_echoing and os.isatty(self._own):
                return  # Ctrl-D on an empty line; the terminal is still there
            asyncio.get_running_loop().remove_reader(self._own)
            self._on_gone()
            return
        for line in self.editor.feed(self._decoder.decode(data)):
            self._on_line(line)
        self._on_change()


@contextmanager
def signals(
    handlers: Mapping[signal.Signals, Callable[[], None]], at_once: Mapping[signal.Signals, Callable[[], None]]
) -> Iterator[None]:
    """Hear signals for the length of a block, and put back what was there before.

    `handlers` are called from the running event loop, `at_once` wherever the program is, also while something blocks
    the loop.
    """
    loop = asyncio.get_running_loop()
    with ExitStack() as undo:
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
            undo.callback(loop.remove_signal_handler, number)
        for number, handler in at_once.items():
            before = signal.signal(number, partial(_call, handler))
            undo.callback(signal.signal, number, before)
        yield


def _call(handler: Callable[[], None], _number: int, _frame: object) -> None:
    handler()
