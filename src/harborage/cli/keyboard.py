"""Input from the terminal: keys edited into lines, a text edited in $EDITOR, signals, and Ctrl-Z with fg.

The terminal is read by the event loop, without a thread that could keep the process alive, and restored afterwards.
What a line means is decided elsewhere.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import re
import shlex
import signal
import tempfile
import termios
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from harborage.errors import HarborageError

_READ_BYTES = 4096
_ESCAPE = "\x1b"
_ALONE_S = 0.05
_LFLAG, _CC = 3, 6


def can_ask(fd: int) -> bool:
    """Whether a person can be asked: `fd` is a terminal, and this process is in its foreground."""
    try:
        return os.isatty(fd) and os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return False


def _has_other_job(fd: int) -> bool:
    """Whether another job is in the foreground: changing the terminal now would stop this process."""
    try:
        return os.tcgetpgrp(fd) != os.getpgrp()
    except OSError:
        return False  # not this process's own terminal, or gone


class Keyboard:
    """Reads the terminal `fd`: finished lines go to `on_line`; `on_change` is called after each key press.

    While it is open it echoes nothing unless `is_echoing`, and the program's own standard input is empty, so that no
    tool reads the keys. `on_gone` is called when the terminal is gone. Control sequences go through `write` if it is
    given, so that they keep their order among other output.
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
        """Read the terminal inside a block, in a running event loop."""
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
        """Lend the terminal to another program inside a block; yields the descriptor that it reads."""
        self._unlisten()
        try:
            yield self._own
        finally:
            self._listen()

    def renew(self) -> None:
        """Set the terminal's mode again, because a shell may have changed it."""
        if self._own >= 0 and not _has_other_job(self._own):
            self._set_mode()

    def close(self) -> None:
        """Restore the terminal. Closing twice does nothing."""
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
            if not _has_other_job(self._own):
                # TCSANOW, because the terminal may never read what is written: see BackgroundStream.
                termios.tcsetattr(self._own, termios.TCSANOW, self._before)
        except (OSError, termios.error):
            return  # the terminal is gone, so there is nothing to restore

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
        if data.endswith(_ESCAPE.encode()):
            asyncio.get_running_loop().call_later(_ALONE_S, self._flush_escape)
        self._on_change()

    def _flush_escape(self) -> None:
        self.editor.flush_escape()
        self._on_change()


