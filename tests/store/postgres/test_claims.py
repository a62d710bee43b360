"""A claim never waits for another, and what it leaves or takes is not forgotten."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from harborage.store import Change, Status
from harborage.store.times import micros
from harborage.testing.clock import FakeClock
from harborage.testing.conformance.store_bench import claim, row, start, step

PATIENCE_S = 20.0


@pytest.mark.parametrize("is_due", [False, True], ids=["ready", "due"])
async def test_a_run_that_was_locked_is_looked_for_again(place: Any, is_due: bool) -> None:
    """Somebody who holds a run's row and changes nothing tells nobody; whoever could not claim it looks once more."""
    clock = FakeClock()
    store = await place.open(clock)
    await store.join("one")
    notified = asyncio.Event()
    store.on_change(notified.set)
    async with asyncio.timeout(PATIENCE_S):
        await notified.wait()  # it listens now
    if is_due:
        lease = await start(store, "r", worker="one")
        wait = Change(status=Status.PAUSED, release=True, wake_at=micros(clock.now()) + 1)
        await store.commit(step(lease, 1, b"w", change=wait))
        clock.advance(1)
    else:
        await start(store, "r")
    async with place.admin.transaction():
        await place.admin.execute("select from harborage_runs where run_id = 'r' for no key update")
        notified.clear()
        await claim(store, "one")
    async with asyncio.timeout(PATIENCE_S):
        await notified.wait()
    await claim(store, "one", "r")
    notified.clear()
    await claim(store, "one")
    assert store._notifier._soon is None  # nothing is left


async def test_a_claim_that_comes_after_its_worker_has_left_takes_nothing(place: Any) -> None:
    """A worker that stops does not wait for the claim that it gives up: what that took would belong to nobody."""
    store = await place.open()
    await store.join("one")
    await claim(store, "one")
    await start(store, "r")
    async with place.admin.transaction():
        held = "select from harborage_writers where name = $1 for update"
        await place.admin.execute(held, store._lanes[1].name)
        claiming = asyncio.create_task(store.claim("one"))
        await place.has_come("select count(*) = 1 from pg_locks where not granted")
        await store.leave("one")
    assert await claiming == []
    assert (await row(store, "r")).owner == ""


async def test_a_worker_leaves_behind_its_last_claim(place: Any) -> None:
    """A claim that has begun takes runs for a worker that is there, and they are freed with the others."""
    store = await place.open()
    await store.join("one")
    await start(store, "r")
    async with place.admin.transaction():
        await place.admin.execute("lock table harborage_runs in exclusive mode")
        claiming = asyncio.create_task(store.claim("one"))
        await place.has_come("select count(*) = 1 from pg_locks where not granted")
        leaving = asyncio.create_task(store.leave("one"))
        await place.has_come("select count(*) = 2 from pg_locks where not granted")
        assert await place.admin.fetchval("select count(*) from harborage_workers") == 1
    await claiming
    await leaving
    found = await row(store, "r")
    assert (found.owner, found.fence, found.is_woken) == ("", 1, True)
