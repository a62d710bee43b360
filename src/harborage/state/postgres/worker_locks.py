"""How workers see each other die: each holds an advisory lock on a connection of its own, which ends with its process.

The server lets go of the lock as soon as that connection closes, so the others know within a fraction of a second. A
worker that is only frozen keeps its lock; it is found by its sign of life, which then does not change for as long as a
lease, by the clock of whoever looks. A worker that loses its lock is not dead, says so with its next sign, and takes a
new one: should it lose its runs meanwhile, their fences keep it from writing.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from harborage.errors import HarborageError
from harborage.state.errors import StoreClosedError
from harborage.state.postgres.database import PACKAGE, Database
from harborage.state.sql_files import read_statements

if TYPE_CHECKING:
    from harborage.state.postgres.driver import Connection

__all__ = ["Other", "Watch", "WorkerLock"]

_LOOK_S: Final = 0.15
_GRACE_S: Final = 0.4
_GRACE_AFTER_BREAK_S: Final = 2.0  # a server that was restarted has broken the connections of all
_LONGEST_GAP_S: Final = 2.0
_SHORTEST_BREAK_S: Final = 0.05
_LONGEST_BREAK_S: Final = 5.0
_NO_SESSION_S: Final = 60.0

_SQL = read_statements(PACKAGE, "statements/queue.sql")
_logger = logging.getLogger(__name__)


class Other(NamedTuple):
    """Another worker as one look shows it. `sign` changes with every sign of life; `lock_key` is None without a lock;
    `is_expired` is what the clock of the database says."""

    worker: str
    sign: datetime
    lock_key: int | None
    is_locked: bool
    is_expired: bool


class Watch:
    """Says who is dead, by what was seen from look to look."""

    def __init__(self, lease_s: float, grace_s: float) -> None:
        self._lease_s = lease_s
        self._grace_s = grace_s
        self._signs: dict[str, tuple[datetime, float]] = {}
        self._missing: dict[str, tuple[datetime, float]] = {}
        self._looked_at: float | None = None

    def dead(self, others: list[Other], now: float) -> list[Other]:
        """Those of `others` that are dead at `now`, in seconds of a clock that only goes up."""
        if self._looked_at is not None and now - self._looked_at > _LONGEST_GAP_S:
            # Whoever looks was frozen itself, perhaps with the whole machine: what it remembers says nothing.
            self._signs, self._missing = {}, {}
        self._looked_at = now
        self._signs = {one.worker: _since(self._signs, one, now) for one in others}
        unlocked = [one for one in others if one.lock_key is not None and not one.is_locked]
        self._missing = {one.worker: _since(self._missing, one, now) for one in unlocked}
        return [one for one in others if self._is_dead(one, now)]

    def _is_dead(self, one: Other, now: float) -> bool:
        if now - self._signs[one.worker][1] >= self._lease_s:
            return True
        if one.is_locked:
            return False
        missing = self._missing.get(one.worker)
        return one.is_expired or (missing is not None and now - missing[1] >= self._grace_s)


class WorkerLock:
    """The lock of one worker of this process. `key` is None while it holds none; `changed` is awaited when it changes,
    and `freed` when runs of the dead have become free."""

    def __init__(
        self,
        database: Database,
        worker: str,
        *,
        lease_s: float,
        changed: Callable[[], Awaitable[None]],
        freed: Callable[[], Awaitable[None]],
    ) -> None:
        self._database = database
        self._worker = worker
        self._lease_s = lease_s
        self._changed = changed
        self._freed = freed
        self.key: int | None = None

    async def hold(self) -> None:
        """Hold the lock and look at the others until cancelled; a connection that breaks is opened again."""
        break_s, grace_s = _SHORTEST_BREAK_S, _GRACE_S
        while not self._database.is_closed:
            try:
                connection = await self._database.connect()
            except StoreClosedError:
                return
            except HarborageError as error:
                _logger.warning(
                    "worker %s has no lock, and is known by its signs of life alone: %s", self._worker, error
                )
            else:
                break_s = await self._hold(connection, Watch(self._lease_s, grace_s))
                grace_s = _GRACE_AFTER_BREAK_S
            await asyncio.sleep(break_s)
            break_s = min(2 * break_s, _LONGEST_BREAK_S)

    async def _hold(self, connection: Connection, watch: Watch) -> float:
        """Hold the lock on this connection until it breaks; returns how long to wait for the next one."""
        key = secrets.randbits(63)
        try:
            await connection.fetchval(_SQL["lock"], key)
            if not await connection.fetchval(_SQL["is_locked_here"], key):
                _logger.warning(
                    "%s: a pooler hands out another session for each statement, so deaths are seen when a lease ends; "
                    "connect to the server itself, or pool whole sessions",
                    self._database.address,
                )
                return _NO_SESSION_S
            self.key = key
            await self._changed()
            while True:
                await self._look(connection, watch)
                await asyncio.sleep(_LOOK_S)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - a broken connection has many faces; the next one is on its way
            _logger.warning("the lock of worker %s: %s", self._worker, error)
            self.key = None
            await self._changed()
            return _SHORTEST_BREAK_S
        finally:
            self.key = None
            connection.terminate()

    async def _look(self, connection: Connection, watch: Watch) -> None:
        rows = await connection.fetch(_SQL["others"], self._worker)
        others = [Other(*_values(row)) for row in rows]
        freed = 0
        for one in watch.dead(others, time.monotonic()):
            _logger.info("worker %s is dead; its runs are free", one.worker)
            freed += await connection.fetchval(_SQL["bury"], one.worker, one.sign, one.lock_key)
        if freed:
            await self._freed()


def _since(known: dict[str, tuple[datetime, float]], one: Other, now: float) -> tuple[datetime, float]:
    """The sign of a worker, and since when it has been this one."""
    before = known.get(one.worker)
    return before if before is not None and before[0] == one.sign else (one.sign, now)


def _values(row: Any) -> tuple[Any, ...]:
    return row["worker"], row["expires_at"], row["lock_key"], row["is_locked"], row["is_expired"]
