"""What tests with real processes share: where processes come from, and fresh databases to play at."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.kit.postgres_fixtures import opened_or_skipped
from tests.programs.chaos.cluster import Cluster
from tests.programs.chaos.databases import Database, Databases
from tests.programs.chaos.forkserver import ForkServer

_NUMBERS = count()

OpenDatabase = Callable[..., AbstractAsyncContextManager[Database]]
OpenCluster = Callable[..., AbstractAsyncContextManager[Cluster]]


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
def sqlite() -> Iterator[Databases]:
    """Files."""
    with Databases() as databases:
        yield databases


@pytest.fixture(scope="session")
def postgres() -> Iterator[Databases]:
    """Schemas of a real Postgres: started by the first test that asks for it, stopped after the last."""
    with opened_or_skipped(Databases("postgres")) as databases:
        yield databases


@pytest.fixture(params=["sqlite", "postgres"])
def open_database(request: pytest.FixtureRequest, tmp_path: Path) -> OpenDatabase:
    """Opens a fresh database, once in SQLite and once in Postgres."""
    databases: Databases = request.getfixturevalue(request.param)
    return lambda **options: databases.fresh(f"test_{next(_NUMBERS)}", tmp_path, **options)


@pytest.fixture
def open_cluster(open_database: OpenDatabase, forkserver: ForkServer) -> OpenCluster:
    """Opens a cluster over a fresh database; `lease_s` is the database's, the other options the cluster's."""

    @asynccontextmanager
    async def opened(*goals: str, lease_s: float = 0.0, **options: Any) -> AsyncIterator[Cluster]:
        async with (
            open_database(lease_s=lease_s) as database,
            Cluster(database, forkserver, goals, **options) as cluster,
        ):
            yield cluster

    return opened
