"""The store of runs that tells what is written to it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from harborage.cli.recording import WatchedStore
from harborage.identity import Quadruple
from harborage.runtime.journal import Begun, Entry, encode_entry
from harborage.store import Change, Commit, Guard, Lease, NewRun
from harborage.store.memory import MemoryStore
from tests.kit.kept import row_of

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WHO = Quadruple("acme", "ada", "s1", "r1")


def entry(name: str, payload: bytes = b"1") -> bytes:
    """An entry of that name, as it is stored."""
    return encode_entry(Begun(at=NOW, position="1", name=name, payload=msgspec.Raw(payload), key="r1/1"))


class Listener:
    """Keeps what it is told: the run, the place, and what was begun there."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int, list[str]]] = []
        self.entries: list[Entry] = []

    def __call__(self, run_id: str, place: int, entries: Sequence[Entry]) -> None:
        self.entries += entries
        self.told.append((run_id, place, [one.name for one in entries if isinstance(one, Begun)]))


def started(*entries: bytes, **more: Any) -> Commit:
    """The start of the run, ready for any worker."""
    return Commit(starts=(NewRun(run_id="r1", who=WHO.identity, entries=entries),), **more)


def step(lease: Lease, position: int, *entries: bytes, **more: Any) -> Commit:
    """What a worker writes behind so many entries."""
    return Commit(guard=Guard(lease=lease, position=position), entries=entries, **more)


async def claimed(store: MemoryStore, worker: str) -> Lease:
    """The lease of the run, taken by this worker."""
    (claim,) = await store.claim(worker)
    return claim.row.lease


GIVEN_BACK = Change(release=True, is_ready=True)


async def test_entries_are_told_with_their_place() -> None:
    """Once they are kept, in the order of the journal, whoever wrote what stands before them."""
    inner, listener = MemoryStore(), Listener()
    store = WatchedStore(inner, listener)
    await store.commit(started(entry("a")))
    lease = await claimed(inner, "elsewhere")
    await inner.commit(step(lease, 1, entry("b"), change=GIVEN_BACK))
    lease = await claimed(inner, "here")
    await store.commit(step(lease, 2, entry("c"), entry("d")))
    last = step(lease, 4, entry("e"))
    await store.commit(last)
    assert (await store.commit(last)).is_again
    assert listener.told == [("r1", 0, ["a"]), ("r1", 2, ["c", "d"]), ("r1", 4, ["e"])]
    assert len(await store.entries("r1", after=3)) == 2


async def test_it_knows_what_is_written_here() -> None:
    """A run is written here from the first entry under a lease until somebody else has it."""
    inner = MemoryStore()
    store = WatchedStore(inner, Listener())
    await store.commit(started())
    lease = await claimed(inner, "here")
    assert not store.is_written_here(await row_of(inner, "r1"))
    await store.commit(step(lease, 0, entry("a")))
    assert store.is_written_here(await row_of(inner, "r1"))
    await inner.commit(step(lease, 1, change=GIVEN_BACK))
    await claimed(inner, "elsewhere")
    assert not store.is_written_here(await row_of(inner, "r1"))


async def test_a_large_value_is_told_whole() -> None:
    """What is kept apart from its entry is put back in its place."""
    large = b'"' + b"x" * 9000 + b'"'
    digest = hashlib.sha256(large).hexdigest()
    inner, listener = MemoryStore(), Listener()
    store = WatchedStore(inner, listener)
    slim = entry("a", b'{"$body":"' + digest.encode() + b'"}')
    await store.commit(started(slim, bodies={digest: large}))
    (told,) = listener.entries
    assert isinstance(told, Begun)
    assert bytes(told.payload) == large
    assert await store.body("r1", digest) == large
    await store.aclose()
