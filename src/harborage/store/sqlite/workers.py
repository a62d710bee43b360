"""Which workers are alive, by two signs: a lock that ends with their process, and a beat that stands still when they
freeze.

No two clocks are compared: who looks notes on its own monotonic clock since when it has seen the same beat.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from harborage.store.sqlite.locks import WorkerLocks

if TYPE_CHECKING:
    from harborage.clock import Timers
    from harborage.store.sqlite.database import Database
    from harborage.store.sqlite.transactions import Transaction

LEASE: Final = timedelta(seconds=60)


class _Seen(NamedTuple):
    """A worker's row, its beat, and since when both have been the same here.

    A worker that was taken for dead has another row when it begins anew, and its beats begin anew, too.
    """

    num: int
    beat: int
    since: float


class Workers:
    """The workers of this process on one database, and what it knows of the others."""

    def __init__(self, database: Database, sql: Mapping[str, str], clock: Timers, lease: timedelta = LEASE) -> None:
        self._sql = sql
        self._clock = clock
        self._lease_s = lease.total_seconds()
        self._locks = WorkerLocks(database.path)
        self._seen: dict[str, _Seen] = {}

    def join(self, tx: Transaction, worker: str) -> None:
        """Begin to be a worker under this name.

        Raises:
            WorkerKnownError: another process works under it.
            DatabaseUnreachableError: its lock cannot be made.
        """
        self._locks.take(worker)
        tx.execute(self._sql["join"], (worker,))
        tx.execute(self._sql["free_strays"]).fetchall()

    def beat(self, tx: Transaction, worker: str) -> int:
        """Give the worker's sign of life, and free the runs of the dead; how many runs became free."""
        tx.execute(self._sql["join"], (worker,))
        return self.bury(tx, worker)

    def bury(self, tx: Transaction, worker: str) -> int:
        """Free the runs of the workers that died; how many became free."""
        freed = 0
        for other, num, beat in self.dead(tx, worker):
            if tx.execute(self._sql["bury"], (num, beat)).get is not None:
                freed += len(tx.execute(self._sql["free"], (other,)).fetchall())
        if freed:
            tx.notify()
            self._locks.clean_up()
        return freed

    def leave(self, tx: Transaction, worker: str) -> None:
        """Be a worker no longer; what it still holds is free. Nothing changes for one that is none of this process."""
        if not self._locks.holds(worker):
            return
        tx.execute(self._sql["leave"], (worker,))
        if tx.execute(self._sql["free"], (worker,)).fetchall():
            tx.notify()

    def drop(self, worker: str) -> None:
        """Let go of the worker's lock, once it has left."""
        self._locks.drop(worker)

    def close(self) -> None:
        """Let go of all locks: a worker that has not left is dead to others."""
        self._locks.drop_all()

    def dead(self, tx: Transaction, worker: str) -> list[tuple[str, int, int]]:
        """The workers that show no sign of life any more, each with the number of its row and its last beat."""
        others: list[Any] = tx.execute(self._sql["workers"], (worker,)).fetchall()
        now, known = self._clock.monotonic(), self._seen
        self._seen = {name: _seen(known.get(name), num, beat, now) for name, num, beat in others}
        return [
            (name, num, beat)
            for name, num, beat in others
            if now - self._seen[name].since > self._lease_s or not self._locks.is_held(name)
        ]


def _seen(known: _Seen | None, num: int, beat: int, now: float) -> _Seen:
    return known if known is not None and (known.num, known.beat) == (num, beat) else _Seen(num, beat, now)
