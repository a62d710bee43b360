"""What is written to a terminal or a log, handed to a thread: one that nobody reads holds up no run.

A terminal takes a few thousand bytes ahead of its reader (Ctrl-S, a pager, a connection that hangs), and whoever writes
more waits. This file knows nothing of what is written.
"""

from __future__ import annotations

import io
import os
import threading
from typing import Final, TextIO

__all__ = ["Outlet"]

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
