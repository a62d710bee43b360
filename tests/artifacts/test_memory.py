"""The artifact store in memory keeps the port's contract and never confuses contents that share an id."""

from __future__ import annotations

import pytest

from harborage.artifacts import (
    ArtifactScope,
    ArtifactStore,
    ArtifactStoreClosedError,
    MemoryArtifactStore,
    memory,
    values,
)
from harborage.testing.conformance.artifacts import SCENARIOS, Scenario, check, run_conformance

SCOPE = ArtifactScope("tenant", "user", "session")


async def open_memory() -> ArtifactStore:
    """An empty store."""
    return MemoryArtifactStore()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_it_keeps_the_contract(scenario: Scenario) -> None:
    """Every scenario of the port's suite holds."""
    await check(scenario, open_memory)


async def test_the_whole_suite_runs_in_one_call() -> None:
    """A driver's author can run everything without pytest."""
    await run_conformance(open_memory)


async def test_contents_with_the_same_short_hash_are_kept_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole hash is compared: other content under a taken id gets a longer one, and keeps it."""
    digests = {b"one": "a" * 12 + "1" * 52, b"two": "a" * 12 + "2" * 52, b"three": "a" * 12 + "22" + "3" * 50}

    async def fake(data: bytes) -> str:
        return digests[data]

    monkeypatch.setattr(memory, "hash_content", fake)
    store = MemoryArtifactStore()
    refs = {data: await store.put_bytes(SCOPE, data) for data in digests}
    assert [ref.id for ref in refs.values()] == [
        "default_aaaaaaaaaaaa",
        "default_aaaaaaaaaaaa2222",
        "default_aaaaaaaaaaaa2233",
    ]
    assert [await store.get(SCOPE, ref.id) for ref in refs.values()] == list(digests)
    assert await store.put_bytes(SCOPE, b"two") == refs[b"two"]


async def test_a_longer_id_is_found_again_when_the_shorter_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Content that had to take a longer id is not stored a second time when the shorter one is deleted."""

    async def fake(data: bytes) -> str:
        return "a" * 12 + data.hex().ljust(52, "0")

    monkeypatch.setattr(memory, "hash_content", fake)
    store = MemoryArtifactStore()
    short, long = await store.put_bytes(SCOPE, b"one"), await store.put_bytes(SCOPE, b"two")
    await store.delete(SCOPE, short.id)
    assert await store.put_bytes(SCOPE, b"two") == long
    assert await store.list(SCOPE) == [long]


async def test_a_store_closed_while_content_is_hashed_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A put that finds the store closed when the hash is ready is refused."""
    store = MemoryArtifactStore()

    async def close_first(data: bytes) -> str:
        await store.aclose()
        return values.sha256_hex(data)

    monkeypatch.setattr(memory, "hash_content", close_first)
    with pytest.raises(ArtifactStoreClosedError):
        await store.put_bytes(SCOPE, b"x")


async def test_a_deleted_session_leaves_nothing_behind() -> None:
    """Nothing in the store grows with sessions that came and went."""
    store = MemoryArtifactStore()
    for index in range(3):
        scope = ArtifactScope("tenant", "user", f"session {index}", "task")
        await store.delete(scope, (await store.put_bytes(scope, b"x")).id)
    assert store._sessions == {}


async def test_a_closed_store_holds_no_data() -> None:
    """Whoever keeps a closed store does not keep its bytes."""
    store = MemoryArtifactStore()
    await store.put_bytes(SCOPE, b"x")
    await store.aclose()
    assert store._sessions == {}


async def test_small_content_is_hashed_at_once_and_large_content_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hash that would hold up the event loop is computed elsewhere; both are the same hash."""
    hops: list[int] = []

    async def to_thread(work: object, data: bytes) -> str:
        hops.append(len(data))
        return values.sha256_hex(data)

    monkeypatch.setattr(values.asyncio, "to_thread", to_thread)
    small, large = b"x" * 1000, b"x" * 1_000_000
    assert await values.hash_content(small) == values.sha256_hex(small)
    assert hops == []
    assert await values.hash_content(large) == values.sha256_hex(large)
    assert hops == [len(large)]
