"""A real Postgres for the tests of this folder, and a schema of its own in it for each of them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count
from types import TracebackType
from typing import Any

import pytest

from harborage.clock import SYSTEM_CLOCK
from harborage.state.postgres import open_postgres
from harborage.state.storage import Storage
from harborage.testing.postgres import PostgresServer, PostgresUnavailableError

_NUMBERS = count()


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    """The server: started by the first test that asks for it, gone with the last."""
    try:
        running = PostgresServer().__enter__()
    except PostgresUnavailableError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))
    with running:
        yield running


class Place:
    """A fresh schema: as many storages over it as wanted, and a connection to look beneath them."""

    def __init__(self, server: PostgresServer, schema: str, admin: Any) -> None:
        self.server = server
        self.schema = schema
        self.admin = admin
        self._opened: list[Storage] = []

    @property
    def url(self) -> str:
        """What opens a storage here."""
        return self.server.url_with(search_path=self.schema, application_name=self.schema)

    async def open(self) -> Storage:
        """One more storage, as another process would have it."""
        storage = await open_postgres(self.url, SYSTEM_CLOCK)
        self._opened.append(storage)
        return storage

    async def __aenter__(self) -> Place:
        await self.admin.execute(f"create schema {self.schema}")
        await self.admin.execute(f"set search_path to {self.schema}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for storage in self._opened:
            await storage.aclose()
        await self.admin.execute("set client_min_messages to warning")
        await self.admin.execute(f"drop schema {self.schema} cascade")
        await self.admin.close()

    async def break_connections(self) -> int:
        """End every connection of the storages here, as a network or an operator would; returns how many."""
        query = "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = $1"
        broken: int = await self.admin.fetchval(query, self.schema)
        return broken


@pytest.fixture
def new_place(server: PostgresServer) -> Callable[[], Any]:
    """Makes a fresh `Place`; to be entered."""

    async def make() -> Place:
        import asyncpg

        return Place(server, f"place_{next(_NUMBERS)}", await asyncpg.connect(server.url))

    return make


@pytest.fixture
async def place(new_place: Callable[[], Any]) -> AsyncIterator[Place]:
    """A fresh `Place`."""
    async with await new_place() as found:
        yield found
