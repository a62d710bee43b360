"""A store in Postgres outlives its connections, repeats no change, and reports what it did."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from harborage.state.errors import AnswerLostError, DatabaseUnreachableError
from harborage.store import (
    Change,
    Commit,
    EventQuery,
    NewEvent,
    NewPause,
    NewRun,
    PauseQuery,
    PauseStatus,
    RunQuery,
    SendControl,
    SettlePause,
    Status,
)
from harborage.store.check import disagreements
from harborage.store.errors import LeaseLostError
from harborage.store.postgres import PostgresStore
from harborage.testing.conformance.store_bench import ME, row, start, step

# More answers than any call here needs: what is cut later is not cut at all.
ANSWERS = 4
EVENTS = (NewEvent(type="e", data=b"{}"), NewEvent(type="e", data=b"{}"))


@pytest.fixture
async def frail(place: Any, proxy: Any) -> PostgresStore:
    """A store whose way to the server is `proxy`, and a worker, `one`, on it."""
    url = place.url.replace(f":{place.server.port}/", f":{proxy.port}/")
    store: PostgresStore = place.keep(await PostgresStore.open(url))
    await store.join("one")
    return store


@pytest.mark.parametrize("answers", range(ANSWERS))
async def test_a_step_whose_answer_is_lost_is_made_once(frail: PostgresStore, proxy: Any, answers: int) -> None:
    """Wherever the way breaks, entries and events are kept once, and the answer says where they are."""
    lease = await start(frail, "r", worker="one")
    proxy.cut_after(answers)
    done = await frail.commit(step(lease, 1, b"a", b"b", who=ME, events=EVENTS))
    assert (done.place, done.is_again) == (1, False)
    assert await frail.entries("r") == [b"started", b"a", b"b"]
    events = await frail.events(EventQuery())
    assert [event.place for event in events] == [1, 2]
    assert done.first == events[0].sequence


@pytest.mark.parametrize("answers", range(ANSWERS))
async def test_an_end_whose_answer_is_lost_is_made_once(frail: PostgresStore, proxy: Any, answers: int) -> None:
    """The commit that gives the lease back is known again, although it has no entry and the lease is gone."""
    lease = await start(frail, "r", worker="one")
    proxy.cut_after(answers)
    await frail.commit(step(lease, 1, change=Change(release=True, is_ready=True)))
    (claimed,) = await frail.claim("one")
    assert claimed.row.fence == 2
    with pytest.raises(LeaseLostError):
        await frail.commit(step(lease, 1, change=Change(status=Status.COMPLETE)))


@pytest.mark.parametrize("answers", range(ANSWERS))
async def test_a_start_whose_answer_is_lost_is_made_once(frail: PostgresStore, proxy: Any, answers: int) -> None:
    """A start that was kept is not reported as a run that was there already."""
    proxy.cut_after(answers)
    await start(frail, "r", key="k")
    assert len((await frail.runs(RunQuery())).rows) == 1


@pytest.mark.parametrize("answers", range(ANSWERS))
async def test_an_answer_whose_answer_is_lost_is_given_once(frail: PostgresStore, proxy: Any, answers: int) -> None:
    """An approver hears that it was its own answer that settled the pause, and gets the lease that came with it."""
    lease = await start(frail, "r", worker="one")
    pause = NewPause(token="t", run_id="r", who=ME, reason="await_input")
    await frail.commit(step(lease, 1, opens=(pause,), change=Change(status=Status.PAUSED, release=True)))
    proxy.cut_after(answers)
    settle = SettlePause(token="t", status=PauseStatus.APPROVED, by="me")
    done = await frail.commit(Commit(settles=(settle,), take="one", who=ME, events=EVENTS))
    assert [taken.fence for taken in done.taken] == [2]
    await frail.commit(step(done.taken[0], 1, b"goes on"))
    (kept,) = (await frail.pauses(PauseQuery(run_ids=("r",)))).rows
    assert (kept.status, kept.settled_by) == (PauseStatus.APPROVED, "me")
    assert len(await frail.events(EventQuery())) == 2


@pytest.mark.parametrize("answers", range(ANSWERS))
async def test_a_control_whose_answer_is_lost_is_sent_once(frail: PostgresStore, proxy: Any, answers: int) -> None:
    """Its sender gets that it is new, and it is stored once."""
    await start(frail, "r")
    proxy.cut_after(answers)
    send = SendControl(run_id="r", event_id="e", type="PAUSE", data=b"{}")
    assert (await frail.commit(Commit(sends=(send,)))).sent == (True,)
    assert (await frail.commit(Commit(sends=(send,)))).sent == (False,)
    assert (await row(frail, "r")).unread == 1


@pytest.mark.parametrize("answers", range(ANSWERS))
async def test_a_claim_whose_answer_is_lost_is_made_once(frail: PostgresStore, proxy: Any, answers: int) -> None:
    """The worker gets the runs that it took, and does not take others instead."""
    for number in range(3):
        await start(frail, f"r{number}")
    proxy.cut_after(answers)
    assert [one.row.run_id for one in await frail.claim("one", limit=2)] == ["r0", "r1"]
    assert [one.row.run_id for one in await frail.claim("one", limit=2)] == ["r2"]


@pytest.mark.parametrize("answers", range(8))
async def test_what_a_claim_took_before_an_outage_comes_with_the_next_one(
    frail: PostgresStore, proxy: Any, answers: int
) -> None:
    """Also where the outage outlasts the patience for the claim's own answer, or what was taken cannot be read."""
    assert await frail.claim("one") == []
    await start(frail, "r")
    await frail._notifier._crew.join()  # no notice is under way
    _, claims = frail._lanes
    claims._patience_s = 0.0
    proxy.is_open = False
    proxy.cut_after(answers)
    try:
        claimed = await frail.claim("one")
    except DatabaseUnreachableError:
        proxy.is_open = True
        claimed = await frail.claim("one")
    proxy.is_open = True
    assert [one.row.run_id for one in claimed] == ["r"]
    assert await frail.claim("one") == []
    assert (await row(frail, "r")).lease == claimed[0].row.lease


