"""Runs in Postgres: their records under a lease with a fence, who carries them, and what is sent to them.

Every change checks the fence in the statement that makes it, so a worker that was thought dead cannot write. A change
whose answer was lost is looked for by its number before it is made again.
"""

from __future__ import annotations

import asyncio
import builtins
import secrets
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from harborage.clock import SYSTEM_CLOCK, Clock
from harborage.state.errors import StoreClosedError
from harborage.state.postgres.database import PACKAGE, Database
from harborage.state.postgres.notices import Notices
from harborage.state.postgres.rows import (
    body_columns,
    entries_of,
    entry_columns,
    kept_text,
    record_of,
    standing_columns,
)
from harborage.state.postgres.workers import LEASE, Workers
from harborage.state.runs import (
    Claim,
    EntryMissingError,
    Lease,
    LeaseLostError,
    QueueFullError,
    RunFilter,
    RunRecord,
    RunRecordNotFoundError,
    Sent,
    Stand,
    Standing,
    Write,
    check_bodies,
    check_body,
)
from harborage.state.sql_files import read_statements

if TYPE_CHECKING:
    from harborage.state.postgres.driver import Connection

__all__ = ["PostgresRuns"]

_RUNS = read_statements(PACKAGE, "statements/runs.sql")
_QUEUE = read_statements(PACKAGE, "statements/queue.sql")
_SCHEMA = read_statements(PACKAGE, "statements/schema.sql")


