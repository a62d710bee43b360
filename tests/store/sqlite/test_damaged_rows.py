"""A row that is damaged, or that a newer version wrote, is named, blocks its run alone, and hides no other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from harborage.state.errors import DatabaseCorruptError
from harborage.store import Commit, Move, NewGroup, NewPause, PauseQuery, PauseRow, RunQuery, SessionQuery, Status
from harborage.store.sqlite import Database, SQLiteStore
from harborage.testing.clock import FakeClock
from harborage.testing.conformance.store_bench import ME, claim, row, send, start, step

OpenDatabase = Callable[..., Awaitable[Database]]

NO_TEXT = "CAST(x'ff41' AS TEXT)"
DAMAGE = {
    "its goal": f"about = {NO_TEXT}",
    "its tenant": f"tenant = {NO_TEXT}",
    "its reason": f"reason = {NO_TEXT}",
    "its id": f"run_id = {NO_TEXT}",
    "its session": "session = 99",
    "its status": "status = 9",
    "a status below all": "status = -1",
    "its time": "created_at = 9223372036854775807",
    "the time of its last change": "updated_at = -1",
    "what it would wait for": "deadline = 9223372036854775807",
}


async def damage(database: Database, sql: str) -> None:
    """Change what is kept behind everybody's back."""
    await database.write(lambda tx: list(tx.execute(sql)))


@pytest.mark.parametrize("what", DAMAGE)
async def test_a_run_whose_row_cannot_be_read_is_blocked_and_no_other(open_database: OpenDatabase, what: str) -> None:
    """Whatever of its row is damaged, a run is not handed out and its row says which it is; the others are."""
    database = await open_database()
    store = SQLiteStore(database)
    for run_id in "abc":
        await start(store, run_id)
    await damage(database, f"UPDATE harborage_runs SET {DAMAGE[what]} WHERE run_id = 'b'")
    await store.join("worker")
    await claim(store, "worker", "a", "c")
    await claim(store, "worker")
    kept: list[Any] = await database.read(
        lambda tx: tx.execute("SELECT num, owner, blocked FROM harborage_runs WHERE blocked IS NOT NULL").fetchall()
    )
    assert [one[:2] for one in kept] == [(2, None)]
    assert "row 2 in harborage_runs" in kept[0][2]
    (shown,) = [one for one in (await store.runs(RunQuery())).rows if one.number == 2]
    assert (shown.is_damaged, shown.blocked) == (True, kept[0][2])


async def test_a_list_shows_a_damaged_run_as_blocked_beside_the_others(open_database: OpenDatabase) -> None:
    """Pages of every size, in both orders, hold each run once, and the damaged ones with a text that names the row."""
    database, clock = await open_database(), FakeClock()
    store = SQLiteStore(database, clock=clock)
    for run_id in "abcdef":
        await start(store, run_id)
        clock.advance(1)
    await damage(database, f"UPDATE harborage_runs SET about = {NO_TEXT}, run_id = {NO_TEXT} WHERE run_id = 'b'")
    await damage(database, "UPDATE harborage_runs SET status = 9 WHERE run_id = 'd'")
    await damage(database, "UPDATE harborage_runs SET created_at = 9223372036854775807 WHERE run_id IN ('e', 'f')")
    for limit in (1, 2, 100):
        for oldest_first in (True, False):
            query, found = RunQuery(limit=limit, oldest_first=oldest_first), []
            while True:
                page = await store.runs(query)
                found += page.rows
                if page.cursor is None:
                    break
                query = RunQuery(limit=limit, oldest_first=oldest_first, after=page.cursor)
            found = found if oldest_first else found[::-1]
            assert [one.run_id for one in found] == ["a", "unreadable-2", "c", "d", "e", "f"]
            assert [one.run_id for one in found if one.blocked] == ["unreadable-2", "d", "e", "f"]
            assert "row 2 in harborage_runs" in found[1].blocked
    assert "row 4 in harborage_runs" in (await row(store, "d")).blocked
    counts = await store.count_runs(RunQuery())
    assert counts.by_status[Status.PENDING] == 6


async def test_a_session_that_cannot_be_read_is_named_with_its_runs(open_database: OpenDatabase) -> None:
    """The text says which row of which table to look at."""
    database = await open_database()
    store = SQLiteStore(database)
    await start(store, "a")
    await damage(database, f"UPDATE harborage_sessions SET session = {NO_TEXT}")
    (found,) = (await store.runs(RunQuery())).rows
    assert (found.run_id, found.who.tenant_id, found.who.session_id) == ("a", ME.tenant_id, "?")
    assert "row 1 in harborage_sessions" in found.blocked


