"""Workers give their signs of life through whatever happens to the database, and leave nothing behind."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import apsw
import pytest

from harborage.concurrency import Crew
from harborage.state.errors import DatabaseUnreachableError, StoreClosedError
from harborage.store.errors import WorkerKnownError
from harborage.store.port import keep_alive
from harborage.store.sqlite import Database, SQLiteStore
from harborage.testing.clock import FakeClock, settle
from harborage.testing.conformance.store_bench import claim, living, start

OpenDatabase = Callable[..., Awaitable[Database]]

BEATS = "SELECT name, beat FROM harborage_workers ORDER BY name"


async def pass_time(clock: FakeClock, database: Database, seconds: float) -> None:
    """Move the clock, and let the database's threads answer everything that is asked meanwhile."""
    clock.advance(seconds)
    for _ in range(4):
        await settle(4)
        await database.read(lambda tx: None)
        await asyncio.gather(database.write(lambda tx: None), return_exceptions=True)


async def beats(database: Database) -> dict[str, int]:
    """How often each worker has given its sign of life."""
    rows: list[Any] = await database.read(lambda tx: tx.execute(BEATS).fetchall())
    return dict(rows)


def lock_files(path: Path) -> list[str]:
    """The names of the lock files beside the database."""
    return sorted(file.name for file in path.with_name(f"{path.name}-workers").glob("*"))


async def test_a_worker_beats_every_ten_seconds(open_database: OpenDatabase, path: Path) -> None:
    """The beat comes long before a lease is over and no more often, and row and lock go with the worker."""
    database, clock = await open_database(), FakeClock()
    async with living(SQLiteStore(database, clock=clock), "worker", clock=clock):
        for _ in range(5):
            await pass_time(clock, database, 0.1)
        assert await beats(database) == {"worker": 1}
        assert lock_files(path) == ["worker.lock"]
        await pass_time(clock, database, 10.1)
        assert await beats(database) == {"worker": 2}
    assert await beats(database) == {}
    assert lock_files(path) == []


async def test_a_worker_has_one_sign_of_life(open_database: OpenDatabase) -> None:
    """Whoever would be kept alive a second time under its name is refused, and takes nothing from the first."""
    store, other = SQLiteStore(await open_database()), SQLiteStore(await open_database())
    await other.join("other")
    async with living(store, "worker"):
        await start(store, "r", worker="worker")
        with pytest.raises(WorkerKnownError):
            await keep_alive(store, "worker", FakeClock(), joined=asyncio.Event())
        await other.look("other")
        await claim(other, "other")
    await claim(other, "other", "r")


async def test_a_lock_that_cannot_be_made_is_no_name_that_is_taken(open_database: OpenDatabase, path: Path) -> None:
    """The error names the file; once there is a place for it the worker may join."""
    store = SQLiteStore(await open_database())
    folder = path.with_name(f"{path.name}-workers")
    folder.write_bytes(b"in the way")
    with pytest.raises(DatabaseUnreachableError, match="worker.lock"):
        await store.join("worker")
    folder.unlink()
    await store.join("worker")


async def test_a_database_that_refuses_does_not_end_a_worker(
    open_database: OpenDatabase, caplog: pytest.LogCaptureFixture, path: Path
) -> None:
    """A beat that could not be kept is logged and tried again; the worker lives on."""
    database, clock = await open_database(busy_timeout_s=0.01), FakeClock()
    holder = apsw.Connection(str(path))
    with caplog.at_level(logging.WARNING, "harborage.store.port"):
        async with living(SQLiteStore(database, clock=clock), "worker", clock=clock):
            await pass_time(clock, database, 0.1)
            holder.execute("BEGIN IMMEDIATE")
            await pass_time(clock, database, 10.1)
            assert await beats(database) == {"worker": 1}
            assert "worker worker cannot give its sign of life" in caplog.text
            holder.close()
            await pass_time(clock, database, 10.1)
            assert (await beats(database))["worker"] >= 2


async def test_a_worker_that_cannot_say_goodbye_is_found_all_the_same(
    open_database: OpenDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    """When the database refuses a worker's last word, its lock is dropped, and others free what it carried."""
    database = await open_database()
    store, other = SQLiteStore(database), SQLiteStore(await open_database())
    with caplog.at_level(logging.WARNING, "harborage.store.port"):
        async with living(store, "worker"):
            await start(store, "r", worker="worker")
            await database.write(lambda tx: tx.connection.pragma("query_only", True))
    assert "others will find them" in caplog.text
    await other.join("other")
    await other.look("other")
    await claim(other, "other", "r")


async def test_closing_ends_a_sign_of_life(open_database: OpenDatabase, path: Path) -> None:
    """Whoever closes the store under a worker does not leave it waiting, and its lock is gone at once."""
    store, joined = SQLiteStore(await open_database()), asyncio.Event()
    ended: list[BaseException] = []
    crew, clock = Crew(lambda _, error: ended.append(error)), FakeClock()
    task = crew.start(keep_alive(store, "worker", clock, joined=joined), "sign of life")
    await joined.wait()
    assert lock_files(path) == ["worker.lock"]
    await store.aclose()
    assert lock_files(path) == []
    while not task.done():
        clock.advance(0.1)
        await asyncio.sleep(0)
    await crew.aclose()
    assert [type(error) for error in ended] == [StoreClosedError]


async def test_a_sign_that_is_called_off_at_once_leaves_nothing(open_database: OpenDatabase, path: Path) -> None:
    """Cancelled at any of its first turns, a worker leaves neither row nor lock."""
    database = await open_database()
    store = SQLiteStore(database)

    async def cancelled_after(turns: int, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    for turns in range(12):
        await cancelled_after(turns, keep_alive(store, "worker", FakeClock(), joined=asyncio.Event()))
        await database.write(lambda tx: None)
        assert await beats(database) == {}
        assert lock_files(path) == []
