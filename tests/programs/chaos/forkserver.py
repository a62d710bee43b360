"""Starts workers fast: one process loads everything once, and each worker is a fork of it.

It does nothing else, has one thread and no event loop, so a fork of it is a clean process. Workers that die are taken
care of by the system; the story that started them watches them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import traceback
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from tests.programs.chaos.worker import Orders, work

_ROOT = Path(__file__).resolve().parents[3]


class ForkServer:
    """The process that workers come from, until the end of the `with` block."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.programs.chaos.forkserver"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=_ROOT)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()

    def start(self, orders: Orders) -> int:
        """Start a worker; its process id."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(orders) + b"\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


def _fork(line: bytes) -> int:
    """A child that works; in the parent its id."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        sys.stdin.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        work(msgspec.json.decode(line, type=Orders))
        code = 0
    except BaseException:  # noqa: BLE001 - a child must not go on as its parent
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _live() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for driver in ("apsw", "asyncpg"):  # once, not in every worker
        with suppress(ImportError):
            import_module(driver)
    for line in sys.stdin.buffer:
        pid = _fork(line)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _live()
