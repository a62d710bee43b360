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
from harborage.cli.outcome import CANCELLED, FAILED, Ending, result_line
from harborage.cli.screen import LiveScreen, PlainScreen, Region, Screen
from harborage.cli.session import Stage
from harborage.cli.text import printable
from harborage.codec import UnserializableError
from harborage.errors import HarborageError
from harborage.events import Event, encode_wire

__all__ = ["Outlet", "Output", "OutputLostError", "Style"]

_STDIN, _STDOUT, _STDERR = 0, 1, 2
_LOG_COLUMNS = 240
_PATIENCE_S = 1.0


class OutputLostError(HarborageError):
    """Standard output does not take what is written to it."""


class Style(msgspec.Struct, frozen=True, kw_only=True):
    """How a run is shown."""

    is_json: bool = False
    is_quiet: bool = False
    has_tracebacks: bool = False


class Output:
    """Where a run is shown and its answer goes.

    People look at standard output when it is a terminal, else at standard error. Where it is not theirs it carries the
    answer alone: what tools and their children print goes to standard error.
    """

    def __init__(self, style: Style) -> None:
        self._style = style
        self._is_shared = os.isatty(_STDOUT) and not (style.is_json or style.is_quiet)
        self._answers = _own_stdout(is_shared=self._is_shared)
        self._stream = sys.stdout if self._is_shared else sys.stderr
        self._outlet = _outlet(self._stream)
        self._is_terminal = os.isatty(_STDOUT if self._is_shared else _STDERR)
        self._console = Console(
            file=self._stream if self._outlet is None else cast(IO[str], self._outlet),
            highlight=False,
            markup=False,
            emoji=False,
            width=None if self._is_terminal else _LOG_COLUMNS,
        )

    @property
    def can_ask(self) -> bool:
        """Whether somebody sits there who can be asked."""
        return self._is_terminal and not self._style.is_json and can_ask(_STDIN)

    def stage(self) -> Stage:
        """Where a session plays."""
        style = self._style
        is_live = self._is_terminal and not (style.is_json or style.is_quiet or self._console.is_dumb_terminal)
        return Stage(
            open_screen=self._live if is_live else self._plain,
            leave=lambda: self.leave(CANCELLED),
            keys=_STDIN if self.can_ask else None,
            is_echoing=not is_live,
            write=None if self._outlet is None else self._outlet.write,
            tell=self._tell if style.is_json else None,
        )

    def end(self, ending: Ending, run_id: str = "") -> int:
        """Tell how it ended; returns the exit code."""
        if self._style.is_json:
            self._drain()
            self._write(result_line(ending, run_id))
        elif ending.answer:
            is_seen = os.isatty(self._answers.fileno())
            if self._is_shared:
                self._console.print()
            self._drain()
            self._write((printable(ending.answer) if is_seen else ending.answer).encode())
        self._drain()
        if ending.code:
            self._error(ending)
        return ending.code

    def leave(self, code: int) -> None:
        """End the process now, whatever still runs in it, and even where nobody reads what it has to say."""
        if self._drain(_PATIENCE_S):
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
        os._exit(code)

    def gone(self, error: OutputLostError) -> int:
        """The answer cannot be written; a reader that went away on purpose needs no word. Nothing is written after."""
        if not isinstance(error.__cause__, BrokenPipeError):
            _complain(f"harborage: {error}")
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for number in (_STDOUT, self._answers.fileno()):
            os.dup2(nowhere, number)
        return FAILED

    def _error(self, ending: Ending) -> None:
        is_traced = ending.is_strange and not self._style.has_tracebacks
        _complain(f"harborage: {printable(ending.told)}{' (--debug shows where)' if is_traced else ''}")

    def _live(self, region: Region) -> Screen:
        self._stream.flush()  # what was printed so far, since this writes beside it
        return LiveScreen(self._console, region, self._outlet)

    def _plain(self, region: Region) -> Screen:
        return PlainScreen(self._console, is_quiet=self._style.is_json or self._style.is_quiet)

    def _drain(self, timeout_s: float | None = None) -> bool:
        """Wait until people can have read everything: what comes now is written beside it."""
        return self._outlet is None or self._outlet.drain(timeout_s)

    def _tell(self, event: Event) -> None:
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


def _complain(line: str) -> None:
    """Write to standard error; when nobody is there to read it, nobody can be told."""
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def _outlet(stream: TextIO) -> Outlet | None:
    """The way to a stream that is a file of this process; None for what stands in for one."""
    try:
        return Outlet(stream)
    except io.UnsupportedOperation:
        return None


def _own_stdout(*, is_shared: bool) -> BinaryIO:
    """Standard output for the answer alone; unless it is shared, everybody else writes to standard error instead."""
    if is_shared:
        return sys.stdout.buffer
    own = os.dup(_STDOUT)
    sys.stdout.flush()
    os.dup2(_STDERR, _STDOUT)
    return os.fdopen(own, "wb")


_AHEAD: Final = 16 * 1024


class Outlet(io.TextIOBase):
    """A stream to write to that never blocks. Everything is written in its order, as fast as `stream` takes it.

    Safe for several threads, and for signal handlers. Once `stream` has refused, `write` raises that error.
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
        """The encoding of the stream beneath."""
        return self._stream.encoding

    @property
    def is_behind(self) -> bool:
        """Whether so much is waiting to be read that what can be shown later should be."""
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
                self._thread = threading.Thread(target=self._serve, name="harborage-outlet", daemon=True)
                self._thread.start()
            self._pending.append(data)
            self._size += len(data)
            self._changed.notify_all()
        return len(text)

    def drain(self, timeout_s: float | None = None) -> bool:
        """Wait until everything is written, or can never be; False when that took longer than `timeout_s`."""
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
