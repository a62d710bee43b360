"""Fixtures over a real Postgres; the conftest of a folder imports them and defines `place_type`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from typing import Any, TypeVar

import pytest

from tests.kit.postgres import PostgresServer, PostgresUnavailableError
from tests.kit.postgres_places import BreakingProxy, Place

T = TypeVar("T")

_NUMBERS = count()


@contextmanager
def opened_or_skipped(opening: AbstractContextManager[T]) -> Iterator[T]:
    """Open what needs a Postgres; where that cannot be started the tests are skipped, on CI they fail."""
    try:
        opened = opening.__enter__()
    except PostgresUnavailableError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))
    try:
        yield opened
    finally:
        opening.__exit__(None, None, None)


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    """The server: started by the first test that asks for it, stopped after the last."""
    # No test cuts the power: a process that dies loses nothing without fsync, either.
    with opened_or_skipped(PostgresServer({"fsync": "off"})) as running:
        yield running


@pytest.fixture
def new_place(server: PostgresServer, place_type: type[Place[Any]]) -> Callable[[], Place[Any]]:
    """Makes a fresh `Place`; to be entered."""
    return lambda: place_type(server, f"place_{next(_NUMBERS)}")


@pytest.fixture
async def place(new_place: Callable[[], Place[Any]]) -> AsyncIterator[Place[Any]]:
    """A fresh `Place`."""
    async with new_place() as found:
        yield found


@pytest.fixture
async def proxy(server: PostgresServer) -> AsyncIterator[BreakingProxy]:
    """A way to the server that breaks on request."""
    async with BreakingProxy("127.0.0.1", server.port) as found:
        yield found
