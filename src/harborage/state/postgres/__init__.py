"""Storage in Postgres, for processes on several machines: records, runs and events over one pool of connections.

Needs the extra `postgres`, which is imported when a database is opened. Tables and statements are in the `.sql` files
beside this one.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from harborage.clock import SYSTEM_CLOCK, Timers
from harborage.state.postgres.artifacts import PostgresArtifacts
from harborage.state.postgres.database import Database
from harborage.state.postgres.records import PostgresStateStore
from harborage.state.storage import Storage

if TYPE_CHECKING:
    from harborage.state.store import StateConfig, StateStore

__all__ = [
    "Database",
    "PostgresArtifacts",
    "PostgresStateStore",
    "make",
    "open_postgres",
    "storage_of",
]


def storage_of(database: Database, *, clock: Timers = SYSTEM_CLOCK, lease: timedelta | None = None) -> Storage:
    """The storage over an open database, which is closed with it; a frozen process loses its runs after a `lease`."""
    # Here, since that store works on the database of this package.
    from harborage.store.postgres import LEASE, PostgresStore

    return Storage(
        state=PostgresStateStore(database, clock=clock),
        store=PostgresStore(database, clock=clock, lease=LEASE if lease is None else lease),
        artifacts=PostgresArtifacts(database),
        beneath=database,
    )


async def open_postgres(url: str, clock: Timers) -> Storage:
    """Everything in the database that `url` names, its tables brought up to date.

    Raises:
        MissingExtraError: the extra `postgres` is not installed.
        StorageUrlError: the url means no database.
        DatabaseError: it cannot be opened; the text has no password.
    """
    return storage_of(await Database.open(url), clock=clock)


async def make(config: StateConfig) -> StateStore:
    """The records alone, over a pool of their own that is closed with them; `config.dsn` is the database's url."""
    database = await Database.open(config.dsn)
    return PostgresStateStore(database, beneath=database.aclose)