async def test_a_list_of_sessions_shows_a_damaged_row_and_all_others(open_database: OpenDatabase) -> None:
    """Pages of every size hold each session once; one whose row cannot be read says so, and can still be closed."""
    database, clock = await open_database(), FakeClock()
    store = SQLiteStore(database, clock=clock)
    for name in "abcd":
        await store.open_session(replace(ME, session_id=name))
        clock.advance(1)
    await store.close_session(replace(ME, session_id="b"), "done")
    await damage(database, f"UPDATE harborage_sessions SET close_reason = {NO_TEXT} WHERE session = 'b'")
    await damage(database, "UPDATE harborage_sessions SET seen_at = 9223372036854775807 WHERE session = 'c'")
    for limit in (1, 2, 100):
        query, found = SessionQuery(tenant=ME.tenant_id, include_closed=True, limit=limit), []
        while True:
            page = await store.sessions(query)
            found += page.rows
            if page.cursor is None:
                break
            query = replace(query, after=page.cursor)
        assert [one.who.session_id for one in found] == ["d", "c", "b", "a"]
        assert [one.who.session_id for one in found if one.is_damaged] == ["c", "b"]
        assert [one.closed_at is None for one in found] == [True, True, False, True]
    closed = await store.close_session(replace(ME, session_id="c"), "left")
    assert closed.is_changed
    assert closed.row is not None
    assert (closed.row.is_damaged, closed.row.closed_at is None) == (True, False)


async def test_a_status_of_a_newer_version_is_not_taken_for_another(open_database: OpenDatabase) -> None:
    """A caller that sends to such a run, or moves it, gets an error that names the row, and nothing is written."""
    database = await open_database()
    store = SQLiteStore(database)
    await start(store, "a")
    await damage(database, "UPDATE harborage_runs SET status = 9")
    with pytest.raises(DatabaseCorruptError, match="status 9"):
        await send(store, "a", "event")
    move = Move(run_id="a", expected=tuple(Status), status=Status.CANCELLED)
    with pytest.raises(DatabaseCorruptError, match=r"\(run a\)"):
        await store.commit(Commit(moves=(move,)))
    assert (await row(store, "a")).unread == 0


async def test_a_group_of_a_newer_version_is_not_taken_for_another(open_database: OpenDatabase) -> None:
    """A caller that reads it gets an error that names the row."""
    database = await open_database()
    store = SQLiteStore(database)
    await store.commit(Commit(groups=(NewGroup(group_id="g", who=ME),)))
    await damage(database, "UPDATE harborage_groups SET status = 'merged'")
    with pytest.raises(DatabaseCorruptError, match="status merged"):
        await store.group("g", who=ME)


async def test_a_control_whose_id_cannot_be_read_hides_no_other(open_database: OpenDatabase) -> None:
    """Controls of a run come in order and can be consumed, also when the text in one row is none."""
    database = await open_database()
    store = SQLiteStore(database)
    await store.join("worker")
    leases = {run_id: await start(store, run_id, worker="worker") for run_id in "ab"}
    for run_id, event_id in (("a", "1"), ("b", "2"), ("a", "3"), ("a", "4")):
        await send(store, run_id, event_id)
    await damage(database, f"UPDATE harborage_controls SET event_id = {NO_TEXT} WHERE event_id = '3'")
    assert await store.unread("worker") == {"a": 4, "b": 2}
    found = await store.controls("a")
    assert [(one.number, one.event_id) for one in found] == [(1, "1"), (3, "\ufffdA"), (4, "4")]
    assert [one.event_id for one in await store.controls("b")] == ["2"]
    await store.commit(step(leases["a"], 1, b"read", consumed=tuple(one.number for one in found)))
    assert await store.unread("worker") == {"b": 2}


async def test_a_run_that_loses_its_id_hides_no_others_controls(open_database: OpenDatabase) -> None:
    """While a worker holds a run whose id is no text any more, it hears of what its other runs are sent."""
    database = await open_database()
    store = SQLiteStore(database)
    await store.join("worker")
    for run_id in "ab":
        await start(store, run_id, worker="worker")
        await send(store, run_id, "event")
    await damage(database, f"UPDATE harborage_runs SET run_id = {NO_TEXT} WHERE run_id = 'a'")
    assert (await store.unread("worker"))["b"] == 2


