"""Workers on one database notice each other's death, and one that was taken for dead cannot write."""

from __future__ import annotations

import asyncio
import signal
from datetime import timedelta
from typing import Any

import pytest

from harborage.store import Commit, NewRun
from harborage.store.errors import LeaseLostError, WorkerKnownError
from harborage.store.postgres import PostgresStore
from harborage.testing.clock import FakeClock
from harborage.testing.conformance.store_bench import ME, claim, row, start, step
from tests.kit.kills import Acknowledged, assert_agrees, busy, read_lines

PATIENCE_S = 40.0


async def freed(store: PostgresStore, worker: str) -> int:
    """How many runs of the dead become free, once any do."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if count := await store.beat(worker):
                return count


async def test_the_runs_of_a_killed_process_are_free(place: Any) -> None:
    """Its lock ends with it, long before its lease; the next worker that looks releases its runs."""
    store = await place.open()
    await store.join("mine")
    async with busy(place.url, "killed", 1) as process:
        await read_lines(process, Acknowledged(), 40)
        process.kill()
        assert await freed(store, "mine") > 0
        assert await store.claim("mine", limit=1) != []


async def test_a_frozen_process_loses_its_runs_and_cannot_write(place: Any) -> None:
    """It keeps its lock, but its beat stands still; what it commits when it thaws is refused."""
    acknowledged = Acknowledged()
    store = place.keep(await PostgresStore.open(place.url, lease=timedelta(seconds=1)))
    await store.join("mine")
    async with busy(place.url, "frozen", 1) as process:
        await read_lines(process, acknowledged, 40)
        process.send_signal(signal.SIGSTOP)
        assert await freed(store, "mine") > 0
        (claimed,) = await store.claim("mine", limit=1)
        position = claimed.row.position
        process.send_signal(signal.SIGCONT)
        await read_lines(process, acknowledged, 40)
        for at in range(position, position + 5):
            await store.commit(step(claimed.row.lease, at, b"mine"))
        assert (await store.entries(claimed.row.run_id))[position:] == [b"mine"] * 5
        process.kill()
    is_over = "select not exists (select from pg_stat_activity where application_name = $1 and state = 'active')"
    await place.has_come(is_over, place.schema)
    await assert_agrees(store, acknowledged)


async def test_a_lost_connection_is_no_death(place: Any) -> None:
    """A worker whose connections break keeps its name and its runs; it takes its lock again with its next beat."""
    clock = FakeClock()
    one, two = await place.open(clock), await place.open(clock)
    await one.join("one")
    await two.join("two")
    lease = await start(one, "r", worker="one")
    for _ in range(3):
        await place.break_connections()
        assert await two.beat("two") == 0
        clock.advance(1)
        assert await two.beat("two") == 0
        await one.beat("one")
        clock.advance(1)
        assert await two.beat("two") == 0
        clock.advance(20)
        assert await two.beat("two") == 0
    await one.commit(step(lease, 1, b"still mine"))
    third = await place.open(clock)
    with pytest.raises(WorkerKnownError):
        await third.join("one")


async def test_a_worker_without_a_lock_is_known_by_its_beat(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a pooler that mixes sessions no lock can be held: deaths are seen when a lease ends, and not before."""
    clock = FakeClock()
    one, two = await place.open(clock), await place.open(clock)

    async def nowhere(name: str, worker: str) -> bool:
        return name == "lock"

    monkeypatch.setattr(one._workers._locks, "_ask", nowhere)
    await one.join("one")
    await two.join("two")
    await start(one, "r", worker="one")
    for _ in range(10):
        clock.advance(10)
        assert await two.beat("two") == 0
        await one.beat("one")
    for _ in range(6):
        assert await two.beat("two") == 0
        clock.advance(10)
    clock.advance(1)
    assert await two.beat("two") == 1
    await claim(two, "two", "r")


async def test_who_was_away_itself_has_seen_nothing(place: Any) -> None:
    """A process that was frozen for long does not take the others for dead, whose beat it could not see."""
    clock = FakeClock()
    one, two = await place.open(clock), await place.open(clock)
    await one.join("one")
    await two.join("two")
    await start(one, "r", worker="one")
    assert await two.beat("two") == 0
    clock.advance(3600)
    assert await two.beat("two") == 0
    assert (await row(one, "r")).owner == "one"


async def test_runs_of_an_unknown_worker_are_free(place: Any) -> None:
    """A run whose owner is in no list of workers goes on with the next worker that joins."""
    store = await place.open()
    await store.join("gone")
    await start(store, "r", worker="gone")
    await place.admin.execute("delete from harborage_workers")
    await store.join("next")
    (claimed,) = await claim(store, "next", "r")
    with pytest.raises(LeaseLostError):
        await store.commit(step(claimed.row.lease._replace(worker="gone", fence=1), 1, b"x"))


async def test_runs_of_an_unknown_worker_are_free_with_the_next_beat(place: Any) -> None:
    """Whoever let their worker go died before its runs were free; nobody has to join for them to go on."""
    store = await place.open()
    await store.join("one")
    await store.join("gone")
    await start(store, "r", worker="gone")
    await place.admin.execute("delete from harborage_workers where name = 'gone'")
    assert await store.beat("one") == 1
    await claim(store, "one", "r")


async def test_the_death_of_a_worker_is_notified(place: Any) -> None:
    """Also of a worker that held no run: it may have died between a commit and the notice of it."""
    clock = FakeClock()
    mine, theirs = await place.open(clock), await place.open(clock)
    await mine.join("mine")
    await theirs.join("theirs")
    notified = asyncio.Event()
    mine.on_change(notified.set)
    async with asyncio.timeout(PATIENCE_S):
        await notified.wait()  # it listens now
    notified.clear()
    for _ in range(5):
        assert await mine.beat("mine") == 0
        clock.advance(14)
    assert not notified.is_set()
    assert await mine.beat("mine") == 0
    assert await place.admin.fetchval("select array_agg(name) from harborage_workers") == ["mine"]
    assert notified.is_set()


async def test_a_damaged_journal_blocks_its_run_alone(place: Any) -> None:
    """A claim gives what can be read; a run that cannot be read is blocked, and says where it is damaged."""
    store = await place.open()
    await store.join("one")
    for name in ("a", "b", "c"):
        await store.commit(Commit(starts=(NewRun(run_id=name, who=ME, entries=(b"1", b"2")),)))
    await place.admin.execute("update harborage_journal set data = 'x' where run = 2 and position = 2")
    assert [one.row.run_id for one in await store.claim("one")] == ["a", "c"]
    found = await row(store, "b")
    assert (found.owner, found.blocked) == ("", "run b, entry 1: it is not there, or not what was kept")
