"""Stores with many runs: a file in a folder of its own, and a schema of a server that is started for it."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from benchmarks.inserts import BareInserts, bare_postgres, bare_sqlite
from benchmarks.million.filling import filling
from harborage.state.postgres.driver import load_driver
from harborage.state.storage import Storage, open_storage
from harborage.store import EVENT_STEP
from tests.kit.postgres import PostgresServer

_FILLING_S = 1800.0
_PAGES_KB = 200_000
_ROW = b"." * 300


class Place(NamedTuple):
    """A storage that is open, what others open it by, the url or the file, and a bare table beside it."""

    storage: Storage
    bare: BareInserts
    url: str
    path: Path | None


@asynccontextmanager
async def sqlite_place(runs: int) -> AsyncIterator[Place]:
    """A file with so many runs; nobody tells SQLite what its tables hold."""
    with tempfile.TemporaryDirectory(prefix="harborage-") as folder:
        path = Path(folder) / "harborage.db"
        await (await open_storage(str(path))).aclose()
        connection = apsw.Connection(str(path))
        connection.execute(f"PRAGMA cache_size = -{_PAGES_KB}").fetchall()
        connection.execute("PRAGMA journal_mode = off").fetchall()  # nobody else looks, and nothing is to be kept
        connection.execute("PRAGMA synchronous = off").fetchall()
        for _, statement in filling(runs, lambda data: f"x'{data.hex()}'"):
            connection.execute(statement).fetchall()
        connection.execute("PRAGMA journal_mode = wal").fetchall()
        connection.close()
        async with (
            await open_storage(str(path)) as storage,
            aclosing(await bare_sqlite(Path(folder) / "bare.db", _ROW)) as bare,
        ):
            yield Place(storage, bare, str(path), path)


@asynccontextmanager
async def postgres_place(runs: int) -> AsyncIterator[Place]:
    """A server with so many runs, as its autovacuum leaves it.

    Raises:
        PostgresUnavailableError: none can be started here.
    """
    with PostgresServer() as server:
        await (await open_storage(server.url)).aclose()
        connection: Any = await load_driver().connect(server.url)
        for _, statement in filling(runs, lambda data: f"'\\x{data.hex()}'::bytea"):
            await connection.execute(statement, timeout=_FILLING_S)
        last = await connection.fetchval("select max(sequence) from harborage_events")
        await connection.execute(f"select setval('harborage_sequence', {last // EVENT_STEP * EVENT_STEP})")
        await connection.execute("vacuum analyze", timeout=_FILLING_S)
        await connection.close()
        async with await open_storage(server.url) as storage, aclosing(await bare_postgres(server.url, _ROW)) as bare:
            yield Place(storage, bare, server.url, None)