async def test_a_run_of_a_worker_that_no_row_knows_is_free_again(open_database: OpenDatabase) -> None:
    """An owner that was lost or damaged keeps no run for ever: the next worker that comes frees it."""
    for owner in ("'gone'", NO_TEXT):
        database = await open_database()
        store = SQLiteStore(database)
        await start(store, "a")
        await damage(database, f"UPDATE harborage_runs SET owner = {owner} WHERE run_id = 'a'")
        await store.join("worker")
        await claim(store, "worker", "a")
        await damage(database, "DELETE FROM harborage_runs")
        await store.leave("worker")


class WallClock(FakeClock):
    """A fake clock whose time of day an operator moves; what it has counted does not change by that."""

    moved = timedelta(0)

    def now(self) -> Any:
        return super().now() + self.moved


@pytest.mark.parametrize("hours", [-1, 1])
async def test_a_frozen_worker_is_found_however_the_time_of_day_moves(open_database: OpenDatabase, hours: int) -> None:
    """An hour back, and a worker that gives no sign loses its runs after its lease all the same; an hour on, and one
    that lives keeps them."""
    clock = WallClock()
    mine = SQLiteStore(await open_database(), clock=clock, lease=timedelta(seconds=60))
    theirs = SQLiteStore(await open_database(), clock=clock, lease=timedelta(seconds=60))
    for store, worker in ((theirs, "frozen"), (theirs, "lives"), (mine, "other")):
        await store.join(worker)
    for run_id, worker in (("r", "frozen"), ("s", "lives")):
        await start(theirs, run_id, worker=worker)
    await mine.look("other")
    clock.moved = timedelta(hours=hours)
    clock.advance(59)
    await theirs.beat("lives")
    await mine.look("other")
    await claim(mine, "other")
    clock.advance(2)
    await mine.look("other")
    await claim(mine, "other", "r")


async def test_a_sign_from_before_the_machine_was_started_grows_old_here(open_database: OpenDatabase) -> None:
    """A sign counts from when it was first seen, whatever clock it was given by, and for one lease."""
    clock = FakeClock()
    clock.advance(1_000_000)
    before = SQLiteStore(await open_database(), clock=clock, lease=timedelta(seconds=60))
    await before.join("frozen")
    await start(before, "r", worker="frozen")
    started = FakeClock()
    later = SQLiteStore(await open_database(), clock=started, lease=timedelta(seconds=60))
    await later.join("other")
    for seconds, expected in ((0, []), (59, []), (2, ["r"])):
        started.advance(seconds)
        await later.beat("other")
        await claim(later, "other", *expected)


DAMAGED_PAUSES = {
    "its token": f"token = {NO_TEXT}",
    "its user": f"user = {NO_TEXT}",
    "its reason": f"reason = {NO_TEXT}",
    "who answered": f"settled_by = {NO_TEXT}",
    "its session": "session = 99",
    "its status": "status = 'postponed'",
    "its deadline": "deadline = 9223372036854775807",
    "its time": "settled_at = -1",
}


@pytest.mark.parametrize("what", DAMAGED_PAUSES)
async def test_a_list_shows_a_damaged_pause_beside_the_others(open_database: OpenDatabase, what: str) -> None:
    """Pages of every size hold each pause once, and the one that cannot be read as that, with its run."""
    database = await open_database()
    store = SQLiteStore(database)
    for token in "abc":
        pause = NewPause(token=token, run_id=f"run {token}", who=ME, reason="await_input", at=ord(token))
        await store.commit(Commit(opens=(pause,)))
    await damage(database, f"UPDATE harborage_pauses SET {DAMAGED_PAUSES[what]} WHERE token = 'b'")
    for limit in (1, 2, 100):
        query, found = PauseQuery(limit=limit), list[PauseRow]()
        while True:
            page = await store.pauses(query)
            found += page.rows
            if page.cursor is None:
                break
            query = PauseQuery(limit=limit, after=page.cursor)
        assert [one.run_id for one in found] == ["run c", "run b", "run a"]
        assert [one.token for one in found] == ["c", "unreadable-2" if what == "its token" else "b", "a"]
        assert [one.is_damaged for one in found] == [False, True, False]