class PostgresRuns:
    """`RunStore` and `RunQueue` over one database.

    Leases run by the database's clock, so that processes on several machines agree; `clock` only says what time it is
    for runs that wait for one. A worker that gives no sign of life for as long as `lease` loses its runs.
    """

    def __init__(self, database: Database, *, clock: Clock = SYSTEM_CLOCK, lease: timedelta = LEASE) -> None:
        self._database = database
        self._clock = clock
        self._notices = Notices(database)
        self._workers = Workers(database, self._announce, lease=lease)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._doubtful: defaultdict[str, builtins.list[int]] = defaultdict(list)
        self._is_closed = False

    # ── RunStore ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def create(self, record: RunRecord, write: Write) -> bool:
        self._check_open()
        check_bodies(write)
        standing = write.standing or record.standing
        change = _new_change()
        who = record.who
        args = (
            record.run_id,
            who.tenant_id,
            who.user_id,
            who.session_id,
            who.run_id,
            kept_text(record.goal),
            record.agent,
            record.created_at,
            self._clock.now(),
            *standing_columns(standing),
        )
        rest = (change, *entry_columns(write.entries), *body_columns(write), self._notices.stamp)

        async def work(connection: Connection, is_again: bool) -> bool:
            async with connection.transaction():
                is_over = await self._is_over(connection, standing)
                made = await connection.fetchrow(_RUNS["create"], *args, is_over, *rest)
                if made is None:
                    return is_again and await self._is_changed(connection, record.run_id, change)
                if standing.stand.is_final:
                    await connection.execute(_RUNS["wake_waiting"], record.run_id)
                return True

        is_new = await self._database.run(work, run_id=record.run_id)
        if is_new:
            self._notices.tell()
        return is_new

    async def append(self, lease: Lease, write: Write) -> None:
        self._check_open()
        if write.bodies:
            check_bodies(write)
        if not await self._change(lease, write):
            raise LeaseLostError(lease.run_id, lease.worker, lease.fence)

    async def read(self, run_id: str, *, after: int = 0) -> builtins.list[bytes]:
        self._check_open()
        rows = await self._database.fetch(_RUNS["read"], run_id, after, run_id=run_id)
        return entries_of(run_id, rows, after)

    async def body(self, run_id: str, digest: str) -> bytes:
        self._check_open()
        data = await self._database.fetchval(_RUNS["body"], run_id, digest, run_id=run_id)
        if data is None:
            raise EntryMissingError(run_id=run_id, digest=digest)
        return check_body(run_id, digest, data)

    async def list(self, filter: RunFilter, *, after: str = "", limit: int = 100) -> builtins.list[RunRecord]:
        self._check_open()
        first = 0
        if after:
            first = await self._database.fetchval(_RUNS["number"], after)
            if first is None:
                raise RunRecordNotFoundError(f"no run {after} to list the runs behind")
        stands = [stand.value for stand in filter.stands]
        narrowed = (filter.tenant, filter.user, filter.session, filter.agent, stands)
        if filter.run_id:
            rows = await self._database.fetch(_RUNS["find"], filter.run_id, first, *narrowed)
        else:
            rows = await self._database.fetch(_RUNS["list"], first, *narrowed, limit)
        return [record_of(row) for row in rows[:limit]]

    async def forget(self, run_id: str) -> None:
        self._check_open()

        async def work(connection: Connection, _: bool) -> None:
            async with connection.transaction():
                digests = await connection.fetchval(_RUNS["forget"], run_id)
                if digests is None:
                    return
                await connection.execute(_RUNS["forget_bodies"], digests)
                await connection.execute(_RUNS["wake_waiting"], run_id)
                await connection.execute(_SCHEMA["tell"], self._notices.stamp)

        await self._database.run(work, run_id=run_id)
        self._notices.tell()

    async def aclose(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        await self._workers.aclose()
        await self._notices.aclose()

    # ── RunQueue ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def claim(
        self, worker: str, *, agent: str = "", limit: int = 100, blocked: bool = False, behind: str = ""
    ) -> builtins.list[Claim]:
        self._check_open()
        await self._workers.meet(worker)
        changes = [*self._doubtful.pop(worker, ())]
        change = _new_change()

        async def work(connection: Connection, is_again: bool) -> builtins.list[Claim]:
            rows = await connection.fetch(
                _QUEUE["claim"],
                worker,
                self._workers.lease,
                self._clock.now(),
                blocked,
                agent,
                limit,
                change,
                [*changes, change] if is_again else changes,
                behind,
            )
            return [Claim(record_of(row), Lease(row["run_id"], worker, row["fence"])) for row in rows]

        try:
            return await self._database.run(work)
        except BaseException:
            # What this claim took, if it took anything, belongs to the next one; or nobody would ever carry it.
            self._doubtful[worker] += [*changes, change]
            raise

    async def release(self, lease: Lease, standing: Standing) -> None:
        self._check_open()
        await self._change(lease, Write(standing=standing), gives_back=True)

    async def send(self, run_id: str, event_id: str, data: bytes, *, limit: int = 0) -> bool:
        self._check_open()

        async def work(connection: Connection, is_again: bool) -> bool | None:
            row = await connection.fetchrow(_QUEUE["send"], run_id, event_id, bytes(data), self._notices.stamp, limit)
            if row is None or not row["is_there"]:
                return None
            if row["is_full"]:
                raise QueueFullError(run_id, limit)
            # Of a control whose answer was lost it may have been this very call that kept it.
            return row["number"] is not None or is_again

        is_new = await self._database.run(work, run_id=run_id)
        if is_new is None:
            raise RunRecordNotFoundError(f"no run {run_id} that could still take a control")
        if is_new:
            self._notices.tell()
        return is_new

    async def arrived(self, worker: str, *, after: int = 0) -> builtins.list[Sent]:
        self._check_open()
        rows = await self._database.fetch(_QUEUE["arrived"], worker, after)
        return [Sent(row["number"], row["run_id"], row["event_id"], row["data"]) for row in rows]

    async def wake(self, run_id: str) -> None:
        self._check_open()
        woken = await self._database.fetch(_QUEUE["wake"], run_id, self._notices.stamp, run_id=run_id)
        if woken:
            self._notices.tell()

    async def keep_alive(self, worker: str) -> None:
        self._check_open()
        await self._workers.keep_alive(worker)

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        return self._notices.on_change(listener)

    async def next_wake(self, *, agent: str = "") -> datetime | None:
        self._check_open()
        wake_at: datetime | None = await self._database.fetchval(_QUEUE["next_wake"], agent)
        return wake_at

    # ── Changes ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _change(self, lease: Lease, write: Write, *, gives_back: bool = False) -> bool:
        """Change a run under its lease, in one statement where that is enough; False, and nothing done, if it is lost.

        The changes of one run wait for each other here: the row would make them wait anyway, each with a connection.
        """
        standing, change = write.standing, _new_change()
        tells = standing is not None
        args = (
            *lease,
            self._clock.now(),
            change,
            *entry_columns(write.entries),
            write.taken,
            *body_columns(write),
            *standing_columns(standing),
        )

        async def once(connection: Connection, is_over: bool, is_again: bool) -> bool:
            rest = (is_over, gives_back, self._notices.stamp if tells else None)
            if await connection.fetchrow(_RUNS["change"], *args, *rest) is not None:
                return True
            return is_again and await self._is_changed(connection, lease.run_id, change)

        async def work(connection: Connection, is_again: bool) -> bool:
            if standing is None or not (standing.stand.is_final or _waits(standing)):
                return await once(connection, False, is_again)
            async with connection.transaction():
                is_held = await once(connection, await self._is_over(connection, standing), is_again)
                if is_held and standing.stand.is_final:
                    # A statement of its own: it sees what was parked on this run while its row was waited for.
                    await connection.execute(_RUNS["wake_waiting"], lease.run_id)
                return is_held

        turn = self._turns.get(lease.run_id)
        if turn is None:
            turn = self._turns[lease.run_id] = asyncio.Lock()
        async with turn:
            is_held = await self._database.run(work, run_id=lease.run_id)
        if is_held and tells:
            self._notices.tell()
        return is_held

    async def _is_over(self, connection: Connection, standing: Standing) -> bool:
        """Whether the run that is waited for has ended; until the transaction ends it cannot."""
        return _waits(standing) and bool(await connection.fetchval(_RUNS["is_over"], standing.waits_for))

    async def _is_changed(self, connection: Connection, run_id: str, change: int) -> bool:
        """Whether the change was kept although its answer was lost."""
        return await connection.fetchrow(_RUNS["is_changed"], run_id, change) is not None

    async def _announce(self) -> None:
        """Tell everybody that runs have become free."""
        await self._database.fetch(_SCHEMA["tell"], self._notices.stamp)
        self._notices.tell()

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreClosedError()


def _waits(standing: Standing) -> bool:
    return standing.stand is Stand.PARKED and bool(standing.waits_for)


def _new_change() -> int:
    """A number that no other change has."""
    return secrets.randbits(63)
