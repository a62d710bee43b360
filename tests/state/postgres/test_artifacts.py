"""Postgres keeps artifacts as every artifact store does, for all processes, and says what it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from harborage.artifacts import ArtifactCorruptError, ArtifactScope, ArtifactStore
from harborage.artifacts.values import candidate_ids
from harborage.state.errors import StoreClosedError
from harborage.testing.conformance.artifacts import SCENARIOS, Scenario, check, check_durability

pytestmark = pytest.mark.anyio

SCOPE = ArtifactScope("tenant", "user", "session")


@pytest.fixture
async def opened(place: Any) -> AsyncIterator[Callable[[], Awaitable[ArtifactStore]]]:
    """Opens the artifacts of a fresh schema, as another process would each time."""

    async def open_store() -> ArtifactStore:
        store: ArtifactStore = (await place.open()).artifacts
        return store

    return open_store


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_conformance(scenario: Scenario, opened: Callable[[], Awaitable[ArtifactStore]]) -> None:
    """The suite for every artifact store."""
    await check(scenario, opened)


async def test_what_was_put_outlives_the_process(opened: Callable[[], Awaitable[ArtifactStore]]) -> None:
    """The next process finds it, and what was deleted it does not."""
    await check_durability(opened)


async def test_processes_that_put_the_same_give_one_reference(opened: Callable[[], Awaitable[ArtifactStore]]) -> None:
    """Whoever comes first names it."""
    stores = [await opened() for _ in range(3)]
    refs = await asyncio.gather(*(store.put_bytes(SCOPE, b"same") for store in stores for _ in range(5)))
    assert len({ref.id for ref in refs}) == 1
    assert len(await stores[0].list(SCOPE)) == 1


async def test_another_content_under_the_short_id_gives_a_longer_one(
    place: Any, opened: Callable[[], Awaitable[ArtifactStore]]
) -> None:
    """The whole hash is compared, never the id alone."""
    store = await opened()
    ref = await store.put_bytes(SCOPE, b"one")
    await place.admin.execute("update harborage_artifacts set sha256 = $1", "0" * 64)
    again = await store.put_bytes(SCOPE, b"one")
    assert [ref.id, again.id] == list(candidate_ids("default", ref.sha256))[:2]


async def test_damaged_bytes_are_not_given_out(place: Any, opened: Callable[[], Awaitable[ArtifactStore]]) -> None:
    """The error names the artifact; an entry that cannot be read says so, too."""
    store = await opened()
    ref = await store.put_bytes(SCOPE, b"good")
    await place.admin.execute("update harborage_artifacts set data = $1", b"bad!")
    with pytest.raises(ArtifactCorruptError, match=ref.id):
        await store.get(SCOPE, ref.id)
    await place.admin.execute("update harborage_artifacts set entry = $1", b"{")
    with pytest.raises(ArtifactCorruptError, match=ref.id):
        await store.get_ref(SCOPE, ref.id)


async def test_a_closed_database_says_so(place: Any) -> None:
    """The storage was closed beneath the artifacts."""
    storage = await place.open()
    store = storage.artifacts
    await storage.beneath.aclose()
    with pytest.raises(StoreClosedError):
        await store.get(SCOPE, "default_x")
