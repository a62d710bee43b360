"""The bench of a storage in SQLite: a file in a folder of its own, removed with the bench."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from harborage.state.sqlite import storage_of
from harborage.store.sqlite import Database

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

    async def aclose(self) -> None:
        try:
            for storage in (self.storage, *self._others):
                await storage.aclose()
        finally:
            await asyncio.to_thread(shutil.rmtree, self.path.parent)


async def open_sqlite_bench() -> StorageBench:
    """The bench of a fresh storage in SQLite."""
    path = Path(tempfile.mkdtemp(prefix="harborage-")) / "harborage.db"
    return SQLiteStorageBench(path, await Database.open(path))
