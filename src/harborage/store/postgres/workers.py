"""Which workers are alive, by two signs: a lock that ends with their process, and a beat that stands still when they
freeze.

The lock is an advisory one, on a connection of its own: the server lets go of it as soon as that connection ends. A
connection may also end while its process lives, so a lock has to be missing twice before it counts, and whoever has
just lost its own connection waits with its judgement: the server may have been away. No two clocks are compared: who
looks notes on its own monotonic clock since when it has seen the same beat. Whoever is thought dead and is not finds
its runs with another worker, and its fences keep it from writing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from harborage.state.errors import DatabaseError
from harborage.state.postgres.driver import fault_of
from harborage.store.errors import WorkerKnownError
from harborage.store.postgres.statements import SQL, bound, fetch, fetchval

if TYPE_CHECKING:
    from harborage.clock import Timers
    from harborage.state.postgres.database import Database
    from harborage.state.postgres.driver import Connection

LEASE: Final = timedelta(seconds=60)

_GRACE_S: Final = 0.3
_GRACE_AFTER_BREAK_S: Final = 2.0
_BREAK_S: Final = 10.0
_LONGEST_GAP_S: Final = 30.0

_logger = logging.getLogger(__name__)


class _Seen(NamedTuple):
    """The row and the beat of another worker, since when they have been these, and since when its lock is missing.

    A worker that was taken for dead has another row when it begins anew, and its beats begin anew, too.
    """

    num: int
    beat: int
    since: float
    missing_since: float | None


class Workers:
    """The workers of this process on one database, and what it knows of the others.

    `notify` is called when runs may have become free, or when a worker died that may have owed a notice.
    """

    def __init__(self, database: Database, notify: Callable[[], None], clock: Timers, lease: timedelta = LEASE) -> None:
        self._database = database
        self._notify = notify
        self._clock = clock
        self._lease_s = lease.total_seconds()
        self._locks = _Locks(database)
        self._seen: dict[str, _Seen] = {}
        self._looked_at: float | None = None
        self._joined: set[str] = set()
        self._broke_at: float | None = None

    async def join(self, worker: str) -> None:
        """Begin to be a worker under this name; runs that no worker holds become free.

        Raises:
            WorkerKnownError: another process works under it.
        """
        if worker in self._joined:
            raise WorkerKnownError(f"this process is the worker {worker} already")
        if not await self._locks.take(worker):
            raise WorkerKnownError(f"another process is the worker {worker}; choose another name")
        await self._sign(worker)
        await self._free_strays()
        self._joined.add(worker)

    async def beat(self, worker: str) -> int:
        """Give the worker's sign of life, and free the runs of the dead; how many runs became free."""
        await self._locks.ping()
        freed = await self.look(worker)
        await self._sign(worker)
        return freed + await self._free_strays()

    async def look(self, worker: str) -> int:
        """Free the runs of the workers that died; how many became free. It writes nothing unless one has."""
        if not await self._locks.renew():
            self._broke_at = self._clock.monotonic()
        freed = 0
        for name, seen in self._dead(await fetch(self._database, SQL["others"], worker=worker)):
            _logger.info("worker %s is dead; its runs are free", name)
            if await fetchval(self._database, SQL["bury"], num=seen.num, beat=seen.beat) is not None:
                freed += len(await fetch(self._database, SQL["free"], worker=name))
                self._notify()  # also where it held none: its process may have died between a commit and its notice
        return freed

    async def leave(self, worker: str) -> None:
        """Be a worker no longer, and give its runs back. Nothing changes for one that is none of this process."""
        self._joined.discard(worker)
        if not self._locks.wants(worker):
            return
        try:
            await fetch(self._database, SQL["leave"], worker=worker)
            if await fetch(self._database, SQL["free"], worker=worker):
                self._notify()
        finally:
            await self._locks.drop(worker)

    def close(self) -> None:
        """Let go of all locks: a worker that has not left is dead to others."""
        self._locks.close()

    async def _free_strays(self) -> int:
        """Free the runs of workers that have no row: the process that removed it died before it freed the runs."""
        freed = len(await fetch(self._database, SQL["free_strays"]))
        if freed:
            self._notify()
        return freed

    async def is_back(self, worker: str) -> bool:
        """Let a worker of this process that was taken for dead be one again; False for one that has not joined."""
        if worker in self._joined:
            await self._sign(worker)
        return worker in self._joined

    async def _sign(self, worker: str) -> None:
        is_locking = self._locks.holds(worker)
        await fetch(self._database, SQL["beat"], worker=worker, is_locking=is_locking)

    def _dead(self, others: Any) -> list[tuple[str, _Seen]]:
        now = self._clock.monotonic()
        is_shaken = self._broke_at is not None and now - self._broke_at < _BREAK_S
        grace_s = _GRACE_AFTER_BREAK_S if is_shaken else _GRACE_S
        if self._looked_at is not None and now - self._looked_at > min(_LONGEST_GAP_S, self._lease_s / 2):
            self._seen = {}  # this process was frozen itself, perhaps with the whole machine: it has seen nothing
        self._looked_at = now
        self._seen = {
            name: _seen(self._seen.get(name), num, beat, is_locked, now) for name, num, beat, is_locked in others
        }
        return [
            (name, seen)
            for name, seen in self._seen.items()
            if now - seen.since > self._lease_s
            or (seen.missing_since is not None and now - seen.missing_since >= grace_s)
        ]


