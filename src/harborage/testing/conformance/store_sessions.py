"""Scenarios of the store suite: sessions are opened once, seen, closed for good, and listed by their state."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from harborage.store import (
    Commit,
    EventQuery,
    NewEvent,
    NewRun,
    OpenSession,
    SessionChange,
    SessionQuery,
    SessionRow,
    Store,
)
from harborage.store.errors import RunKnownError, SessionOverError
from harborage.testing.conformance.checks import ConformanceError, expect_equal, expect_raises
from harborage.testing.conformance.store_bench import ME, OTHERS, StoreBench, start

MINE = SessionQuery(tenant=ME.tenant_id, user=ME.user_id, session=ME.session_id, include_closed=True)
EVENT = NewEvent(type="e", data=b"{}")


async def mine(store: Store) -> SessionRow:
    """Return the row of this session."""
    (row,) = (await store.sessions(MINE)).rows
    return row


def row_of(change: SessionChange) -> SessionRow:
    """Return the row of a session that exists."""
    if change.row is None:
        raise ConformanceError("a session that was opened is not there")
    return change.row


async def names(store: Store, query: SessionQuery) -> list[str]:
    """Return the ids of the sessions that a query finds, with their owners."""
    return [row.who.user_id + row.who.session_id for row in (await store.sessions(query)).rows]


async def sessions_are_listed(bench: StoreBench) -> None:
    """Sessions of a tenant, last opened first; a closed one is listed only on request, a page at a time."""
    store = bench.store
    for who in (ME, *OTHERS):
        await store.open_session(who)
        bench.later(1)
    query = SessionQuery(tenant=ME.tenant_id)
    found = [one.who for one in (await store.sessions(query)).rows]
    expect_equal(found, [OTHERS[2], OTHERS[1], ME], "of a tenant")
    await store.close_session(ME, "done")
    expect_equal([one.who for one in (await store.sessions(query)).rows], [OTHERS[2], OTHERS[1]], "the open ones")
    expect_equal(await names(store, replace(query, user=ME.user_id)), ["usersession2"], "of a user")
    page = await store.sessions(replace(query, limit=1))
    rest = await store.sessions(replace(query, after=page.cursor))
    expect_equal([one.who for one in rest.rows], [OTHERS[1]], "the page behind the first")


async def a_session_is_opened_once(bench: StoreBench) -> None:
    """With its context, which stays; the same id of another tenant or user is another session."""
    store = bench.store
    opened = await store.open_session(ME, context=b'{"agent":"a"}')
    bench.later(5)
    again = await store.open_session(ME, context=b"{}")
    expect_equal((opened.is_changed, again.is_changed), (True, False), "who opened it")
    expect_equal(again.row, opened.row, "its row")
    row = row_of(opened)
    kept = (row.is_opened, row.context, row.seen_at - row.opened_at)
    expect_equal(kept, (True, b'{"agent":"a"}', 0), "what is kept")
    for who in OTHERS:
        expect_equal((await store.open_session(who)).is_changed, True, f"the session of {who}")
    expect_equal(await mine(store), row, "the first one afterwards")


async def the_events_of_an_opening_are_stored_with_it(bench: StoreBench) -> None:
    """At the time that its caller gives, and once: neither a second call nor the opening of a known row adds others."""
    store = bench.store
    await start(store, "r", who=OTHERS[0])
    await store.commit(Commit(who=OTHERS[0], events=(EVENT,)))
    for who, place in ((ME, 1), (OTHERS[0], 2)):
        opened = await store.open_session(who, at=7, events=(EVENT, EVENT))
        row = row_of(opened)
        expect_equal((row.opened_at, row.events), (7, place + 1), "the row")
        expect_equal((opened.is_changed, opened.place), (True, place), "the place of the first event")
        again = await store.open_session(who, at=9, events=(EVENT,))
        expect_equal(again, SessionChange(row, False), "opened again")
        asked = EventQuery(tenant=who.tenant_id, user=who.user_id, session=who.session_id, limit=10)
        kept = await store.events(asked)
        expect_equal([one.place for one in kept], [*range(1, place + 2)], "the places of its events")
        expect_equal(kept[-2].sequence, opened.first, "the number of the first event")


async def a_start_opens_its_session(bench: StoreBench) -> None:
    """Once, before all else of the commit, with its events before those of the start; one that was closed stays so."""
    store = bench.store
    opening = OpenSession(who=ME, context=b'{"agent":"a"}', events=(EVENT,))
    first, second = (NewRun(run_id=name, who=ME, entries=(b"started",)) for name in ("first", "second"))
    news = (NewEvent(type="spawned", data=b"{}"),)
    done = await store.commit(Commit(session=opening, starts=(first,), who=ME, events=news))
    again = await store.commit(Commit(session=opening, starts=(second,), who=ME, events=news))
    changes = [one.session for one in (done, again) if one.session is not None]
    expect_equal([one.is_changed for one in changes], [True, False], "which start opened it")
    expect_equal([one.place for one in (changes[0], done, again)], [1, 2, 3], "the places of the events")
    query = EventQuery(tenant=ME.tenant_id, user=ME.user_id, session=ME.session_id)
    expect_equal([one.type for one in await store.events(query)], ["e", "spawned", "spawned"], "the events")
    expect_equal((await mine(store)).context, b'{"agent":"a"}', "its context")
    await store.close_session(ME, "over")
    late = Commit(session=opening, starts=(NewRun(run_id="late", who=ME, entries=(b"started",)),))
    await expect_raises(SessionOverError, store.commit(late), "a start in a closed session")
    expect_equal((await mine(store)).closed_at is None, False, "whether it is closed")


async def concurrent_opens_make_one_session(bench: StoreBench) -> None:
    """In several processes: one row, and one of the callers gets that it is new."""
    stores = [bench.store, await bench.another()]
    done = await asyncio.gather(*(store.open_session(ME, events=(EVENT,)) for store in stores * 4))
    expect_equal(sum(one.is_changed for one in done), 1, "how many opened it")
    expect_equal(len({row_of(one).opened_at for one in done}), 1, "when it was opened")
    expect_equal((await mine(bench.store)).events, 1, "the events of its opening")


async def runs_and_events_open_no_session(bench: StoreBench) -> None:
    """They make a row that is not open, and cannot be touched or closed until a caller opens it."""
    store = bench.store
    await start(store, "r")
    await store.commit(Commit(who=ME, events=(EVENT, EVENT)))
    row = await mine(store)
    expect_equal((row.is_opened, row.events), (False, 2), "the row")
    expect_equal(await store.touch_session(ME), SessionChange(None, False), "touching it")
    expect_equal(await store.close_session(ME, "done"), SessionChange(None, False), "closing it")
    expect_equal(await names(store, SessionQuery(only_opened=True)), [], "those that were opened")
    bench.later(5)
    opened = row_of(await store.open_session(ME))
    expect_equal((opened.number, opened.events, opened.is_opened), (row.number, 2, True), "the opened row")
    expect_equal(opened.opened_at > row.opened_at, True, "whether it counts from when it was opened")
    expect_equal(await names(store, SessionQuery(only_opened=True)), ["usersession"], "those that were opened now")


async def a_session_is_seen(bench: StoreBench) -> None:
    """When it is touched, a run starts in it, or an event happens; with a bound only if it was last seen before it."""
    store = bench.store
    await store.open_session(ME)
    seen = (await mine(store)).seen_at
    bench.later(5)
    expect_equal((await store.touch_session(ME, before=seen)).is_changed, False, "one that was seen since")
    expect_equal((await mine(store)).seen_at, seen, "when that one was seen")
    for number in range(4):
        bench.later(5)
        match number:
            case 0:
                expect_equal((await store.touch_session(ME, before=seen + 1)).is_changed, True, "the touch")
            case 1:
                expect_equal((await store.touch_session(ME)).is_changed, True, "the touch without a bound")
            case 2:
                await start(store, "r")
            case _:
                await store.commit(Commit(who=ME, events=(EVENT,)))
        now = (await mine(store)).seen_at
        expect_equal(now > seen, True, f"whether it was seen by change {number}")
        seen = now


async def a_session_closes_once_and_for_good(bench: StoreBench) -> None:
    """It keeps its time and reason, is seen no more, and opens no more; one that was never opened does not close."""
    store = bench.store
    await store.open_session(ME)
    closed = await store.close_session(ME, "done")
    bench.later(5)
    expect_equal(closed.is_changed, True, "the first close")
    row = row_of(closed)
    expect_equal((row.close_reason, row.closed_at is not None), ("done", True), "what is kept")
    expect_equal(await store.close_session(ME, "again"), SessionChange(row, False), "the second close")
    expect_equal(await store.touch_session(ME), SessionChange(row, False), "a touch")
    expect_equal(await store.open_session(ME), SessionChange(row, False), "an open")
    await store.commit(Commit(who=ME, events=(EVENT,)))
    expect_equal(await mine(store), replace(row, events=1), "an event")
    expect_equal(
        await store.close_session(replace(ME, session_id="x"), ""), SessionChange(None, False), "one that is not there"
    )


async def a_close_may_require_that_the_session_is_idle(bench: StoreBench) -> None:
    """A sweeper's close names when the session was last seen; a run that starts meanwhile keeps it open."""
    store = bench.store
    await store.open_session(ME)
    seen = (await mine(store)).seen_at
    bench.later(5)
    await start(store, "r")
    expect_equal((await store.close_session(ME, "left", seen_at=seen)).is_changed, False, "seen meanwhile")
    seen = (await mine(store)).seen_at
    expect_equal((await store.close_session(ME, "left", seen_at=seen)).is_changed, True, "seen no more")


