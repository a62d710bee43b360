"""Runs in SQLite: their records, who carries them, and what is sent to them, from any process on this machine."""

from __future__ import annotations

import builtins
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from harborage.clock import SYSTEM_CLOCK, Timers
from harborage.state.errors import StoreClosedError
from harborage.state.sqlite.tables import RunTables
from harborage.state.sqlite.times import micros, moment
from harborage.state.sqlite.workers import LEASE, Workers

if TYPE_CHECKING:
    from harborage.state.runs import Claim, Lease, RunFilter, RunRecord, Sent, Standing, Write
    from harborage.state.sqlite.database import Database
    from harborage.state.sqlite.stations import Transaction

__all__ = ["SQLiteRuns"]

T = TypeVar("T")


class SQLiteRuns:
    """`RunStore` and `RunQueue` over a database, which outlives them: whoever opened the database closes it.

    A worker that dies is noticed within a fraction of a second by the others that are kept alive, and at once by who
    claims; one that freezes for as long as `lease` counts as dead.
    """

    def __init__(self, database: Database, *, clock: Timers = SYSTEM_CLOCK, lease: timedelta = LEASE) -> None:
        self._database = database
        self._clock = clock
        self._tables = RunTables()
        self._workers = Workers(database, clock, lease=lease)
        self._is_closed = False

    # ── RunStore ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def create(self, record: RunRecord, write: Write) -> bool:
        now = self._now()
        return await self._write(lambda tx: self._tables.create(tx, record, write, now), record.run_id)

    async def append(self, lease: Lease, write: Write) -> None:
        now = self._now()
        await self._write(lambda tx: self._tables.append(tx, lease, write, now), lease.run_id)

    async def read(self, run_id: str, *, after: int = 0) -> builtins.list[bytes]:
        return await self._read(lambda tx: self._tables.read(tx, run_id, after), run_id)

    async def body(self, run_id: str, digest: str) -> bytes:
        return await self._read(lambda tx: self._tables.body(tx, run_id, digest), run_id)

    async def list(self, filter: RunFilter, *, after: str = "", limit: int = 100) -> builtins.list[RunRecord]:
        return await self._read(lambda tx: self._tables.list(tx, filter, after, limit), filter.run_id)

    async def forget(self, run_id: str) -> None:
        await self._write(lambda tx: self._tables.forget(tx, run_id), run_id)

    async def aclose(self) -> None:
        self._is_closed = True
        self._workers.close()

    # ── RunQueue ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def claim(
        self, worker: str, *, agent: str = "", limit: int = 100, blocked: bool = False, behind: str = ""
    ) -> builtins.list[Claim]:
        now = self._now()

        def claim(tx: Transaction) -> builtins.list[Claim]:
            self._workers.sign(tx, worker)
            self._workers.bury_dead(tx, worker)
            return self._tables.claim(tx, worker, agent=agent, limit=limit, blocked=blocked, behind=behind, now=now)

        return await self._write(claim)

    async def release(self, lease: Lease, standing: Standing) -> None:
        now = self._now()
        await self._write(lambda tx: self._tables.release(tx, lease, standing, now), lease.run_id)

    async def send(self, run_id: str, event_id: str, data: bytes, *, limit: int = 0) -> bool:
        return await self._write(lambda tx: self._tables.send(tx, run_id, event_id, data, limit), run_id)

    async def arrived(self, worker: str, *, after: int = 0) -> builtins.list[Sent]:
        return await self._read(lambda tx: self._tables.arrived(tx, worker, after))

    async def wake(self, run_id: str) -> None:
        await self._write(lambda tx: self._tables.wake(tx, run_id), run_id)

    async def keep_alive(self, worker: str) -> None:
        self._check_open()
        await self._workers.keep_alive(worker)

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        return self._database.on_change(listener)

    async def next_wake(self, *, agent: str = "") -> datetime | None:
        at = await self._read(lambda tx: self._tables.next_wake(tx, agent))
        return None if at is None else moment(at)

    # ── Both ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _now(self) -> int:
        return micros(self._clock.now())

    def _write(self, work: Callable[[Transaction], T], run_id: str = "") -> Awaitable[T]:
        self._check_open()
        return self._database.write(work, run_id=run_id)

    def _read(self, work: Callable[[Transaction], T], run_id: str = "") -> Awaitable[T]:
        self._check_open()
        return self._database.read(work, run_id=run_id)

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreClosedError()
