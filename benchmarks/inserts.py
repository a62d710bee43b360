"""The bare side of what is kept: rows put into one table of blobs, on the same disk or server, and nothing else."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Protocol

import apsw

__all__ = ["BareInserts", "bare_postgres", "bare_sqlite", "commit_times"]


class BareInserts(Protocol):
    """A table that rows go into."""

    async def commit(self, rows: int) -> None:
        """Insert so many rows in one transaction, which is on disk at its end."""
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

    async def commit(self, rows: int) -> None:
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        for _ in range(rows):
            execute("INSERT INTO kept (data) VALUES (?)", self._row)
        execute("COMMIT")

    async def aclose(self) -> None:
        self._connection.close()


class _Postgres:
    def __init__(self, connection: Any, row: bytes) -> None:
        self._connection = connection
        self._row = row

    async def commit(self, rows: int) -> None:
        if rows == 1:
            await self._connection.execute("INSERT INTO bare_kept (data) VALUES ($1)", self._row)
            return
        async with self._connection.transaction():
            await self._connection.executemany("INSERT INTO bare_kept (data) VALUES ($1)", [(self._row,)] * rows)

    async def aclose(self) -> None:
        await self._connection.close()


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