async def test_broken_connections_are_replaced(place: Any) -> None:
    """After every connection was ended by the server, calls go on as if nothing had happened."""
    store = await place.open()
    await store.join("one")
    lease = await start(store, "r", worker="one")
    for position in range(1, 5):
        await asyncio.gather(*(store.entries("r") for _ in range(8)))
        assert await place.break_connections() >= 1
        await store.commit(step(lease, position, b"x", who=ME, events=EVENTS))
        await place.break_connections()
        await asyncio.gather(*(store.entries("r") for _ in range(8)))
        await store.beat("one")
    assert len(await store.entries("r")) == 5
    assert await disagreements(store) == []


async def test_an_unknown_outcome_is_reported(
    frail: PostgresStore, place: Any, proxy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When no way leads back to the server the error says that the change may have been kept; later that is seen."""
    monkeypatch.setattr(frail._lanes[0], "_patience_s", 0.2)
    lease = await start(frail, "r", worker="one")
    proxy.cut_after(0)
    proxy.is_open = False
    commit = step(lease, 1, b"a", who=ME, events=EVENTS)
    with pytest.raises(AnswerLostError, match=r"postgres://harborage@127.0.0.1.*whether the change was kept is not"):
        await frail.commit(commit)
    with pytest.raises(DatabaseUnreachableError) as refused:
        await frail.commit(step(lease, 2, b"b"))
    assert not isinstance(refused.value, AnswerLostError)
    proxy.is_open = True
    assert (await frail.commit(commit)).is_again
    assert await frail.entries("r") == [b"started", b"a"]


async def test_a_batch_that_comes_too_late_is_refused(place: Any) -> None:
    """A commit that was given up, and reaches the server after a later one, changes nothing any more."""
    store = await place.open()
    await start(store, "r")
    await start(store, "s")
    nothing = ", ".join(["'{}'"] * 9)
    sent = f'select harborage_commit($1, 1, 1, \'[{{"wakes": ["r"]}}]\', {nothing}, false)'
    with pytest.raises(Exception, match="comes too late"):
        await place.admin.fetchval(sent, store._lanes[0].name)


async def test_a_commit_that_cannot_be_kept_fails_alone(place: Any) -> None:
    """One of a batch that the server refuses for what is in it does not take the others with it."""
    store = await place.open()
    asked = (start(store, name) for name in ("good", "b\0d", "b\ud800d", "fine"))
    published = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(one).__name__ for one in published] == ["Lease", "DatabaseError", "DatabaseError", "Lease"]
    assert "NUL" in str(published[1])
    assert [found.run_id for found in (await store.runs(RunQuery())).rows] == ["fine", "good"]


async def test_free_text_may_hold_anything(place: Any) -> None:
    r"""Goals, descriptions and reasons keep NUL and backslashes, which Postgres has no room for in text."""
    store = await place.open()
    odd = "a\0b\\0c\\\\ \\ \0"
    await store.join("one")
    new = NewRun(run_id="r", who=ME, entries=(b"started",), goal=odd, description=odd, worker="one")
    await store.commit(Commit(starts=(new,)))
    (found,) = (await store.runs(RunQuery())).rows
    await store.commit(step(found.lease, 1, change=Change(status=Status.FAILED, reason=odd)))
    (found,) = (await store.runs(RunQuery())).rows
    assert (found.about, found.description, found.reason) == (odd, odd, odd)


async def test_a_caller_that_is_cancelled_leaves_the_others_alone(place: Any) -> None:
    """Of commits that wait in one batch one may be called off: it happened whole or not at all, the others did."""
    store = await place.open()
    starting = [asyncio.ensure_future(start(store, f"r{number}")) for number in range(20)]
    await asyncio.sleep(0)
    starting[7].cancel()
    published = await asyncio.gather(*starting, return_exceptions=True)
    assert isinstance(published[7], asyncio.CancelledError)
    found = {one.run_id for one in (await store.runs(RunQuery())).rows}
    assert found >= {f"r{number}" for number in range(20) if number != 7}
    assert await disagreements(store) == []
