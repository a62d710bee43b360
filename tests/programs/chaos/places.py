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

__all__ = ["Place", "Places", "open_at"]

_SQLITE = "sqlite"
# Nobody pulls the plug here; and every process may have a pool of its own, those that died a moment ago too.
_SETTINGS = {"fsync": "off", "max_connections": "500"}
_LONG_LEASE_S = 60.0
_SHORT_LEASE_S = 2.0


class Place(msgspec.Struct, frozen=True):
    """One story's own place; a process that stands still for `lease_s` counts as dead there."""

    url: str
    lease_s: float


class Places:
    """Makes places: `sqlite`, `postgres` for a server that is started for the purpose, or the url of a Postgres.

    Leases in Postgres are shorter than they usually are, since it takes one to find out that a process is dead.
    """

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
    async def fresh(self, name: str, folder: Path, *, lease_s: float = 0.0) -> AsyncIterator[Place]:
        """A place of that name for a `with` block; files go into the folder."""
        if self._kind == _SQLITE:
            yield Place(f"sqlite:{folder / 'runs.db'}", lease_s or _LONG_LEASE_S)
            return
        schema = f"chaos_{name}"
        await self._execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE', f'CREATE SCHEMA "{schema}"')
        try:
            yield Place(self._url(schema), lease_s or _SHORT_LEASE_S)
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


async def open_at(place: Place, clock: Timers) -> Storage:
    """The storage at this place, by this clock."""
    lease = timedelta(seconds=place.lease_s)
    if place.url.startswith("sqlite:"):
        from harborage.state.sqlite import storage_of
        from harborage.store.sqlite import Database

        database = await Database.open(place.url.removeprefix("sqlite:"))
        return storage_of(database, clock=clock, lease=lease)
    from harborage.state import postgres

    return postgres.storage_of(await postgres.Database.open(place.url), clock=clock, lease=lease)