@contextmanager
def handle_signals(
    handlers: Mapping[signal.Signals, Callable[[], None]], at_once: Mapping[signal.Signals, Callable[[], None]]
) -> Iterator[None]:
    """Handle signals inside a block, and restore the handlers of before.

    `handlers` are called by the event loop, `at_once` immediately, even while a tool blocks the loop.
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


PASTE_ON, PASTE_OFF = "\x1b[?2004h", "\x1b[?2004l"
"""Make the terminal mark pasted text, and stop that."""

_KEY = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[@-~]|[^\x1b\[O])|\x1b|[^\x1b]", re.DOTALL)
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|O)?$")
_PASTED, _PASTED_END = "\x1b[200~", "\x1b[201~"
_KEPT = 100


class LineEditor:
    """Edits one line of input: `feed` it what the terminal sent, and it returns the lines finished with Enter.

    `on_key` gets each key first, and says whether it was for it.

    The terminal echoes nothing while a run is shown, so that output and typing do not mix; the live region shows the
    `text` and the `cursor` instead.
    """

    def __init__(self) -> None:
        self.text = ""
        self.cursor = 0
        self.on_key: Callable[[LineEditor, str], bool] | None = None
        self._rest = ""
        self._is_pasting = False
        self._past: list[str] = []
        self._at = 0
        self._draft = ""

    def feed(self, data: str) -> list[str]:
        """Process keys; returns the finished lines, in order. A key that came in part waits for its rest."""
        data, self._rest = self._rest + data, ""
        unfinished = _UNFINISHED.search(data)
        if unfinished:
            data, self._rest = data[: unfinished.start()], unfinished.group()
        return [done for key in _KEY.findall(data) if (done := self._press(key)) is not None]

    def fill(self, text: str) -> None:
        """Replace the line by `text`, with the cursor at its end."""
        self.text = text
        self.cursor = len(text)

    def take(self) -> str:
        """Finish the line without Enter, and return it."""
        return self._finish()

    def flush_escape(self) -> None:
        """Press the Escape key, if that came alone and no other key has followed so far."""
        if self._rest == _ESCAPE:
            self._rest = ""
            self._press(_ESCAPE)

    def _press(self, key: str) -> str | None:
        if not self._is_pasting and self.on_key is not None and self.on_key(self, key):
            return None
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
                pass  # other keys do nothing

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


class EditorError(HarborageError):
    """The editor did not start, or ended with an error."""


def editor_command(environment: Mapping[str, str]) -> list[str]:
    """Return the words of `$VISUAL` or `$EDITOR`; empty when neither is set."""
    for name in ("VISUAL", "EDITOR"):
        if environment.get(name, "").strip():
            return shlex.split(environment[name])
    return []


async def edit_text(command: list[str], text: str, *, suffix: str, stdin: int) -> str:
    """Open the text in the editor and return it edited; the editor reads its keys from `stdin`.

    Raises:
        EditorError: there is no such editor, or it ended with an error.
    """
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", prefix="harborage-", suffix=suffix) as draft:
        draft.write(f"{text}\n")
        draft.flush()
        await _run([*command, draft.name], stdin)
        return _read(draft.name)


def _read(name: str) -> str:
    # By name, because an editor may replace the file.
    return Path(name).read_text("utf-8", "replace")


async def _run(command: list[str], stdin: int) -> None:
    try:
        process = await asyncio.create_subprocess_exec(*command, stdin=stdin)
    except OSError as error:
        raise EditorError(f"the editor {command[0]!r} did not start: {error.strerror or error}") from error
    code = await process.wait()
    if code:
        raise EditorError(f"the editor {command[0]!r} ended with code {code}; the text is unchanged")


def _stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


class Job:
    """This process as a job of its shell: Ctrl-Z stops it, `fg` resumes it, and each Ctrl-Z stops it once.

    With make in between, `fg` may come before Ctrl-Z was handled. Python then reports both signals together, the later
    one first; only the event loop knows their order. So `stop` and `resume` are for the loop's signal handlers, and
    `note_resumed` is for a handler that is called at once. `suspend` restores the terminal during the stop, `renew`
    sets it up again; neither is done while the terminal is lent to another program.
    """

    def __init__(
        self,
        *,
        suspend: Callable[[], AbstractContextManager[object]],
        renew: Callable[[], None],
        is_terminal_lent: Callable[[], bool],
        stop: Callable[[], None] = _stop,
    ) -> None:
        self._suspend = suspend
        self._renew = renew
        self._is_terminal_lent = is_terminal_lent
        self._halt = stop
        self._must_stop = False
        self._is_resumed = False

    def stop(self) -> None:
        """Ctrl-Z: stop after the signals that came with it."""
        self._must_stop = True
        asyncio.get_running_loop().call_soon(self._stop)

    def note_resumed(self) -> None:
        """fg: note it at once, because the event loop may handle it much later."""
        self._is_resumed = True

    def resume(self) -> None:
        """fg: set the terminal up again, which the shell may have used even if this process never stopped."""
        self._is_resumed = self._must_stop = False
        if not self._is_terminal_lent():
            self._renew()

    def _stop(self) -> None:
        if self._stops and not self._is_terminal_lent():
            with self._suspend():
                if self._stops:  # restoring the terminal takes a while, and fg may have come
                    self._halt()

    @property
    def _stops(self) -> bool:
        return self._must_stop and not self._is_resumed
