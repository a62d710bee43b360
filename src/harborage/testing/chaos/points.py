"""Moments at which a process kills itself as `kill -9` would: before and after every call of its storage, every commit
of SQLite, and everything it asks of the outside.
"""

from __future__ import annotations

import inspect
import os
import signal
from itertools import count
from typing import Any, cast

from harborage.state.storage import Storage

__all__ = ["Points", "watch_commits", "watched"]

# Until it is cancelled; closing is not a moment of a run.
_LONG = frozenset({"keep_alive", "aclose"})


class Points:
    """Counts the moments, and dies at the one of that number; 0 never."""

    def __init__(self, kill_at: int) -> None:
        self._kill_at = kill_at
        self._numbers = count(1)

    def reach(self) -> None:
        """One moment has come; from any thread."""
        if next(self._numbers) == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)


class _Watched:
    """A port of the storage, each call of which begins and ends with a moment."""

    def __init__(self, inner: Any, points: Points) -> None:
        self._inner = inner
        self._points = points

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name in _LONG or not inspect.iscoroutinefunction(found):
            return found

        async def call(*args: Any, **options: Any) -> Any:
            self._points.reach()
            result = await found(*args, **options)
            self._points.reach()
            return result

        setattr(self, name, call)
        return call


def watched(storage: Storage, points: Points) -> Storage:
    """The storage with moments around every call."""
    parts: dict[int, Any] = {}

    def watch(port: Any) -> Any:
        return parts.setdefault(id(port), _Watched(port, points))

    return Storage(
        state=watch(storage.state),
        runs=watch(storage.runs),
        queue=watch(storage.queue),
        events=watch(storage.events),
        beneath=storage,
    )


def watch_commits(points: Points) -> None:
    """Let every transaction that this process commits with SQLite have a moment before and after."""
    import apsw

    def connected(connection: apsw.Connection) -> None:
        connection.set_commit_hook(committing)
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, finished)

    def committing() -> bool:
        points.reach()
        return False

    def finished(event: dict[str, Any]) -> None:
        if str(event.get("sql", "")).lstrip().upper().startswith("COMMIT"):
            points.reach()

    cast("list[Any]", apsw.connection_hooks).append(connected)
