"""What one principal writes no other is shown by a server, whatever it asks; with one filter gone that is seen."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from harborage.clock import SYSTEM_CLOCK
from harborage.protocol.methods import ALL_METHODS
from harborage.state.storage import open_storage
from tests.kit.isolation.filters import NOT_SEEN, find_filters, is_missed
from tests.kit.isolation.requests import REQUESTS
from tests.kit.isolation.served_canary import watch_server
from tests.kit.postgres_fixtures import opened_or_skipped
from tests.programs.chaos.databases import Databases, open_at

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def postgres() -> Iterator[Databases]:
    """Schemas of a real Postgres."""
    with opened_or_skipped(Databases("postgres")) as databases:
        yield databases


def test_every_method_is_asked() -> None:
    """Those of both tables."""
    assert set(ALL_METHODS) <= set(REQUESTS)


async def test_no_mark_crosses_in_memory(tmp_path: Path) -> None:
    """Of twelve principals in two tenants, who name each other's ids, sessions and identities."""
    watched = await watch_server(tmp_path, principals=12, requests=250, seed=random.randrange(1_000_000))
    assert watched.leaks == []
    assert watched.shown.total() > 15, "somebody must see something"


async def test_no_mark_crosses_in_a_file(tmp_path: Path) -> None:
    """The same over SQLite."""
    async with await open_storage(f"sqlite:{tmp_path / 'runs.db'}") as storage:
        watched = await watch_server(tmp_path / "files", storage, principals=12, requests=60, seed=3)
    assert watched.leaks == []


async def test_no_mark_crosses_on_postgres(postgres: Databases, tmp_path: Path) -> None:
    """The same over a real server."""
    async with postgres.fresh("served", tmp_path) as at, await open_at(at, SYSTEM_CLOCK) as storage:
        watched = await watch_server(tmp_path, storage, principals=12, requests=60, seed=4)
    assert watched.leaks == []


async def test_a_filter_that_is_gone_is_seen(tmp_path: Path) -> None:
    """A few filters are taken out, one at a time; `make soak` takes out all of them."""
    filters = {one.name: one for one in find_filters()}
    for name in (
        "server.families.runs.find_row: row.who == call.who",
        "server.dispatch.Dispatcher._run: check_identity(method.identity, identity, caller.who)",
        "runtime.host.Runtime._check_owner: status.who.identity != who",
    ):
        assert await is_missed(filters[name], tmp_path, principals=12, requests=100), name


def test_filters_without_a_request_that_shows_them_are_there() -> None:
    """What is said of a filter is said of one that exists."""
    names = [one.name for one in find_filters()]
    assert len(names) > 150
    for begin in NOT_SEEN:
        assert any(name.startswith(begin) for name in names), begin
