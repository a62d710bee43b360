"""What it costs to keep a step of a run in SQLite, beside a bare committed insert on the same disk in the same run."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import apsw

from benchmarks.measure import Row, in_turn
from harborage.identity import Identity
from harborage.state import StateRecord, Storage, open_storage
from harborage.store import Commit, Guard, Lease, NewEvent, NewRun, Store

_WHO = Identity("tenant", "user", "session")
_ENTRY = b"." * 300
_STEP = (_ENTRY,) * 3  # a planner's decision, the intent to call a tool, and what came of it
_WRITERS = (50, 200)
_LONE_STEPS = 200
_STEPS = 3000


async def storage_cost() -> list[Row]:
    """A step kept by one run alone, and by 50 and 200 runs at once, which share their flushes to the disk.

    Alone the time counts, since the run waits for the disk; of many at once the CPU, since the disk is shared. The bare
    side is a table of blobs and nothing else: its rows go in by as many to a commit as there are on our side.
    """
    async with _places() as (storage, bare):
        lone = await _lone(storage, bare)
        crowds = [row for writers in _WRITERS for row in await _crowd(storage, bare, writers)]
        return [*lone, *crowds, await _room(storage, bare)]


class _Bare:
    """A table of blobs, written in the calling thread."""

    def __init__(self, path: Path) -> None:
        self._connection = apsw.Connection(str(path))
        self._connection.execute("PRAGMA journal_mode = wal; PRAGMA synchronous = full")
        self._connection.execute("CREATE TABLE kept (id INTEGER PRIMARY KEY, data BLOB)")

    def commit(self, rows: int) -> None:
        """Insert rows in one transaction that is on disk at its end."""
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        for _ in range(rows):
            execute("INSERT INTO kept (data) VALUES (?)", (_ENTRY,))
        execute("COMMIT")

    def bytes_per_row(self) -> float:
        """What a row takes on disk."""
        rows: Any = self._connection.execute("SELECT count(*) FROM kept").get
        pages: Any = self._connection.pragma("page_count")
        return pages * 4096 / rows

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()


@asynccontextmanager
async def _places() -> AsyncIterator[tuple[Storage, _Bare]]:
    with tempfile.TemporaryDirectory(prefix="harborage-") as folder:
        bare = _Bare(Path(folder) / "bare.db")
        async with await open_storage(f"sqlite:{folder}/harborage.db") as storage:
            yield storage, bare
        bare.close()


_names = count()


class _Writer:
    """Writes one run."""

    def __init__(self, store: Store, lease: Lease) -> None:
        self._store = store
        self._lease = lease
        self._position = 0

    async def step(self) -> None:
        """Keep one more step."""
        await self._store.commit(Commit(guard=Guard(lease=self._lease, position=self._position), entries=_STEP))
        self._position += len(_STEP)


async def _writers(storage: Storage, number: int) -> list[_Writer]:
    for _ in range(number):
        start = NewRun(run_id=f"run-{next(_names):08}", who=_WHO, goal="goal")
        await storage.store.commit(Commit(starts=(start,)))
    claimed = await storage.store.claim("worker", limit=number)
    return [_Writer(storage.store, one.row.lease) for one in claimed]


async def _lone(storage: Storage, bare: _Bare) -> list[Row]:
    (writer,) = await _writers(storage, 1)

    async def ours() -> None:
        for _ in range(_LONE_STEPS):
            await writer.step()

    async def theirs() -> None:
        for _ in range(_LONE_STEPS):
            bare.commit(1)

    mine, other = await in_turn(ours, theirs, clock=time.perf_counter)
    return [
        _row("step kept, lone run", "µs", mine, other, _LONE_STEPS, "three entries beside one bare committed insert")
    ]


async def _crowd(storage: Storage, bare: _Bare, writers: int) -> list[Row]:
    runs = await _writers(storage, writers)
    turns = _STEPS // writers
    numbers = count()
    kinds = [f"kind {index}" for index in range(writers)]

    def at_once(one: Callable[[int], Awaitable[object]]) -> Callable[[], Awaitable[None]]:
        async def writer(index: int) -> None:
            for _ in range(turns):
                await one(index)

        async def work() -> None:
            await asyncio.gather(*(writer(index) for index in range(writers)))

        return work

    async def append(index: int) -> None:
        await runs[index].step()

    async def keep(index: int) -> None:
        await storage.store.commit(Commit(who=_WHO, events=(NewEvent(type="benchmark", data=_ENTRY),)))

    async def save(index: int) -> None:
        event_id = f"event {next(numbers)}"
        await storage.state.save(StateRecord(event_id, _WHO.with_run(""), kinds[index], _ENTRY))

    def insert(rows: int) -> Callable[[], Awaitable[None]]:
        async def work() -> None:
            for _ in range(turns):
                bare.commit(writers * rows)

        return work

    rows: list[Row] = []
    for what, one, each in (("entry of a step", append, 3), ("event kept", keep, 1), ("record saved", save, 1)):
        mine, other = await in_turn(at_once(one), insert(each))
        name = f"{what}, {writers} writers"
        rows.append(
            _row(
                name,
                "µs CPU",
                mine,
                other,
                turns * writers * each,
                "beside a bare insert",
                limit=10.0 if each > 1 else None,
            )
        )
    return rows


async def _room(storage: Storage, bare: _Bare) -> Row:
    """What entries take on disk, once everything else in the database is left out of the account."""
    (writer,) = await _writers(storage, 1)
    begin = await _size(storage)
    for _ in range(1000):
        await writer.step()
    ours = (await _size(storage) - begin) / 3000
    return Row(name="entry of 300 bytes on disk", unit="bytes", ours=ours, bare=bare.bytes_per_row(), limit=1.5)


async def _size(storage: Storage) -> int:
    database: Any = storage.beneath
    pages: int = await database.read(lambda tx: tx.connection.pragma("page_count"))
    return pages * 4096


def _row(name: str, unit: str, ours: float, bare: float, per: int, note: str, *, limit: float | None = None) -> Row:
    return Row(name=name, unit=unit, ours=ours / per * 1e6, bare=bare / per * 1e6, note=note, limit=limit)
