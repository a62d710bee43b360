"""What it costs to keep a step of a run, and a whole run, in the store of record, beside bare committed inserts.

A step is two commits: two entries and two events before its tool is called, one of each afterwards. The bare side of it
is two transactions of one row each, in a table of blobs in the same kind of database on the same machine. Of Postgres
only what this process spends is counted, not what the server does.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

from benchmarks.inserts import BareInserts, bare_postgres, bare_sqlite
from benchmarks.measure import Row, in_turn
from harborage.identity import Identity
from harborage.store import Change, Commit, Guard, Lease, NewEvent, NewRun, Status, Store
from harborage.store.postgres import PostgresStore
from harborage.store.sqlite import SQLiteStore
from tests.kit.postgres import PostgresServer, PostgresUnavailableError

_ENTRY = b"." * 300
_DATA = b"." * 200
_LONE = 100
_FLIGHT = 200
_STEPS = 3
_names = count()


async def store_cost() -> list[Row]:
    """Steps of one run alone, then of 200 runs at once, on SQLite and, where one can be started, on Postgres."""
    with tempfile.TemporaryDirectory(prefix="harborage-") as folder:
        async with _sqlite(Path(folder)) as (store, bare):
            rows = await _costs("SQLite", store, bare, cpu=2.5)
    try:
        async with _postgres() as (store, bare):
            rows += await _costs("Postgres", store, bare, cpu=3.0)
    except PostgresUnavailableError as error:
        rows.append(Row(name="on Postgres: not measured", unit="", ours=0, note=str(error)))
    return rows


async def _costs(where: str, store: Store, bare: BareInserts, *, cpu: float) -> list[Row]:
    await store.join("worker")
    rows: list[Row] = []
    for unit, clock, limit in (("µs CPU", time.process_time, cpu), ("µs", time.perf_counter, 1.6)):
        ours, theirs = await in_turn(_lone(store), _two_inserts(bare), clock=clock)
        name = f"{where}: step kept, lone run"
        note = "two commits beside two bare ones"
        rows.append(
            Row(name=name, unit=unit, ours=ours / _LONE * 1e6, bare=theirs / _LONE * 1e6, limit=limit, note=note)
        )
    runs, steps = await in_turn(_flight(store, 0), _flight(store, _STEPS))
    commits = _FLIGHT * (2 + 2 * _STEPS)
    rows.append(Row(name=f"{where}: run without steps kept, 200 at once", unit="µs CPU", ours=runs / _FLIGHT * 1e6))
    rows.append(
        Row(name=f"{where}: commit of a run with steps, 200 at once", unit="µs CPU", ours=steps / commits * 1e6)
    )
    return rows


def _lone(store: Store) -> Callable[[], Awaitable[None]]:
    async def work() -> None:
        run = _Run(store)
        await run.start()
        for _ in range(_LONE):
            await run.step()

    return work


def _two_inserts(bare: BareInserts) -> Callable[[], Awaitable[None]]:
    async def work() -> None:
        for _ in range(_LONE):
            await bare.commit(1)
            await bare.commit(1)

    return work


def _flight(store: Store, steps: int) -> Callable[[], Awaitable[None]]:
    async def one() -> None:
        run = _Run(store)
        await run.start()
        for _ in range(steps):
            await run.step()
        await run.end()

    async def work() -> None:
        await asyncio.gather(*(one() for _ in range(_FLIGHT)))

    return work


class _Run:
    """A run, as its worker commits it."""

    def __init__(self, store: Store) -> None:
        name = f"run-{next(_names):08}"
        self._store = store
        self._lease = Lease(name, "worker", 1)
        self._who = Identity("tenant", "user", name)
        self._position = 1

    async def start(self) -> None:
        """The run is there, and this worker's."""
        new = NewRun(run_id=self._lease.run_id, who=self._who, worker="worker", entries=(_ENTRY,), goal="goal")
        await self._store.commit(Commit(starts=(new,), who=self._who, events=self._events(2)))

    async def step(self) -> None:
        """A planner's decision and the intent to call a tool, then what came of it."""
        await self._commit(2)
        await self._commit(1)

    async def end(self) -> None:
        """The last decision, and the end."""
        await self._commit(2, Change(status=Status.COMPLETE))

    async def _commit(self, entries: int, change: Change | None = None) -> None:
        guard = Guard(lease=self._lease, position=self._position)
        self._position += entries
        await self._store.commit(
            Commit(guard=guard, entries=(_ENTRY,) * entries, change=change, who=self._who, events=self._events(entries))
        )

    def _events(self, number: int) -> tuple[NewEvent, ...]:
        return (NewEvent(type="event", data=_DATA, run_id=self._lease.run_id),) * number


@asynccontextmanager
async def _sqlite(folder: Path) -> AsyncIterator[tuple[Store, BareInserts]]:
    bare = await bare_sqlite(folder / "bare.db", _ENTRY)
    store = await SQLiteStore.open(folder / "store.db")
    yield store, bare
    await store.aclose()
    await bare.aclose()


@asynccontextmanager
async def _postgres() -> AsyncIterator[tuple[Store, BareInserts]]:
    with PostgresServer() as server:
        bare = await bare_postgres(server.url, _ENTRY)
        store = await PostgresStore.open(server.url)
        yield store, bare
        await store.aclose()
        await bare.aclose()