def _seen(known: _Seen | None, num: int, beat: int, is_locked: bool, now: float) -> _Seen:
    if known is None or (known.num, known.beat) != (num, beat):
        return _Seen(num, beat, now, None if is_locked else now)
    missing_since = known.missing_since if known.missing_since is not None else now
    return _Seen(num, beat, known.since, None if is_locked else missing_since)


class _Locks:
    """The locks of this process, on one connection that is opened when it is needed, and again when it has broken."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: Connection | None = None
        self._wanted: set[str] = set()
        self._held: set[str] = set()
        self._turn = asyncio.Lock()

    def holds(self, worker: str) -> bool:
        """Whether the worker's lock is held here."""
        return worker in self._held

    def wants(self, worker: str) -> bool:
        """Whether the worker's lock was taken here and not dropped since, even if its connection has broken."""
        return worker in self._wanted

    async def take(self, worker: str) -> bool:
        """Hold the worker's lock until `drop`; False when another process does."""
        async with self._turn:
            if worker in self._held:
                return True
            is_taken = await self._take(worker)
            if is_taken:
                self._wanted.add(worker)
            return is_taken

    async def renew(self) -> bool:
        """Take the locks again that were lost with their connection; False when there were any."""
        async with self._turn:
            lost = self._wanted - self._held
            for worker in lost:
                try:
                    if not await self._take(worker):
                        _logger.warning("worker %s has lost its lock, and another process has taken its name", worker)
                except DatabaseError as error:
                    _logger.warning("worker %s has no lock, and is known by its beat alone: %s", worker, error)
            return not lost

    async def drop(self, worker: str) -> None:
        """Let go of the worker's lock."""
        async with self._turn:
            self._wanted.discard(worker)
            if worker in self._held:
                self._held.discard(worker)
                if not self._held:
                    self.close()
                else:
                    await self._ask("unlock", worker)

    def close(self) -> None:
        """Let go of every lock."""
        self._held.clear()
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def ping(self) -> None:
        """Notice a connection that broke without a word: its locks are gone, too."""
        async with self._turn:
            for worker in tuple(self._held):
                try:
                    is_held = await self._ask("is_locked_here", worker)
                except DatabaseError as error:
                    _logger.warning("the lock of worker %s: %s", worker, error)
                    is_held = False
                if not is_held:
                    self.close()

    async def _take(self, worker: str) -> bool:
        """Take the lock; false when another process has it. Behind a pooler that mixes sessions none is held."""
        if not await self._ask("lock", worker):
            return False
        if await self._ask("is_locked_here", worker):
            self._held.add(worker)
        else:
            _logger.warning(
                "%s: a pooler hands out another session for each statement, so deaths are seen when a lease ends; "
                "connect to the server itself, or pool whole sessions",
                self._database.address,
            )
        return True

    async def _ask(self, name: str, worker: str) -> bool:
        """The answer of a statement about a worker's lock, on the connection that holds the locks.

        Raises:
            DatabaseError: there is no such connection, or it broke.
        """
        if self._connection is None:
            self._connection = connection = await self._database.connect()
            connection.add_termination_listener(self._lost)
        connection = self._connection
        sent, given = bound(SQL[name], {"worker": worker})
        try:
            return bool(await connection.fetchval(sent, *given))
        except Exception as error:
            fault = fault_of(error)
            if fault is None:
                raise
            self.close()
            raise fault.kind(self._database.address, fault.said) from error

    def _lost(self, connection: Any) -> None:
        if connection is self._connection:
            self._connection = None
            self._held.clear()
