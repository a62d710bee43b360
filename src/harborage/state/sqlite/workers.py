"""Which workers live, by two signs: a lock that ends with their process, and a heartbeat that stops when they freeze.

A worker without either is dead: what it carried is free for others, and its fence keeps it from writing if it comes
back after all.
"""

from __future__ import annotations

import logging
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from harborage.clock import Timers, sleep
from harborage.state.errors import DatabaseError, StoreClosedError
from harborage.state.sqlite.connection import statements
from harborage.state.sqlite.locks import WorkerLocks

if TYPE_CHECKING:
    from harborage.state.sqlite.database import Database
    from harborage.state.sqlite.stations import Transaction

__all__ = ["LEASE", "Workers"]

LEASE: Final = timedelta(seconds=60)

_LOOK_S: Final = 0.1
_MICROS: Final = 1_000_000
_BEATS: Final = 6  # in the time of one lease

_logger = logging.getLogger(__name__)


class Workers:
    """The workers of this process on one database, and what it can tell of the others."""

    def __init__(self, database: Database, clock: Timers, *, lease: timedelta = LEASE) -> None:
        self._database = database
        self._clock = clock
        self._lease_micros = round(lease.total_seconds() * _MICROS)
        self._beat_s = lease.total_seconds() / _BEATS
        self._locks = WorkerLocks(database.path)
        self._sql = statements("queue")
        self._signing: Counter[str] = Counter()
        self._seen: dict[str, tuple[int, int]] = {}
        self._is_closed = False

    async def keep_alive(self, worker: str) -> None:
        """Give signs of life and look around until cancelled; then the worker carries nothing any more.

        Raises:
            StoreClosedError: this, or the database, was closed meanwhile.
        """
        self._signing[worker] += 1
        is_first = True
        beat_at = self._clock.monotonic()
        try:
            while not self._is_closed:
                try:
                    if self._clock.monotonic() >= beat_at:
                        beat_at = self._clock.monotonic() + self._beat_s
                        await self._database.write(lambda transaction: self._beat(transaction, worker))
                    if is_first:
                        await self._database.write(self._free_strays)
                        is_first = False
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
        transaction.execute(self._sql["sign"], (worker, self._now()))

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
        transaction.execute(self._sql["beat"], (worker, self._now()))

    def _dead(self, transaction: Transaction, worker: str) -> list[str]:
        others: list[Any] = transaction.execute(self._sql["other_workers"], (worker,)).fetchall()
        named = [(other.decode("utf-8", "replace"), seen_at) for other, seen_at in others]
        now, known = self._now(), self._seen
        # Kept from look to look: since when each worker has shown the same sign.
        self._seen = {other: _since(known.get(other), at, now) for other, at in named}
        return [other for other, at in named if self._is_old(other, at, now) or not self._locks.is_held(other)]

    def _is_old(self, worker: str, seen_at: int, now: int) -> bool:
        """Whether the last sign of a worker is older than a lease.

        All processes of a machine share the clock that only goes up, whatever becomes of the time of day. A sign from
        ahead of it was given before the machine was last started, or where that clock is another: then only what was
        seen here counts.
        """
        since = seen_at if seen_at <= now else self._seen[worker][1]
        return now - since > self._lease_micros

    def _now(self) -> int:
        return round(self._clock.monotonic() * _MICROS)

    def _free_strays(self, transaction: Transaction) -> None:
        if transaction.execute(self._sql["free_strays"]).fetchall():
            transaction.tell()

    def _free(self, transaction: Transaction, worker: str) -> None:
        transaction.execute(self._sql["drop_worker"], (worker,))
        if transaction.execute(self._sql["free"], (worker,)).fetchall():
            transaction.tell()


def _since(known: tuple[int, int] | None, seen_at: int, now: int) -> tuple[int, int]:
    """The sign of a worker, and when it was first seen here."""
    return known if known is not None and known[0] == seen_at else (seen_at, now)
