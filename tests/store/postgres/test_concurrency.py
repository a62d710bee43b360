"""Processes that share a database do not block each other, and readers across sessions miss no event."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from harborage.concurrency import Crew
from harborage.identity import Identity
from harborage.store import (
    EVENT_STEP,
    Change,
    ChangeGroup,
    Commit,
    EventQuery,
    EventRow,
    GroupQuery,
    GroupStatus,
    Move,
    NewEvent,
    NewGroup,
    NewRun,
    RunQuery,
    SendControl,
    SessionQuery,
    Status,
)
from harborage.store.check import disagreements
from harborage.store.errors import CommitRefusedError, RunCycleError, RunKnownError, SessionOverError
from harborage.store.postgres import PostgresStore
from harborage.testing.conformance.store_bench import ME, start, step

DEADLOCKS = "select deadlocks from pg_stat_database where datname = current_database()"
PATIENCE_S = 20.0
WAITING = "select count(*) from pg_locks where not granted"
SESSIONS = [Identity("tenant", "user", f"session{number}") for number in range(3)]


async def has_begun(place: Any, task: asyncio.Task[Any], *, waiting: int) -> None:
    """Until a call has come as far as it can: it is done, or with it so many wait for a lock."""
    async with asyncio.timeout(PATIENCE_S):
        while not task.done() and await place.admin.fetchval(WAITING) < waiting:
            continue


async def test_those_who_wake_each_others_runs_never_lock_each_other(place: Any) -> None:
    """Commits of several processes that touch the same runs, in any order, wait for each other and never deadlock."""
    stores = [await place.open() for _ in range(4)]
    await stores[0].commit(Commit(groups=(NewGroup(group_id="g", who=ME),)))
    for number in range(24):
        await start(stores[0], f"r{number}", group="g")
    before = await place.admin.fetchval(DEADLOCKS)

    async def work(store: PostgresStore, seed: int) -> None:
        dice = random.Random(seed)
        for turn in range(15):
            some = dice.sample(range(24), 6)
            sends = tuple(
                SendControl(run_id=f"r{number}", event_id=f"{seed}-{turn}", type="PAUSE", data=b"{}")
                for number in some[:3]
            )
            wakes = tuple(f"r{number}" for number in some[3:])
            event = NewEvent(type="e", data=b"{}", run_id=f"r{some[0]}")
            await store.commit(Commit(sends=sends, wakes=wakes, who=dice.choice(SESSIONS), events=(event,)))
            waits = Move(run_id=f"r{some[1]}", expected=(Status.PENDING,), awaits=dice.choice(("g", f"r{some[2]}")))
            with suppress(RunCycleError):
                await store.commit(Commit(moves=(waits,), wakes=wakes, who=SESSIONS[0], events=(event,)))
            await store.delete([f"r{number}" for number in some])
            await store.unblock([f"r{number}" for number in some])

    await asyncio.gather(*(work(store, seed) for seed, store in enumerate(stores * 3)))
    for store in stores:
        await store.aclose()
    # Each connection tells what it met when it ends.
    await place.has_come("select count(*) = 0 from pg_stat_activity where application_name = $1", place.schema)
    assert await place.admin.fetchval(DEADLOCKS) == before
    assert await disagreements(await place.open()) == []


async def test_waits_that_are_a_circle_together_are_not_both_taken(place: Any) -> None:
    """Of two that two processes note at the same moment, far from each other in one chain, the later is refused."""
    one, two = await place.open(), await place.open()
    await one.commit(Commit(starts=tuple(NewRun(run_id=run_id, who=ME) for run_id in "abcd")))

    async def note(store: PostgresStore, waits: str, target: str, *events: NewEvent) -> None:
        move = Move(run_id=waits, expected=(Status.PENDING,), awaits=target)
        await store.commit(Commit(moves=(move,), who=ME, events=events))

    await note(one, "a", "b")
    await note(one, "c", "d")
    # Whoever numbers events waits here with all that it has changed.
    held = "select {}(hashtextextended('harborage events in ' || current_schema(), 0))"
    await place.admin.execute(held.format("pg_advisory_lock"))
    first = asyncio.create_task(note(one, "b", "c", NewEvent(type="e", data=b"{}")))
    await has_begun(place, first, waiting=1)
    second = asyncio.create_task(note(two, "d", "a"))
    await has_begun(place, second, waiting=2)
    await place.admin.execute(held.format("pg_advisory_unlock"))
    await first
    with pytest.raises(RunCycleError):
        await second


async def test_the_last_members_of_a_group_are_deleted_at_once(place: Any) -> None:
    """Of two processes that delete the last two members each one sees what the other deleted: the group goes, too."""
    store = await place.open()
    starts = tuple(NewRun(run_id=run_id, who=ME, group="g") for run_id in "ab")
    await store.commit(Commit(groups=(NewGroup(group_id="g", who=ME),), starts=starts))
    ends = tuple(Move(run_id=run_id, expected=(Status.PENDING,), status=Status.COMPLETE) for run_id in "ab")
    ended = ChangeGroup(group_id="g", who=ME, expected=(GroupStatus.OPEN,), status=GroupStatus.COMPLETED)
    await store.commit(Commit(moves=ends, groups=(ended,)))
    async with place.admin.transaction():
        assert await place.admin.fetchval("select harborage_delete('{a}')") == 1
        deleting = asyncio.create_task(store.delete(["b"]))
        await has_begun(place, deleting, waiting=1)
    assert await deleting == 1
    assert (await store.groups(GroupQuery())).rows == []


async def test_those_who_start_in_sessions_and_close_them_never_lock_each_other(place: Any) -> None:
    """Runs start in several sessions at once while others see, tell of and close these: none waits for a deadlock."""
    stores = [await place.open() for _ in range(4)]
    before = await place.admin.fetchval(DEADLOCKS)
    refused: list[SessionOverError] = []

    async def work(store: PostgresStore, seed: int) -> None:
        dice = random.Random(seed)
        for turn in range(12):
            some = [Identity("tenant", "user", f"s{turn // 4}-{number}") for number in dice.sample(range(4), 3)]
            starts = tuple(NewRun(run_id=f"r{seed}-{turn}-{number}", who=who) for number, who in enumerate(some))
            event = NewEvent(type="e", data=b"{}")
            await store.open_session(some[0])
            try:
                await store.commit(Commit(starts=starts, who=dice.choice(some), events=(event, event)))
            except SessionOverError as error:
                refused.append(error)
            await store.commit(Commit(who=dice.choice(some), events=(event,)))
            await store.touch_session(some[1])
            if turn % 4 > 1:
                await store.close_session(some[2], "done")

    await asyncio.gather(*(work(store, seed) for seed, store in enumerate(stores * 3)))
    for store in stores:
        await store.aclose()
    await place.has_come("select count(*) = 0 from pg_stat_activity where application_name = $1", place.schema)
    assert await place.admin.fetchval(DEADLOCKS) == before
    store = await place.open()
    assert await disagreements(store) == []
    assert refused
    sessions = (await store.sessions(SessionQuery(include_closed=True))).rows
    closed = {row.who: row.closed_at for row in sessions if row.closed_at is not None}
    assert {error.row.who for error in refused} <= closed.keys()


async def test_a_reader_across_sessions_misses_no_event(place: Any) -> None:
    """A subscriber that has an event has every one with a smaller number, with any number of concurrent writers."""
    stores = [await place.open() for _ in range(3)]
    written = asyncio.Event()
    seen: list[EventRow] = []

    async def read() -> None:
        while True:
            is_last = written.is_set()
            found = await stores[0].events(EventQuery(after=seen[-1].sequence if seen else 0, limit=1000))
            seen.extend(found)
            if is_last and not found:
                return

    async def write(store: PostgresStore, name: str) -> None:
        for number in range(30):
            events = tuple(NewEvent(type="e", data=b"{}", run_id=name) for _ in range(2))
            await store.commit(Commit(who=SESSIONS[number % 3], events=events))

    crew = Crew(lambda name, error: None)
    reading = crew.start(read(), "reader")
    await asyncio.gather(*(write(store, f"w{number}") for store in stores for number in range(8)))
    written.set()
    await reading
    assert len(seen) == 3 * 8 * 30 * 2
    assert [event.sequence for event in seen] == sorted({event.sequence for event in seen})
    assert all(event.sequence % EVENT_STEP == 0 for event in seen)
    for who in SESSIONS:
        assert [event.place for event in seen if event.who == who] == [*range(1, 481)]


async def test_a_run_is_started_by_one_of_several(place: Any) -> None:
    """Of starts of the same run, or with the same key, at the same moment one wins, and the others find its run."""
    stores = [await place.open() for _ in range(3)]

    async def begin(store: PostgresStore, run_id: str, key: str) -> str:
        try:
            await start(store, run_id, key=key)
        except RunKnownError as error:
            return f"known {error.row.run_id}"
        return f"started {run_id}"

    for number in range(8):
        same = await asyncio.gather(*(begin(store, f"r{number}", "") for store in stores))
        assert sorted(same) == [f"known r{number}", f"known r{number}", f"started r{number}"]
        published = await asyncio.gather(
            *(begin(store, f"k{number}-{at}", f"k{number}") for at, store in enumerate(stores))
        )
        (won,) = [one.removeprefix("started ") for one in published if one.startswith("started")]
        assert published.count(f"known {won}") == 2


async def test_commits_of_one_turn_share_a_transaction(place: Any) -> None:
    """What is asked for in one turn of the event loop is one batch, each with its own answer."""
    store = await place.open()
    await asyncio.gather(*(start(store, f"r{number}") for number in range(50)))
    batches = "select sum(batch) from harborage_writers"
    before = await place.admin.fetchval(batches)
    send = [SendControl(run_id=f"r{number}", event_id="e", type="PAUSE", data=b"{}") for number in range(60)]
    published = await asyncio.gather(*(store.commit(Commit(sends=(one,))) for one in send), return_exceptions=True)
    assert await place.admin.fetchval(batches) == before + 1
    assert [type(one).__name__ for one in published] == ["Committed"] * 50 + ["RowNotFoundError"] * 10


async def test_a_session_is_opened_once_and_by_no_refused_commit(place: Any) -> None:
    """Processes that open one session at the same moment share it; a commit that is refused opens none."""
    stores = [await place.open() for _ in range(3)]
    event = NewEvent(type="e", data=b"{}")
    await asyncio.gather(*(store.commit(Commit(who=who, events=(event,))) for store in stores for who in SESSIONS))
    sessions = (await stores[0].sessions(SessionQuery())).rows
    assert sorted((one.who.session_id, one.events) for one in sessions) == [(who.session_id, 3) for who in SESSIONS]
    refused = Commit(sends=(SendControl(run_id="x", event_id="e", type="P", data=b""),), who=ME, events=(event,))
    fine = Commit(who=Identity("tenant", "user", "other"), events=(event,))
    await asyncio.gather(stores[0].commit(refused), stores[0].commit(fine), return_exceptions=True)
    names = {one.who.session_id for one in (await stores[0].sessions(SessionQuery())).rows}
    assert names == {"other", *(who.session_id for who in SESSIONS)}


async def test_two_who_end_what_the_other_waits_for_both_go_on(place: Any) -> None:
    """A run that parks on another in the very moment that that one ends is woken, whoever comes first."""
    one, two = await place.open(), await place.open()
    await one.join("one")

    async def both(*work: Any) -> Sequence[Any]:
        return await asyncio.gather(*work, return_exceptions=True)

    for number in range(25):
        parent = await start(one, f"parent{number}", worker="one")
        child = await start(one, f"child{number}", worker="one")
        parks = step(parent, 1, b"w", change=Change(status=Status.PAUSED, release=True, awaits=child.run_id))
        ends = step(child, 1, b"e", change=Change(status=Status.COMPLETE))
        published = await both(one.commit(parks), two.commit(ends))
        assert not any(isinstance(error, CommitRefusedError) for error in published), published
        assert [claimed.row.run_id for claimed in await one.claim("one")] == [parent.run_id]


async def test_other_processes_are_notified_of_news(place: Any) -> None:
    """A control that one process sends calls the listeners of the others."""
    one, two = await place.open(), await place.open()
    await start(one, "r")
    received = asyncio.Event()
    two.on_change(received.set)
    async with asyncio.timeout(20):
        await received.wait()  # once, since nobody knows what was missed before it listened
        received.clear()
        await one.commit(Commit(sends=(SendControl(run_id="r", event_id="e", type="PAUSE", data=b""),)))
        await received.wait()


async def test_many_are_counted_up_to_a_cap(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A count stops at its cap and says so; below it, it is exact, also where several indexes are asked."""
    store = await place.open()
    await store.join("one")
    for number in range(6):
        lease = await start(store, f"r{number}", worker="one")
        if number % 2:
            await store.commit(step(lease, 1, change=Change(status=Status.PAUSED)))
    monkeypatch.setattr("harborage.store.postgres.reading.COUNT_CAP", 4)
    live = (Status.PENDING, Status.PAUSED)
    for query in (RunQuery(tenant=ME.tenant_id), RunQuery(tenant=ME.tenant_id, statuses=live), RunQuery()):
        counts = await store.count_runs(query)
        assert (counts.total, counts.is_capped) == (4, True), query
    counts = await store.count_runs(RunQuery(tenant=ME.tenant_id, statuses=(Status.PAUSED,)))
    assert (counts.total, counts.is_capped) == (3, False)


async def test_a_step_touches_no_index_of_its_run(place: Any) -> None:
    """The row of a run, and that of its session, are changed on their own pages, step by step."""
    store = await place.open()
    await store.join("one")
    lease = await start(store, "r", worker="one")
    event = NewEvent(type="e", data=b"{}", run_id="r")
    for position in range(1, 101):
        await store.commit(step(lease, position, b"x", who=ME, events=(event,)))
    await store.aclose()
    await place.has_come("select count(*) = 0 from pg_stat_activity where application_name = $1", place.schema)
    changed = "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where schemaname = $1 and relname = $2"
    for table in ("harborage_runs", "harborage_sessions", "harborage_writers"):
        updated, in_place = await place.admin.fetchrow(changed, place.schema, table)
        assert updated >= 100
        assert in_place >= 0.9 * updated, table
