"""The network, forbidden for a while: whoever opens a connection inside the block gets an error that names the code.

By default only what runs in the block is kept from the network: this task, and the tasks and threads that it starts.
With `everywhere` the whole process is, which is right for a process that does nothing else.
"""

from __future__ import annotations

import socket
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final

from harborage.errors import HarborageError

__all__ = ["Attempts", "OfflineError", "offline"]

_INSIDE: ContextVar[Attempts | None] = ContextVar("harborage_offline", default=None)
_GUARDED: Final = ("connect", "connect_ex", "bind", "sendto", "sendmsg")
_RESOLVERS: Final = ("getaddrinfo", "gethostbyname", "gethostbyname_ex", "create_connection")
_PLUMBING: Final = ("socket.py", "selectors.py", "ssl.py", "threading.py", "queue.py", "contextlib.py", "runners.py")


class OfflineError(HarborageError):
    """Something tried to use the network where there is none. `culprit` is the code that did, as `file:line function`."""

    def __init__(self, culprit: str = "", what: str = "") -> None:
        self.culprit = culprit
        self.what = what
        super().__init__(f"{culprit} tried to use the network ({what}), which is forbidden here" if culprit else "")


class Attempts:
    """What tried to use the network meanwhile, in order; each of them was refused."""

    def __init__(self) -> None:
        self.refused: list[OfflineError] = []


class _Guard:
    """Stands in for the parts of `socket` that reach out, as long as at least one block wants it to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks = 0
        self._process: list[Attempts] = []
        self._originals: list[tuple[Any, str, Any]] = []

    def enter(self, attempts: Attempts, everywhere: bool) -> None:
        with self._lock:
            self._blocks += 1
            if everywhere:
                self._process.append(attempts)
            if self._blocks == 1:
                self._install()

    def leave(self, attempts: Attempts, everywhere: bool) -> None:
        with self._lock:
            self._blocks -= 1
            if everywhere:
                self._process.remove(attempts)
            if not self._blocks:
                for owner, name, original in self._originals:
                    if original is None:
                        delattr(owner, name)
                    else:
                        setattr(owner, name, original)
                self._originals.clear()

    def _install(self) -> None:
        for name in _GUARDED:
            self._replace(socket.socket, name, is_method=True)
        for name in _RESOLVERS:
            self._replace(socket, name, is_method=False)

    def _replace(self, owner: Any, name: str, *, is_method: bool) -> None:
        inner = getattr(owner, name)
        # What a class inherits is not its own: it is given back by taking ours away.
        self._originals.append((owner, name, vars(owner).get(name)))

        def guarded(*args: Any, **options: Any) -> Any:
            self._check(name, args[1:] if is_method else args, args[0] if is_method else None)
            return inner(*args, **options)

        setattr(owner, name, guarded)

    def _check(self, name: str, args: tuple[Any, ...], sock: Any) -> None:
        attempts = _INSIDE.get() or (self._process[-1] if self._process else None)
        if attempts is None or (sock is not None and sock.family not in _NETWORK and name == "bind"):
            return
        error = OfflineError(_culprit(), f"{name} {_address(args)}".strip())
        attempts.refused.append(error)
        raise error


_NETWORK: Final = (socket.AF_INET, socket.AF_INET6)
_GUARD: Final = _Guard()


@contextmanager
def offline(*, everywhere: bool = False) -> Iterator[Attempts]:
    """Refuse the network inside the block; what tried to use it is in the value that the block is given.

    Connections that are open already stay open. Blocks may nest and overlap.
    """
    attempts = Attempts()
    _GUARD.enter(attempts, everywhere)
    token = _INSIDE.set(attempts)
    try:
        yield attempts
    finally:
        _INSIDE.reset(token)
        _GUARD.leave(attempts, everywhere)


def _culprit() -> str:
    """The code that reached out: the innermost that is nobody's plumbing, and who had called it from outside."""
    frames = [one for one in traceback.extract_stack(sys._getframe(2)) if not _is_plumbing(one.filename)]
    if not frames:
        return "something"
    near = frames[-1]
    own = next((one for one in reversed(frames) if "site-packages" not in one.filename), near)
    told = f"{_short(near.filename)}:{near.lineno} {near.name}"
    return told if own is near else f"{told} (called from {_short(own.filename)}:{own.lineno} {own.name})"


def _is_plumbing(file: str) -> bool:
    path = Path(file)
    return path == _THIS or path.name in _PLUMBING or "asyncio" in path.parts or file.startswith("<")


_THIS: Final = Path(__file__)


def _short(file: str) -> str:
    path = Path(file)
    for root in ("site-packages", "src"):
        if root in path.parts:
            return str(Path(*path.parts[path.parts.index(root) + 1 :]))
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _address(args: tuple[Any, ...]) -> str:
    """Where it wanted to go; a host and a port, and nothing that was to be sent."""
    places = [one for one in args if isinstance(one, tuple) and len(one) >= 2]
    if places:
        return f"{places[0][0]}:{places[0][1]}"
    return next((str(one) for one in args if isinstance(one, str)), "")
