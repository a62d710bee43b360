"""The bench of a storage in SQLite: a file in a folder of its own, removed with the bench."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harborage.state.sqlite import Database, storage_of

if TYPE_CHECKING:
    from harborage.state.storage import Storage
    from harborage.testing.conformance.storage_bench import StorageBench

__all__ = ["SQLiteStorageBench", "open_sqlite_bench"]


class SQLiteStorageBench:
    """A storage in the file `path`; each further connection has threads and locks of its own."""

    def __init__(self, path: Path, database: Database) -> None:
        self.path = path
        self.database = database
        self.storage = storage_of(database)
        self._others: list[Storage] = []

    async def another(self) -> Storage:
        other = storage_of(await Database.open(self.path))
        self._others.append(other)
        return other

    async def lose_entry(self, run_id: str, entry: int) -> bool:
        sql = (
            "DELETE FROM harborage_entries WHERE position = ? + 1"
            " AND run = (SELECT number FROM harborage_runs WHERE run_id = ?)"
        )
        await self._damage(sql, (entry, run_id))
        return True

    async def spoil_body(self, digest: str, data: bytes | None) -> None:
        if data is None:
            await self._damage("DELETE FROM harborage_bodies WHERE digest = ?", (digest,))
        else:
            await self._damage("UPDATE harborage_bodies SET data = ? WHERE digest = ?", (data, digest))

    async def count_bodies(self) -> int:
        count: Any = await self.database.read(lambda tx: tx.execute("SELECT count(*) FROM harborage_bodies").get)
        return int(count)

    async def aclose(self) -> None:
        try:
            for storage in (self.storage, *self._others):
                await storage.aclose()
        finally:
            await asyncio.to_thread(shutil.rmtree, self.path.parent)

    async def _damage(self, sql: str, values: tuple[Any, ...]) -> None:
        await self.database.write(lambda tx: tx.execute(sql, values))


async def open_sqlite_bench() -> StorageBench:
    """The bench of a fresh storage in SQLite."""
    path = Path(tempfile.mkdtemp(prefix="harborage-")) / "harborage.db"
    return SQLiteStorageBench(path, await Database.open(path))
