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
from harborage.state.errors import StoreClosedError
from harborage.state.sqlite import Database, storage_of
from harborage.testing.clock import FakeClock, settle
from harborage.testing.conformance.storage_bench import begin, living, take

OpenDatabase = Callable[..., Awaitable[Database]]

SEEN = "SELECT worker, seen_at FROM harborage_workers ORDER BY worker"


async def pass_time(clock: FakeClock, database: Database, seconds: float) -> None:
    """Move the clock, and let the database's threads answer everything that is asked meanwhile."""
    clock.advance(seconds)
    for _ in range(4):
        await settle(4)
        await database.read(lambda tx: None)
        await asyncio.gather(database.write(lambda tx: None), return_exceptions=True)


async def seen(database: Database) -> dict[str, int]:
    """When each worker was last heard of, in seconds of the fake clock."""
    rows = await database.read(lambda tx: tx.execute(SEEN).fetchall())
    return {worker: seen_at // 1_000_000 for worker, seen_at in rows}


def lock_files(path: Path) -> list[str]:
    """The names of the lock files beside the database."""
    return sorted(file.name for file in path.with_name(f"{path.name}-workers").glob("*"))


async def test_a_worker_is_heard_of_every_ten_seconds(open_database: OpenDatabase, path: Path) -> None:
    """The heartbeat is renewed long before it grows old, and row and lock go with the worker."""
    database, clock = await open_database(), FakeClock()
    storage = storage_of(database, clock=clock)
    async with living(storage.queue, "worker"):
        await pass_time(clock, database, 0.1)
        assert await seen(database) == {"worker": 0}
        assert lock_files(path) == ["worker.lock"]
        await pass_time(clock, database, 10.1)
        assert await seen(database) == {"worker": 10}
    assert await seen(database) == {}
    assert lock_files(path) == []


async def test_two_signs_of_one_worker_are_one_life(open_database: OpenDatabase) -> None:
    """A worker that is kept alive twice lives until the second ends."""
    storage = storage_of(await open_database())
    await begin(storage, "r")
    async with living(storage.queue, "worker"):
        async with living(storage.queue, "worker"):
            await take(storage, "r", "worker")
        assert await storage.queue.claim("other") == []
    await take(storage, "r", "other")


async def test_a_database_that_refuses_does_not_end_a_worker(
    open_database: OpenDatabase, caplog: pytest.LogCaptureFixture, path: Path
) -> None:
    """A heartbeat that could not be kept is logged and tried again; the worker lives on."""
    database, clock = await open_database(busy_timeout_s=0.01), FakeClock()
    holder = apsw.Connection(str(path))
    storage = storage_of(database, clock=clock)
    with caplog.at_level(logging.WARNING, "harborage.state.sqlite.workers"):
        async with living(storage.queue, "worker"):
            await pass_time(clock, database, 0.1)
            holder.execute("BEGIN IMMEDIATE")
            await pass_time(clock, database, 10)
            assert await seen(database) == {"worker": 0}
            assert "worker worker cannot give its sign of life" in caplog.text
            holder.close()
            await pass_time(clock, database, 10.1)
            assert (await seen(database))["worker"] >= 10


async def test_a_worker_that_cannot_say_goodbye_is_found_all_the_same(
    open_database: OpenDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    """When the database refuses a worker's last word, its lock is dropped, and others free what it carried."""
    database = await open_database()
    storage, other = storage_of(database), storage_of(await open_database())
    await begin(storage, "r")
    with caplog.at_level(logging.WARNING, "harborage.state.sqlite.workers"):
        async with living(storage.queue, "worker"):
            await take(storage, "r", "worker")
            await database.write(lambda tx: tx.connection.pragma("query_only", True))
    assert "others will find them" in caplog.text
    await take(other, "r", "other")


async def test_closing_ends_a_sign_of_life(open_database: OpenDatabase, path: Path) -> None:
    """Whoever closes the storage under a worker does not leave it waiting, and its lock is gone at once."""
    storage = storage_of(await open_database())
    ended: list[BaseException] = []
    crew = Crew(lambda _, error: ended.append(error))
    await begin(storage, "r")
    task = crew.start(storage.queue.keep_alive("worker"), "sign of life")
    await take(storage, "r", "worker")
    assert lock_files(path) == ["worker.lock"]
    await storage.aclose()
    await asyncio.wait([task])
    await crew.aclose()
    assert [type(error) for error in ended] == [StoreClosedError]
    assert lock_files(path) == []


async def test_a_sign_that_is_called_off_at_once_leaves_nothing(open_database: OpenDatabase, path: Path) -> None:
    """Cancelled at any of its first turns, a worker leaves neither row nor lock."""
    database = await open_database()
    storage = storage_of(database)

    async def cancelled_after(turns: int, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    for turns in range(12):
        await cancelled_after(turns, storage.queue.keep_alive("worker"))
        assert await seen(database) == {}
        assert lock_files(path) == []
