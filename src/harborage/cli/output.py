"""Where a run is shown and where its answer goes: this process's own streams, and whether a person can be asked.

What is written to a terminal or a log is handed to a thread: a terminal takes a few thousand bytes ahead of its reader
(Ctrl-S, a pager, a connection that hangs), and a run must not wait for that reader.
"""

from __future__ import annotations

import io
import os
import sys
import threading
from contextlib import suppress
from typing import IO, BinaryIO, Final, TextIO, cast

import msgspec
from rich.console import Console

from harborage.cli.keyboard import can_ask
from harborage.cli.screen import LiveScreen, PlainScreen, Region, Screen
from harborage.cli.session import Terminal
from harborage.cli.status import CANCELLED, FAILED, Ending, result_line
from harborage.cli.terminal import look_of
from harborage.cli.text import printable
from harborage.codec import UnserializableError
from harborage.errors import HarborageError
from harborage.events import Event, encode_wire

_STDIN, _STDOUT, _STDERR = 0, 1, 2
_LOG_COLUMNS = 240
_DRAIN_S = 1.0


class OutputLostError(HarborageError):
    """Standard output cannot be written: its reader is gone, or its disk is full."""


class Style(msgspec.Struct, frozen=True, kw_only=True):
    """How a run is shown."""

    is_json: bool = False
    is_quiet: bool = False
    has_tracebacks: bool = False


class Output:
    """Where a run is shown and where its answer goes.

    A run is shown on standard output when that is a terminal, else on standard error. Then standard output gets the
    answer alone: what tools and their subprocesses print goes to standard error.
    """

    def __init__(self, style: Style) -> None:
        self._style = style
        self._is_shared = os.isatty(_STDOUT) and not (style.is_json or style.is_quiet)
        self._answers = _own_stdout(is_shared=self._is_shared)
        self._stream = sys.stdout if self._is_shared else sys.stderr
        self._background = _open_background(self._stream)
        self._is_terminal = os.isatty(_STDOUT if self._is_shared else _STDERR)
        self._console = Console(
            file=self._stream if self._background is None else cast(IO[str], self._background),
            highlight=False,
            markup=False,
            emoji=False,
            width=None if self._is_terminal else _LOG_COLUMNS,
        )

    @property
    def can_ask(self) -> bool:
        """Whether a person can be asked in this terminal."""
        return self._is_terminal and not self._style.is_json and can_ask(_STDIN)

    def terminal(self, queued: list[str] | None = None) -> Terminal:
        """Return the terminal for a session; `queued` gets the messages that are to follow the answer."""
        style = self._style
        is_plain = self._console.is_dumb_terminal or bool(os.environ.get("HARBORAGE_PLAIN"))
        is_live = self._is_terminal and not (style.is_json or style.is_quiet or is_plain)
        return Terminal(
            open_screen=self._live if is_live else self._plain,
            exit_now=lambda: self.exit_now(CANCELLED),
            keys=_STDIN if self.can_ask else None,
            is_echoing=not is_live,
            write=None if self._background is None else self._background.write,
            on_event=self._write_event if style.is_json else None,
            height=lambda: self._console.height,
            queue=None if queued is None else queued.append,
            queued=() if queued is None else queued,
        )

    def notes(self) -> Screen:
        """Return the screen for lines between the runs of a conversation."""
        return self._plain(lambda _: ())

    def finish(self, ending: Ending, run_id: str = "") -> int:
        """Write the answer, or what went wrong; returns the exit code."""
        if self._style.is_json:
            self._drain()
            self._write(result_line(ending, run_id))
        elif ending.answer:
            if self._is_shared:
                self._console.print()
            self._drain()
            self._write(self._shown(ending).encode())
        self._drain()
        if ending.code:
            self._error(ending)
        return ending.code

    def _shown(self, ending: Ending) -> str:
        """The answer as its reader wants it: a person sees Markdown rendered, everything else gets it as it is."""
        if not os.isatty(self._answers.fileno()):
            return ending.answer
        answer, look = printable(ending.answer), look_of(sys.stdout, os.environ)
        is_text = isinstance(ending.payload, str) or ending.payload == {"answer": ending.answer}
        if not is_text or self._console.is_dumb_terminal or os.environ.get("HARBORAGE_PLAIN"):
            return answer
        from harborage.cli.markdown import render_markdown  # loaded for the first answer that a person reads

        return look.plain(render_markdown(answer, self._console.width, has_colour=look.has_colour)).rstrip("\n")

    def exit_now(self, code: int) -> None:
        """End the process now, whatever runs in it, even if its output has no reader."""
        if self._drain(_DRAIN_S):
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
        os._exit(code)

    def report_lost(self, error: OutputLostError) -> int:
        """Say that the answer cannot be written, unless its reader closed the pipe; nothing is written after that."""
        if not isinstance(error.__cause__, BrokenPipeError):
            _write_error(f"harborage: {error}")
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for number in (_STDOUT, self._answers.fileno()):
            os.dup2(nowhere, number)
        return FAILED

    def _error(self, ending: Ending) -> None:
        if ending.reason == "waiting":
            _write_error(look_of(sys.stderr, os.environ).plain(f"◆ waiting · {printable(ending.why)}"))
            return
        if ending.reason == "detached":
            _write_error(printable(ending.why))
            return
        has_more = ending.is_unexplained and not self._style.has_tracebacks
        _write_error(f"harborage: {printable(ending.message)}{' (--debug shows where)' if has_more else ''}")

    def _live(self, region: Region) -> Screen:
        self._stream.flush()  # what was printed so far, since this writes beside it
        return LiveScreen(self._console, region, self._background, translate=look_of(self._stream, os.environ).plain)

    def _plain(self, region: Region) -> Screen:
        return PlainScreen(self._console, is_quiet=self._style.is_json or self._style.is_quiet)

    def _drain(self, timeout_s: float | None = None) -> bool:
        """Wait until everything is written to the terminal, because the next write goes past the background thread."""
        return self._background is None or self._background.drain(timeout_s)

    def _write_event(self, event: Event) -> None:
        try:
            line = encode_wire(event)
        except UnserializableError as error:
            line = msgspec.json.encode({"type": event.type, "sequence": event.sequence, "error": str(error)})
        self._write(line)

    def _write(self, line: bytes) -> None:
        try:
            sys.stdout.flush()
            self._answers.write(line + b"\n")
            self._answers.flush()
        except OSError as error:
            raise OutputLostError(f"the output cannot be written: {error.strerror or error}") from error