async def no_run_starts_in_a_closed_session(bench: StoreBench) -> None:
    """The commit is refused whole, with the row of the session; a run in it may start others, and a start that is
    repeated finds its run."""
    store = bench.store
    await store.open_session(ME)
    await start(store, "parent", key="k", fingerprint="f")
    await store.close_session(ME, "done")
    error = await expect_raises(SessionOverError, start(store, "late"), "a start in a closed session")
    expect_equal(error.row, await mine(store), "the session in the error")
    await expect_raises(RunKnownError, start(store, "parent"), "a start that is repeated")
    await expect_raises(RunKnownError, start(store, "other", key="k", fingerprint="f"), "one with the same key")
    await start(store, "child", parent="parent", root="parent")
    await start(store, "hers", who=OTHERS[0])


async def a_start_and_a_close_at_once_agree(bench: StoreBench) -> None:
    """The first one wins: a run that started was there before the close."""
    for number in range(10):
        who = replace(ME, session_id=f"s{number}")
        stores = [bench.store, await bench.another()]
        await bench.store.open_session(who)
        calls = [start(stores[0], f"r{number}", who=who), stores[1].close_session(who, "done")]
        started, closed = await asyncio.gather(*(calls if number % 2 else calls[::-1]), return_exceptions=True)
        if not number % 2:
            started, closed = closed, started
        expect_equal(isinstance(closed, BaseException), False, f"closing: {closed!r}")
        is_refused = isinstance(started, SessionOverError)
        expect_equal(is_refused or not isinstance(started, BaseException), True, f"starting: {started!r}")
        if is_refused:
            expect_equal((await bench.store.entries(f"r{number}")), [], "the run that was refused")


