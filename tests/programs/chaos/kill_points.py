"""Moments at which a process kills itself as `kill -9` would: before and after every call of its storage, every commit
of SQLite, every statement of Postgres, and everything it asks of the outside.
"""

from __future__ import annotations

import inspect
import os
import signal
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any, Final, cast

from harborage.state.storage import Storage
from harborage.store.errors import LeaseLostError

STORE_CALLS: Final = ("commit", "claim", "unread", "next_due", "runs", "pauses")
"""The calls of the store in the life of any run."""

_KINDS: Final = (
    *(f"{when} {what}" for what in STORE_CALLS for when in ("before", "after")),
    *(f"{when} {what}" for what in ("keyed", "write", "ask") for when in ("before", "in", "after")),
    *("before begun", "after begun"),
)
"""The names of moments in the life of any run, whatever database it is in."""

_KINDS_OF_SQLITE: Final = ("before COMMIT", "after COMMIT")
_KINDS_OF_POSTGRES: Final = ("after SELECT", "after WITH")

# Until it is cancelled; closing is not a moment of a run.
_LONG = frozenset({"join", "beat", "look", "leave", "aclose"})


def kinds_of(url: str) -> tuple[str, ...]:
    """The names of moments in the life of any run that is in the database of this url."""
    return _KINDS + (_KINDS_OF_SQLITE if url.startswith("sqlite:") else _KINDS_OF_POSTGRES)


class KillPoints:
    """Counts the moments, and dies at the one of that number, 0 for never; its name is then the last line of `log`.

    With `kind` only moments of that name count.
    """

    def __init__(self, kill_at: int = 0, *, kind: str = "", log: str = "") -> None:
        self._kill_at = kill_at
        self._kind = kind
        self._numbers = count(1)
        self._log = log

    def reach(self, name: str) -> None:
        """One moment has come; from any thread."""
        if self._kind and name != self._kind:
            return
        if next(self._numbers) != self._kill_at:
            return
        if self._log:
            with Path(self._log).open("a") as log:
                log.write(f"{name}\n")
        os.kill(os.getpid(), signal.SIGKILL)


class _Watched:
    """A port of the storage, each call of which begins and ends with a moment; `lost` hears of refused changes."""

    def __init__(self, inner: Any, points: KillPoints, lost: Callable[[LeaseLostError], None]) -> None:
        self._inner = inner
        self._points = points
        self._lost = lost

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name in _LONG or not inspect.iscoroutinefunction(found):
            return found

        async def call(*args: Any, **options: Any) -> Any:
            self._points.reach(f"before {name}")
            try:
                result = await found(*args, **options)
            except LeaseLostError as error:
                self._lost(error)
                raise
            self._points.reach(f"after {name}")
            return result

        setattr(self, name, call)
        return call


def watched(storage: Storage, points: KillPoints, lost: Callable[[LeaseLostError], None]) -> Storage:
    """The storage with moments around every call."""
    parts: dict[int, Any] = {}

    def watch(port: Any) -> Any:
        return parts.setdefault(id(port), _Watched(port, points, lost))

    return Storage(
        state=watch(storage.state),
        store=watch(storage.store),
        artifacts=storage.artifacts,
        artifact_folder=storage.artifact_folder,
        beneath=storage,
    )


def watch_commits(points: KillPoints) -> None:
    """Let every transaction that this process commits with SQLite have a moment before and after."""
    import apsw

    def connected(connection: apsw.Connection) -> None:
        connection.set_commit_hook(committing)
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, finished)

    def committing() -> bool:
        points.reach("before COMMIT")
        return False

    def finished(event: dict[str, Any]) -> None:
        if str(event.get("sql", "")).lstrip().upper().startswith("COMMIT"):
            points.reach("after COMMIT")

    cast("list[Any]", apsw.connection_hooks).append(connected)


def watch_statements(points: KillPoints) -> None:
    """Let every statement that Postgres has answered this process be a moment, those that end a transaction too."""
    driver: Any = import_module("asyncpg")
    connect = driver.connect

    def answered(record: Any) -> None:
        sql = " ".join(line for line in str(record.query).splitlines() if not line.startswith("--"))
        points.reach(f"after {sql.split(maxsplit=1)[0].upper()}")

    @wraps(connect)
    async def connected(*args: Any, **options: Any) -> Any:
        connection = await connect(*args, **options)
        connection.add_query_logger(answered)
        return connection

    driver.connect = connected