def _write_error(line: str) -> None:
    """Write a line to standard error, if that can be written."""
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def _open_background(stream: TextIO) -> BackgroundStream | None:
    """Return a background stream for a stream with a file descriptor; None for a substitute without one."""
    try:
        return BackgroundStream(stream)
    except io.UnsupportedOperation:
        return None


def _own_stdout(*, is_shared: bool) -> BinaryIO:
    """Return standard output for the answer alone; unless it is shared, all other writes go to standard error."""
    if is_shared:
        return sys.stdout.buffer
    own = os.dup(_STDOUT)
    sys.stdout.flush()
    os.dup2(_STDERR, _STDOUT)
    return os.fdopen(own, "wb")


_AHEAD: Final = 16 * 1024


class BackgroundStream(io.TextIOBase):
    """A stream whose writes never block: a thread writes the text to `stream`, in order, as fast as it is read.

    Safe for several threads and for signal handlers. Once a write has failed, `write` raises that error.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._fd = stream.fileno()
        self._changed = threading.Condition()  # reentrant, as a signal handler needs it
        self._pending: list[bytes] = []
        self._size = 0
        self._error: OSError | None = None
        self._thread: threading.Thread | None = None

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of the underlying stream."""
        return self._stream.encoding

    @property
    def is_behind(self) -> bool:
        """Whether more than 16 KB wait to be written, so that what can be shown later should wait."""
        return self._size > _AHEAD

    def fileno(self) -> int:
        return self._fd

    def isatty(self) -> bool:
        return os.isatty(self._fd)

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        data = text.encode(self._stream.encoding, self._stream.errors or "strict")
        with self._changed:
            if self._error is not None:
                raise self._error
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="harborage-output", daemon=True)
                self._thread.start()
            self._pending.append(data)
            self._size += len(data)
            self._changed.notify_all()
        return len(text)

    def drain(self, timeout_s: float | None = None) -> bool:
        """Wait until everything is written or a write has failed; False when that takes longer than `timeout_s`."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._size, timeout_s)

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pending)
                data = b"".join(self._pending)
                self._pending.clear()
            try:
                _write_all(self._fd, data)
            except OSError as error:
                with self._changed:
                    self._error = error
                    self._size = 0
                    self._pending.clear()
                    self._changed.notify_all()
                return
            with self._changed:
                self._size -= len(data)
                self._changed.notify_all()


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
