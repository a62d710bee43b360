"""The bare side of what is kept: rows put into one table of blobs, on the same disk or server, and nothing else."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol, TypeAlias

import apsw

_Waiter: TypeAlias = tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]


class BareInserts(Protocol):
    """A table that rows go into."""

    async def commit(self, rows: int) -> None:
        """Insert so many rows in one transaction, which is on disk at its end."""
        ...

    def shared(self) -> Awaitable[object]:
        """Insert one row, together with those that others insert meanwhile; it is on disk once this is done."""
        ...

    async def aclose(self) -> None:
        """Let go of it."""
        ...


class _SQLite:
    def __init__(self, path: Path, row: bytes) -> None:
        self._row = (row,)
        self._connection = apsw.Connection(str(path))
        self._connection.execute("PRAGMA journal_mode = wal; PRAGMA synchronous = full")
        self._connection.execute("CREATE TABLE kept (id INTEGER PRIMARY KEY, data BLOB)")
        self._waiting: SimpleQueue[_Waiter | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()

    async def commit(self, rows: int) -> None:
        self._insert(rows)

    def _insert(self, rows: int) -> None:
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        for _ in range(rows):
            execute("INSERT INTO kept (data) VALUES (?)", self._row)
        execute("COMMIT")

    def shared(self) -> Awaitable[object]:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._waiting.put((loop, future))
        return future

    async def aclose(self) -> None:
        self._waiting.put(None)
        self._thread.join()
        self._connection.close()

    def _live(self) -> None:
        while (first := self._waiting.get()) is not None:
            waiters = [first]
            while not self._waiting.empty() and (other := self._waiting.get()) is not None:
                waiters.append(other)
            self._insert(len(waiters))
            waiters[0][0].call_soon_threadsafe(_tell, waiters)


class _Postgres:
    def __init__(self, connection: Any, row: bytes) -> None:
        self._connection = connection
        self._row = row
        self._waiting: list[asyncio.Future[None]] = []
        self._committing: asyncio.Task[None] | None = None

    async def commit(self, rows: int) -> None:
        if rows == 1:
            await self._connection.execute("INSERT INTO bare_kept (data) VALUES ($1)", self._row)
            return
        async with self._connection.transaction():
            await self._connection.executemany("INSERT INTO bare_kept (data) VALUES ($1)", [(self._row,)] * rows)

    async def shared(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        if self._committing is None or self._committing.done():
            self._committing = asyncio.create_task(self._commit_waiting())
        await waiter

    async def _commit_waiting(self) -> None:
        while waiters := self._waiting:
            self._waiting = []
            await self.commit(len(waiters))
            for waiter in waiters:
                waiter.set_result(None)

    async def aclose(self) -> None:
        await self._connection.close()


def _tell(waiters: Sequence[_Waiter]) -> None:
    for _, future in waiters:
        future.set_result(None)


async def bare_sqlite(path: Path, row: bytes) -> BareInserts:
    """A table in a file of its own."""
    return _SQLite(path, row)


async def bare_postgres(url: str, row: bytes) -> BareInserts:
    """A table in the database of `url`."""
    import asyncpg  # type: ignore[import-untyped]

    connection = await asyncpg.connect(url)
    await connection.execute("CREATE TABLE bare_kept (id bigserial PRIMARY KEY, data bytea)")
    return _Postgres(connection, row)


async def commit_times(bare: BareInserts, count: int) -> list[float]:
    """The seconds that each of so many commits of one row takes."""
    spent: list[float] = []
    for _ in range(count):
        begin = time.perf_counter()
        await bare.commit(1)
        spent.append(time.perf_counter() - begin)
    return spent
