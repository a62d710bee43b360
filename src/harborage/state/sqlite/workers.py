"""Which workers live, by two signs: a lock that ends with their process, and a heartbeat that stops when they freeze.

A worker without either is dead: what it carried is free for others, and its fence keeps it from writing if it comes
back after all.
"""

from __future__ import annotations

import logging
from collections import Counter
from datetime import timedelta
from typing import Any, Final

from harborage.clock import Timers, sleep
from harborage.state.errors import DatabaseError, StoreClosedError
from harborage.state.sqlite.connection import statements
from harborage.state.sqlite.database import Database
from harborage.state.sqlite.locks import WorkerLocks
from harborage.state.sqlite.stations import Transaction
from harborage.state.sqlite.times import micros

__all__ = ["LEASE", "Workers"]

LEASE: Final = timedelta(seconds=60)

_LOOK_S: Final = 0.1
_BEATS: Final = 6  # in the time of one lease

_logger = logging.getLogger(__name__)


class Workers:
    """The workers of this process on one database, and what it can tell of the others."""

    def __init__(self, database: Database, clock: Timers, *, lease: timedelta = LEASE) -> None:
        self._database = database
        self._clock = clock
        self._lease = lease
        self._beat_s = lease.total_seconds() / _BEATS
        self._locks = WorkerLocks(database.path)
        self._sql = statements("queue")
        self._signing: Counter[str] = Counter()
        self._is_closed = False

    async def keep_alive(self, worker: str) -> None:
        """Give signs of life and look around until cancelled; then the worker carries nothing any more.

        Raises:
            StoreClosedError: this, or the database, was closed meanwhile.
        """
        self._signing[worker] += 1
        beat_at = self._clock.monotonic()
        try:
            while not self._is_closed:
                try:
                    if self._clock.monotonic() >= beat_at:
                        beat_at = self._clock.monotonic() + self._beat_s
                        await self._database.write(lambda transaction: self._beat(transaction, worker))
                    await self._look(worker)
                except DatabaseError as error:
                    _logger.warning("worker %s cannot give its sign of life: %s", worker, error)
                await sleep(self._clock, _LOOK_S)
            raise StoreClosedError()
        finally:
            self._signing[worker] -= 1
            if not self._signing[worker]:
                del self._signing[worker]
                await self._leave(worker)

    def sign(self, transaction: Transaction, worker: str) -> None:
        """The first sign of life of a worker that is about to claim runs.

        Raises:
            DatabaseUnreachableError: another process lives under this name.
        """
        self._locks.take(worker)
        transaction.execute(self._sql["sign"], (worker, micros(self._clock.now())))

    def bury_dead(self, transaction: Transaction, worker: str) -> None:
        """Free what workers other than this one carried and do not any more."""
        dead = self._dead(transaction, worker)
        for other in dead:
            self._free(transaction, other)
        if dead:
            self._locks.clean_up()

    def close(self) -> None:
        """Let go of all locks: whoever has not left before is dead to others."""
        self._is_closed = True
        self._locks.drop_all()

    async def _look(self, worker: str) -> None:
        """Hear of what other processes did, and of their deaths."""
        await self._database.look()
        if await self._database.read(lambda transaction: self._dead(transaction, worker)):
            await self._database.write(lambda transaction: self.bury_dead(transaction, worker))

    async def _leave(self, worker: str) -> None:
        try:
            await self._database.write(lambda transaction: self._free(transaction, worker))
        except (DatabaseError, StoreClosedError) as error:
            _logger.warning("worker %s left without giving its runs back; others will find them: %s", worker, error)
        finally:
            self._locks.drop(worker)

    def _beat(self, transaction: Transaction, worker: str) -> None:
        self._locks.take(worker)
        transaction.execute(self._sql["beat"], (worker, micros(self._clock.now())))

    def _dead(self, transaction: Transaction, worker: str) -> list[str]:
        oldest = micros(self._clock.now() - self._lease)
        others: list[Any] = transaction.execute(self._sql["other_workers"], (worker,)).fetchall()
        return [other for other, seen_at in others if seen_at < oldest or not self._locks.is_held(other)]

    def _free(self, transaction: Transaction, worker: str) -> None:
        transaction.execute(self._sql["drop_worker"], (worker,))
        if transaction.execute(self._sql["free"], (worker,)).fetchall():
            transaction.tell()
