"""Which workers are alive, by two signs: a lock that ends with their process, and a beat that stands still when they
freeze.

No two clocks are compared: who looks notes on its own monotonic clock since when it has seen the same beat.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from harborage.state.errors import DatabaseUnreachableError
from harborage.state.sqlite.locks import WorkerLocks
from harborage.store.errors import WorkerKnownError

if TYPE_CHECKING:
    from harborage.clock import Timers
    from harborage.state.sqlite.database import Database
    from harborage.state.sqlite.stations import Transaction

__all__ = ["LEASE", "Workers"]

LEASE: Final = timedelta(seconds=60)


class Workers:
    """The workers of this process on one database, and what it can tell of the others."""

    def __init__(self, database: Database, sql: Mapping[str, str], clock: Timers, lease: timedelta = LEASE) -> None:
        self._sql = sql
        self._clock = clock
        self._lease_s = lease.total_seconds()
        self._locks = WorkerLocks(database.path)
        self._seen: dict[str, tuple[int, float]] = {}

    def join(self, tx: Transaction, worker: str) -> None:
        """Begin to be a worker under this name.

        Raises:
            WorkerKnownError: another process works under it.
        """
        try:
            self._locks.take(worker)
        except DatabaseUnreachableError as error:
            raise WorkerKnownError(f"another process is the worker {worker}; choose another name") from error
        tx.execute(self._sql["join"], (worker,))
        tx.execute(self._sql["free_strays"]).fetchall()

    def beat(self, tx: Transaction, worker: str) -> int:
        """Give the worker's sign of life, and free the runs of the dead; how many runs became free."""
        tx.execute(self._sql["join"], (worker,))
        return self.bury(tx, worker)

    def bury(self, tx: Transaction, worker: str) -> int:
        """Free the runs of the workers that died; how many became free."""
        freed = 0
        for other, beat in self.dead(tx, worker):
            if tx.execute(self._sql["bury"], (other, beat)).get is not None:
                freed += len(tx.execute(self._sql["free"], (other,)).fetchall())
        if freed:
            tx.tell()
            self._locks.clean_up()
        return freed

    def leave(self, tx: Transaction, worker: str) -> None:
        """Be a worker no longer; what it still holds is free."""
        tx.execute(self._sql["leave"], (worker,))
        if tx.execute(self._sql["free"], (worker,)).fetchall():
            tx.tell()

    def drop(self, worker: str) -> None:
        """Let go of the worker's lock, once it has left."""
        self._locks.drop(worker)

    def close(self) -> None:
        """Let go of all locks: a worker that has not left is dead to others."""
        self._locks.drop_all()

    def dead(self, tx: Transaction, worker: str) -> list[tuple[str, int]]:
        """The workers that show no sign of life any more, each with its last beat."""
        others: list[Any] = tx.execute(self._sql["workers"], (worker,)).fetchall()
        now, known = self._clock.monotonic(), self._seen
        self._seen = {name: _since(known.get(name), beat, now) for name, beat in others}
        return [
            (name, beat)
            for name, beat in others
            if now - self._seen[name][1] > self._lease_s or not self._locks.is_held(name)
        ]


def _since(known: tuple[int, float] | None, beat: int, now: float) -> tuple[int, float]:
    """A worker's beat, and since when it has been the same here."""
    return known if known is not None and known[0] == beat else (beat, now)
