"""Everything kept in one SQLite file: nothing to install or to start, and several processes may share it.

The stores are thin, and share the `Database` of `harborage.store.sqlite`, which has the tables of all of them.
Importing this loads SQLite, so it is named by lazy targets and imported when a database is opened.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from harborage.clock import SYSTEM_CLOCK, Timers
from harborage.state.errors import StorageUrlError
from harborage.state.sqlite.records import SQLiteStateStore
from harborage.state.storage import Storage
from harborage.store.sqlite import LEASE, Database, SQLiteStore

if TYPE_CHECKING:
    from harborage.state.store import StateConfig, StateStore

__all__ = [
    "SQLiteStateStore",
    "make",
    "open_sqlite",
    "open_to_read",
    "storage_of",
]


def storage_of(
    database: Database, *, clock: Timers = SYSTEM_CLOCK, lease: timedelta = LEASE, is_read_only: bool = False
) -> Storage:
    """The storage over an open database, which is closed with it; a frozen process loses its runs after a `lease`."""
    return Storage(
        state=SQLiteStateStore(database, clock=clock),
        store=SQLiteStore(database, clock=clock, lease=lease),
        artifact_folder=str(database.path.absolute().parent / "artifacts"),
        beneath=database,
        is_read_only=is_read_only,
    )


async def open_sqlite(url: str, clock: Timers) -> Storage:
    """The storage in the file that `sqlite:PATH`, or a bare path, names; file and folder are made when missing.

    Raises:
        StorageUrlError: no file is named.
        DatabaseError: the file cannot be used.
    """
    return storage_of(await Database.open(_path(url)), clock=clock)


async def open_to_read(url: str, clock: Timers) -> Storage:
    """The storage in a file that may not be written: nothing is made, and every write is refused.

    Raises:
        StorageUrlError: no file is named.
        DatabaseError: it cannot be read.
    """
    return storage_of(await Database.open(_path(url), is_read_only=True), clock=clock, is_read_only=True)


async def make(config: StateConfig) -> StateStore:
    """The record store in the file that `dsn` names, a path or `sqlite:PATH`; closing it closes the database.

    Raises:
        StorageUrlError: no file is named.
        DatabaseError: the file cannot be used.
    """
    return SQLiteStateStore(await Database.open(_path(config.dsn)), owns_database=True)


def _path(url: str) -> str:
    path = url[len("sqlite:") :] if url.lower().startswith("sqlite:") else url
    if path.startswith("//"):
        raise StorageUrlError(f"write sqlite:PATH in place of {url!r}, such as sqlite:data.db or sqlite:/var/data.db")
    if not path.strip():
        raise StorageUrlError("sqlite: names no file; write sqlite:PATH")
    if path == ":memory:":
        raise StorageUrlError("a storage in memory is memory:, not SQLite's own")
    return path
