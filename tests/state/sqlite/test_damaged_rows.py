"""A row that is damaged, or that a newer version wrote, is named, blocks its run alone, and hides no other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from harborage.state.runs import RunFilter, Stand
from harborage.state.sqlite import Database, storage_of
from harborage.testing.clock import FakeClock
from harborage.testing.conformance.storage_bench import begin, living

OpenDatabase = Callable[..., Awaitable[Database]]

NO_TEXT = "CAST(x'ff41' AS TEXT)"
DAMAGE = {
    "its goal": f"UPDATE harborage_runs SET goal = {NO_TEXT} WHERE run_id = 'b'",
    "its tenant": f"UPDATE harborage_runs SET tenant_id = {NO_TEXT} WHERE run_id = 'b'",
    "its reason": f"UPDATE harborage_standings SET reason = {NO_TEXT} WHERE run_id = 'b'",
    "its time": "UPDATE harborage_runs SET created_at = 9223372036854775807 WHERE run_id = 'b'",
    "its id where it stands": f"UPDATE harborage_standings SET run_id = {NO_TEXT} WHERE run_id = 'b'",
    "a bit of its id": "UPDATE harborage_standings SET run_id = 'c ' WHERE run_id = 'b'",
}


async def damage(database: Database, sql: str) -> None:
    """Change what is kept behind everybody's back."""
    await database.write(lambda tx: list(tx.execute(sql)))


async def test_a_run_whose_row_cannot_be_read_is_blocked_and_no_other(open_database: OpenDatabase) -> None:
    """Whatever of its row is damaged, a run is not handed out and its row says which it is; the others are."""
    for what, sql in DAMAGE.items():
        database = await open_database()
        storage = storage_of(database)
        for run_id in "abc":
            await begin(storage, run_id)
        await damage(database, sql)
        async with living(storage.queue, "worker"):
            for blocked in (True, False):
                claims = await storage.queue.claim("worker", blocked=blocked)
                assert [one.record.run_id for one in claims] == (["a", "c"] if blocked else []), what
        rows: list[Any] = await database.read(
            lambda tx: tx.execute("SELECT number, stand, reason FROM harborage_standings WHERE number = 2").fetchall()
        )
        assert [row[:2] for row in rows] == [(2, "blocked")], what
        assert "row 2 in harborage_runs" in rows[0][2], what
        for run_id in "abc":
            await storage.runs.forget(run_id)
        await damage(database, "DELETE FROM harborage_runs")
        await damage(database, "DELETE FROM harborage_standings")
        await damage(database, "DELETE FROM sqlite_sequence")
        await storage.aclose()


async def test_a_list_shows_a_damaged_run_as_blocked_beside_the_others(open_database: OpenDatabase) -> None:
    """Pages of every size hold each run once, and the damaged one with a reason that names its row."""
    database = await open_database()
    storage = storage_of(database)
    for run_id in "abcd":
        await begin(storage, run_id)
    await damage(database, f"UPDATE harborage_runs SET goal = {NO_TEXT}, run_id = {NO_TEXT} WHERE run_id = 'b'")
    await damage(database, f"UPDATE harborage_standings SET run_id = {NO_TEXT} WHERE run_id = 'b'")
    await damage(database, "UPDATE harborage_standings SET stand = 'hibernating' WHERE run_id = 'd'")
    for limit in (1, 2, 100):
        found, after = [], ""
        while page := await storage.runs.list(RunFilter(), after=after, limit=limit):
            found += page
            after = page[-1].run_id
        assert [one.run_id for one in found] == ["a", "unreadable-2", "c", "d"]
        assert [one.run_id for one in found if one.standing.stand is Stand.BLOCKED] == ["unreadable-2", "d"]
        assert "row 2" in found[1].standing.reason
    (alone,) = await storage.runs.list(RunFilter(run_id="d"))
    assert "row 4" in alone.standing.reason


async def test_a_control_whose_id_cannot_be_read_hides_no_other(open_database: OpenDatabase) -> None:
    """Controls of all runs arrive in order, also when the text in one row is none."""
    database = await open_database()
    storage = storage_of(database)
    for run_id in "ab":
        await begin(storage, run_id)
    async with living(storage.queue, "worker"):
        await storage.queue.claim("worker")
        for run_id, event_id in (("a", "1"), ("b", "2"), ("a", "3")):
            await storage.queue.send(run_id, event_id, b"data")
        await damage(database, f"UPDATE harborage_controls SET event_id = {NO_TEXT} WHERE event_id = '2'")
        arrived = await storage.queue.arrived("worker")
    assert [(one.number, one.run_id) for one in arrived] == [(1, "a"), (2, "b"), (3, "a")]
    assert arrived[1].event_id == "\ufffdA"


async def test_a_run_of_a_worker_that_no_row_knows_is_free_again(open_database: OpenDatabase) -> None:
    """An owner that was lost or damaged keeps no run for ever: the next worker that comes frees it."""
    database = await open_database()
    storage = storage_of(database)
    await begin(storage, "a")
    await damage(database, "UPDATE harborage_standings SET owner = 'gone' WHERE run_id = 'a'")
    async with living(storage.queue, "worker"):
        await database.write(lambda tx: None)
        await database.read(lambda tx: None)
        await database.write(lambda tx: None)
        claims = await storage.queue.claim("worker")
    assert [one.record.run_id for one in claims] == ["a"]


async def test_a_frozen_worker_is_found_however_the_time_of_day_moves(open_database: OpenDatabase) -> None:
    """An hour back, and a worker that gives no sign loses its runs after its lease all the same; an hour on, and one
    that lives keeps them."""
    for hours in (-1, 1):
        clock = WallClock()
        database = await open_database()
        storage = storage_of(database, clock=clock, lease=timedelta(seconds=60))
        run_id = f"r{hours}"
        await begin(storage, run_id)
        assert [one.record.run_id for one in await storage.queue.claim("frozen")] == [run_id]
        clock.moved = timedelta(hours=hours)
        clock.advance(59)
        assert await storage.queue.claim("other") == []
        clock.advance(2)
        assert [one.record.run_id for one in await storage.queue.claim("other")] == [run_id]
        await storage.runs.forget(run_id)
        await storage.aclose()


class WallClock(FakeClock):
    """A fake clock whose time of day an operator moves; what it has counted does not change by that."""

    moved = timedelta(0)

    def now(self) -> Any:
        return super().now() + self.moved


async def test_a_sign_from_before_the_machine_was_started_grows_old_here(open_database: OpenDatabase) -> None:
    """A sign that lies ahead of this machine's clock counts from when it was first seen, and for one lease."""
    clock = FakeClock()
    database = await open_database()
    storage = storage_of(database, clock=clock, lease=timedelta(seconds=60))
    await begin(storage, "r")
    clock.advance(1_000_000)
    assert len(await storage.queue.claim("frozen")) == 1
    started = FakeClock()
    later = storage_of(database, clock=started, lease=timedelta(seconds=60))
    for seconds, expected in ((0, 0), (59, 0), (2, 1)):
        started.advance(seconds)
        assert len(await later.queue.claim("other")) == expected
