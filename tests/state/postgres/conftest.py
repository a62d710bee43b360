"""A real Postgres for the tests of this folder, a schema of its own in it for each of them, and a way to break it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count

import pytest

from harborage.clock import SYSTEM_CLOCK
from harborage.state.postgres import open_postgres
from harborage.state.storage import Storage
from tests.kit import postgres_places
from tests.kit.postgres import PostgresServer, PostgresUnavailableError

_NUMBERS = count()


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    """The server: started by the first test that asks for it, gone with the last."""
    try:
        # Nothing here pulls the plug: a process that dies loses nothing without fsync, either.
        running = PostgresServer({"fsync": "off"}).__enter__()
    except PostgresUnavailableError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))
    yield running
    running.close()


class Place(postgres_places.Place[Storage]):
    """A fresh schema, with as many storages over it as wanted."""

    async def open(self) -> Storage:
        """One more storage, as another process would have it."""
        return self.keep(await open_postgres(self.url, SYSTEM_CLOCK))


@pytest.fixture
def new_place(server: PostgresServer) -> Callable[[], Place]:
    """Makes a fresh `Place`; to be entered."""
    return lambda: Place(server, f"place_{next(_NUMBERS)}")


@pytest.fixture
async def place(new_place: Callable[[], Place]) -> AsyncIterator[Place]:
    """A fresh `Place`."""
    async with new_place() as found:
        yield found


@pytest.fixture
async def proxy(server: PostgresServer) -> AsyncIterator[postgres_places.BreakingProxy]:
    """A way to the server that breaks when it is told to."""
    async with postgres_places.BreakingProxy("127.0.0.1", server.port) as found:
        yield found
