"""Stores in Postgres share bodies and names without losing either while several write at once."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

from harborage.store import Change, Commit, Lease, NewRun, Status
from harborage.store.postgres import PostgresStore
from harborage.testing.clock import FakeClock
from harborage.testing.conformance.store_bench import ME, claim, start, step

BODY = b"shared" * 1000
NAME = hashlib.sha256(BODY).hexdigest()


async def test_a_body_is_kept_while_anybody_names_it(place: Any) -> None:
    """Runs that come to name a body while others that name it are deleted never lose it."""
    one, two = await place.open(), await place.open()

    async def begin(store: PostgresStore, run_id: str) -> None:
        new = NewRun(run_id=run_id, who=ME, entries=(b"x",), worker="worker")
        await store.commit(Commit(starts=(new,), bodies={NAME: BODY}))

    async def end(store: PostgresStore, run_id: str) -> None:
        await store.commit(step(Lease(run_id, "worker", 1), 1, change=Change(status=Status.COMPLETE)))

    for turn in range(25):
        names = [f"{what} {turn}" for what in ("old", "new", "next")]
        await begin(one, names[0])
        await end(one, names[0])
        await asyncio.gather(one.delete([names[0]]), begin(two, names[1]))
        assert await one.body(names[1], NAME) == BODY
        await end(two, names[1])
        await asyncio.gather(two.delete([names[1]]), begin(one, names[2]))
        assert await two.body(names[2], NAME) == BODY
        await end(one, names[2])
        await one.delete([names[2]])
    assert await place.admin.fetchval("select count(*) from harborage_bodies") == 0


async def test_a_worker_that_is_late_may_live_on(place: Any) -> None:
    """A worker that counted as dead rejoins with its next sign of life, and keeps the runs that it claims then."""
    clock = FakeClock()
    mine, theirs = await place.open(clock), await place.open(clock)
    await mine.join("late")
    await theirs.join("heir")
    await start(mine, "r", worker="late")
    for _ in range(5):
        assert await theirs.beat("heir") == 0
        clock.advance(14)
    assert await theirs.beat("heir") == 1
    await claim(theirs, "heir", "r")
    await start(mine, "s")
    (claimed,) = await claim(mine, "late", "s")
    assert await theirs.beat("heir") == 0
    await mine.commit(step(claimed.row.lease, 1, b"x"))
