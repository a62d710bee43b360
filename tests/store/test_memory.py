"""What is the store in memory's own, beside what every store promises."""

from __future__ import annotations

import pytest

from harborage.identity import Quadruple
from harborage.store import Commit, Guard, Lease
from harborage.store.memory import MemoryStore
from tests.kit.stored_runs import keep, row_of

pytestmark = pytest.mark.anyio

ME = Quadruple("t", "u", "s", "r")


async def test_what_was_read_is_the_readers_own() -> None:
    """Changing it changes nothing in the store, and neither does changing what was handed in."""
    store = MemoryStore()
    handed = [b"1"]
    await keep(store, ME, handed)
    handed.append(b"2")
    (await store.entries("r")).append(b"3")
    (claim,) = await store.claim("worker")
    claim.entries.append(b"4")
    assert await store.entries("r") == [b"1"]


async def test_entries_that_were_appended_at_once_are_counted_and_kept_in_order() -> None:
    """Without an await between them, and whether the run's row is read meanwhile or not."""
    store = MemoryStore()
    await keep(store, ME, [b"0"])
    await store.claim("worker")
    for number in range(1, 5):
        guard = Guard(lease=Lease("r", "worker", 1), position=number)
        store.commit_now(Commit(guard=guard, entries=(b"%d" % number,)))
        if number % 2:
            assert (await row_of(store, "r")).position == number + 1
    assert await store.entries("r") == [b"0", b"1", b"2", b"3", b"4"]
    assert (await row_of(store, "r")).position == 5