async def abandoned_sessions_are_found(bench: StoreBench) -> None:
    """A query finds the open sessions that were last seen, or opened, strictly before a time."""
    store = bench.store
    rows: list[SessionRow] = []
    for who in (ME, *OTHERS):
        rows.append(row_of(await store.open_session(who)))
        bench.later(10)
    await store.touch_session(ME)
    await store.commit(Commit(who=replace(ME, session_id="unopened"), events=(EVENT,)))
    left = SessionQuery(only_opened=True)
    opened = replace(left, opened_before=rows[1].opened_at)
    expect_equal([row.who for row in (await store.sessions(opened)).rows], [ME], "opened before")
    seen = replace(left, seen_before=rows[2].seen_at)
    expect_equal([row.who for row in (await store.sessions(seen)).rows], [OTHERS[0]], "seen before")
    either = replace(seen, opened_before=rows[1].opened_at)
    expect_equal([row.who for row in (await store.sessions(either)).rows], [OTHERS[0], ME], "either")
    await store.close_session(OTHERS[0], "done")
    expect_equal([row.who for row in (await store.sessions(either)).rows], [ME], "without those that were closed")


SCENARIOS = (
    sessions_are_listed,
    a_session_is_opened_once,
    the_events_of_an_opening_are_stored_with_it,
    a_start_opens_its_session,
    concurrent_opens_make_one_session,
    runs_and_events_open_no_session,
    a_session_is_seen,
    a_session_closes_once_and_for_good,
    a_close_may_require_that_the_session_is_idle,
    no_run_starts_in_a_closed_session,
    a_start_and_a_close_at_once_agree,
    abandoned_sessions_are_found,
)
