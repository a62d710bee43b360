"""Storage in Postgres, for processes on several machines: records, runs and events over one pool of connections.

Needs the extra `postgres`, which is imported when a database is opened. Tables and statements are in the `.sql` files
beside this one.
"""

from __future__ import annotations

from harborage.clock import Timers
from harborage.state.drivers import StateConfig
from harborage.state.postgres.database import Database
from harborage.state.postgres.event_log import PostgresEventLog
from harborage.state.postgres.records import PostgresStateStore
from harborage.state.postgres.runs import PostgresRuns
from harborage.state.storage import Storage
from harborage.state.store import StateStore

__all__ = ["Database", "PostgresEventLog", "PostgresRuns", "PostgresStateStore", "make", "open_postgres"]


async def open_postgres(url: str, clock: Timers) -> Storage:
    """Everything in the database that `url` names, its tables brought up to date.

    Raises:
        MissingExtraError: the extra `postgres` is not installed.
        StorageUrlError: the url means no database.
        DatabaseError: it cannot be opened; the text has no password.
    """
    database = await Database.open(url)
    runs = PostgresRuns(database, clock=clock)
    return Storage(
        state=PostgresStateStore(database, clock=clock),
        runs=runs,
        queue=runs,
        events=PostgresEventLog(database),
        beneath=database,
    )


async def make(config: StateConfig) -> StateStore:
    """The records alone, over a pool of their own that is closed with them; `config.dsn` is the database's url."""
    database = await Database.open(config.dsn)
    return PostgresStateStore(database, beneath=database.aclose)
