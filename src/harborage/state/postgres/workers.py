"""Who lives, by two signs: a lock that ends with a worker's process, and a lease that ends when the process freezes.

A worker's lease is for all its runs at once. Whoever finds a worker dead frees its runs; the fence of each run keeps
the one who comes back too late from writing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta

from harborage.concurrency import Crew
from harborage.errors import HarborageError
from harborage.state.errors import StoreClosedError
from harborage.state.postgres.database import PACKAGE, Database
from harborage.state.postgres.worker_locks import WorkerLock
from harborage.state.sql_files import read_statements

__all__ = ["LEASE", "Workers"]

LEASE = timedelta(seconds=10)

_RENEWALS = 10 / 3  # in the time of one lease: two may be lost
_FREEING_S = 5.0
_SQL = read_statements(PACKAGE, "statements/queue.sql")

_logger = logging.getLogger(__name__)


class Workers:
    """The workers of one store. `told` is called when runs have become free."""

    def __init__(self, database: Database, told: Callable[[], Awaitable[None]], *, lease: timedelta = LEASE) -> None:
        self._database = database
        self._told = told
        self.lease = lease
        self._every_s = lease.total_seconds() / _RENEWALS
        self._signs: Counter[str] = Counter()
        self._known: set[str] = set()
        self._locks: dict[str, WorkerLock] = {}
        self._holding: dict[str, asyncio.Task[None]] = {}
        self._crew = Crew(lambda name, error: _logger.error("%s: %s", name, error))
        self._reborn: dict[str, asyncio.Event] = {}
        self._is_closing = asyncio.Event()

    async def meet(self, worker: str) -> None:
        """Know a worker that claims: from now on its runs are its own, not those of an earlier life under its name."""
        self._known.add(worker)
        if worker in self._reborn:
            await self._reborn[worker].wait()

    async def keep_alive(self, worker: str) -> None:
        """Renew the worker's lease until cancelled, whatever the database does meanwhile; then free its runs.

        Raises:
            StoreClosedError: the store was closed.
        """
        self._signs[worker] += 1
        try:
            if worker not in self._known:
                await self._be_born(worker)
            self._hold(worker)
            while not self._is_closing.is_set():
                is_signed = await self._try(self._sign(worker), worker)
                try:
                    async with asyncio.timeout(self._every_s if is_signed else self._every_s / 6):
                        await self._is_closing.wait()
                except TimeoutError:
                    continue
            raise StoreClosedError()
        finally:
            self._signs[worker] -= 1
            if self._signs[worker] <= 0:
                del self._signs[worker]
                await self._leave(worker)
                self._let_go(worker)

    async def aclose(self) -> None:
        """Free the runs of every worker that this store knows."""
        if self._is_closing.is_set():
            return
        for worker in tuple(self._known):
            await self._leave(worker)
        self._is_closing.set()
        await self._crew.aclose()

    async def _be_born(self, worker: str) -> None:
        """Free what a worker of this name carried in an earlier life; its claims wait for that."""
        self._known.add(worker)
        is_done = self._reborn[worker] = asyncio.Event()
        try:
            await self._try(self._free(worker), worker)
        finally:
            is_done.set()
            del self._reborn[worker]

    def _hold(self, worker: str) -> None:
        """Hold the worker's lock, if that is not done yet."""
        if worker in self._locks or self._is_closing.is_set():
            return

        async def changed() -> None:
            if worker in self._signs:
                await self._try(self._sign(worker), worker)

        lock = self._locks[worker] = WorkerLock(
            self._database, worker, lease_s=self.lease.total_seconds(), changed=changed, freed=self._told
        )
        self._holding[worker] = self._crew.start(lock.hold(), f"the lock of worker {worker}")

    def _let_go(self, worker: str) -> None:
        """Drop the worker's lock; the crew sees to the end of it."""
        self._locks.pop(worker, None)
        holding = self._holding.pop(worker, None)
        if holding is not None:
            holding.cancel()

    async def _leave(self, worker: str) -> None:
        if worker in self._known:
            self._known.discard(worker)
            await self._try(self._free(worker), worker)

    async def _sign(self, worker: str) -> None:
        lock = self._locks.get(worker)
        if await self._database.fetchval(_SQL["keep_alive"], worker, self.lease, None if lock is None else lock.key):
            await self._told()

    async def _free(self, worker: str) -> None:
        if await self._database.fetchval(_SQL["free"], worker):
            await self._told()

    async def _try(self, work: Awaitable[None], worker: str) -> bool:
        """Do `work` if the database lets it; a lease runs out by itself where it does not."""
        try:
            async with asyncio.timeout(min(_FREEING_S, self.lease.total_seconds() / 2)):
                await work
        except StoreClosedError:
            self._is_closing.set()
            return False
        except (HarborageError, TimeoutError) as error:
            _logger.warning("worker %s: %s", worker, str(error) or "the database did not answer in time")
            return False
        return True
