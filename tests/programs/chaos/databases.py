"""Where a chaos story keeps everything: a fresh SQLite file, or a fresh schema of a Postgres."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

import msgspec

from tests.kit.postgres import PostgresServer

if TYPE_CHECKING:
    from harborage.clock import Timers
    from harborage.state.storage import Storage

_SQLITE = "sqlite"
# Nobody pulls the plug here; and every process may have a pool of its own, those that died a moment ago too.
_SETTINGS = {"fsync": "off", "max_connections": "500"}
# Workers beat every ten seconds, so a shorter lease takes living ones for dead; who is killed is found out by its lock.
_LEASE_S = 60.0


class Database(msgspec.Struct, frozen=True):
    """One story's own database; a process that is frozen for `lease_s` loses its leases there."""

    url: str
    lease_s: float


class Databases:
    """Makes databases: `sqlite`, `postgres` for a server that is started for the purpose, or the url of a Postgres."""

    def __init__(self, kind: str = _SQLITE) -> None:
        self._kind = kind
        self._stack = ExitStack()
        self._server: PostgresServer | None = None

    def __enter__(self) -> Self:
        if self._kind == "postgres":
            self._server = self._stack.enter_context(PostgresServer(_SETTINGS))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @asynccontextmanager
    async def fresh(self, name: str, folder: Path, *, lease_s: float = 0.0) -> AsyncIterator[Database]:
        """A database of that name for a `with` block; files go into the folder.

        Give a shorter lease to see what becomes of workers that stand still, and of living ones taken for dead.
        """
        if self._kind == _SQLITE:
            yield Database(f"sqlite:{folder / 'runs.db'}", lease_s or _LEASE_S)
            return
        schema = f"chaos_{name}"
        await self._execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE', f'CREATE SCHEMA "{schema}"')
        try:
            yield Database(self._url(schema), lease_s or _LEASE_S)
        finally:
            await self._execute(f'DROP SCHEMA "{schema}" CASCADE')

    def _url(self, schema: str = "") -> str:
        if self._server is not None:
            return self._server.url_with(search_path=schema) if schema else self._server.url
        joint = "&" if "?" in self._kind else "?"
        return f"{self._kind}{joint}search_path={quote(schema)}" if schema else self._kind

    async def _execute(self, *statements: str) -> None:
        connection: Any = await import_module("asyncpg").connect(self._url())
        try:
            await connection.execute("SET client_min_messages TO warning")
            for one in statements:
                await connection.execute(one)
        finally:
            await connection.close()


async def open_at(database: Database, clock: Timers) -> Storage:
    """The storage at this database, by this clock."""
    lease = timedelta(seconds=database.lease_s)
    if database.url.startswith("sqlite:"):
        from harborage.state.sqlite import storage_of
        from harborage.store.sqlite import Database as SQLiteDatabase

        opened = await SQLiteDatabase.open(database.url.removeprefix("sqlite:"))
        return storage_of(opened, clock=clock, lease=lease)
    from harborage.state import postgres

    return postgres.storage_of(await postgres.Database.open(database.url), clock=clock, lease=lease)
