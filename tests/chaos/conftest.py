"""What tests with real processes share: where processes come from, and fresh places to play at."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.kit.postgres import PostgresUnavailableError
from tests.programs.chaos.forkserver import ForkServer
from tests.programs.chaos.places import Place, Places
from tests.programs.chaos.stage import Stage

_NUMBERS = count()

OpenPlace = Callable[..., AbstractAsyncContextManager[Place]]
OpenStage = Callable[..., AbstractAsyncContextManager[Stage]]


@pytest.fixture(scope="session", autouse=True)
def is_possible() -> None:
    """Processes are watched by handles that only Linux has."""
    if not hasattr(os, "pidfd_open"):
        pytest.skip("real processes are watched by pidfd, which is Linux's own")


@pytest.fixture(scope="session")
def forkserver(is_possible: None) -> Iterator[ForkServer]:
    """The process that all workers are forks of."""
    with ForkServer() as running:
        yield running


@pytest.fixture(scope="session")
def sqlite() -> Iterator[Places]:
    """Files."""
    with Places() as places:
        yield places


@pytest.fixture(scope="session")
def postgres() -> Iterator[Places]:
    """Schemas of a real Postgres: started by the first test that asks for it, gone with the last."""
    try:
        places = Places("postgres").__enter__()
    except PostgresUnavailableError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))
    yield places
    places.__exit__(None, None, None)


@pytest.fixture(params=["sqlite", "postgres"])
def open_place(request: pytest.FixtureRequest, tmp_path: Path) -> OpenPlace:
    """Opens a fresh place, once in SQLite and once in Postgres."""
    places: Places = request.getfixturevalue(request.param)
    return lambda **options: places.fresh(f"test_{next(_NUMBERS)}", tmp_path, **options)


@pytest.fixture
def open_stage(open_place: OpenPlace, forkserver: ForkServer) -> OpenStage:
    """Opens a stage at a fresh place; `lease_s` is the place's, the other options the stage's."""

    @asynccontextmanager
    async def opened(*goals: str, lease_s: float = 0.0, **options: Any) -> AsyncIterator[Stage]:
        async with open_place(lease_s=lease_s) as place, Stage(place, forkserver, goals, **options) as stage:
            yield stage

    return opened
