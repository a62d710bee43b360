"""What a worker writes of a run that it holds: a control is consumed with the entry that says so, or not at all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from harborage import codec
from harborage.concurrency import Crew
from harborage.identity import Quadruple
from harborage.planner import Finish, FinishReason
from harborage.runtime.durable.engine import RecordRefusedError
from harborage.runtime.durable.inbox import InboxRegistry
from harborage.runtime.durable.leased_record import LeasedRecord
from harborage.runtime.durable.leased_run import LeasedRun
from harborage.runtime.durable.steps import EffectTable
from harborage.runtime.durable.stored import StoredEngine
from harborage.runtime.loop.controls import ControlEvent, ControlType, Scope
from harborage.runtime.loop.seam import Durable, RunRequest
from harborage.runtime.pauses import Coordinator
from harborage.state.errors import DatabaseLockedError
from harborage.store import Change, Commit, Committed, SendControl
from harborage.store.memory import MemoryStore
from harborage.store.port import MAX_ATTEMPTS
from tests.kit.stored_runs import keep, row_of

pytestmark = pytest.mark.anyio

ME = Quadruple("t", "u", "s", "r")
MESSAGE = ControlEvent(ControlType.USER_MESSAGE, ME, Scope.OWNER_USER, "t", {"message": "hello"}, "event")


class Refusing(MemoryStore):
    """A store that can refuse the next commit of a worker."""

    is_refusing = False

    async def commit(self, commit: Commit) -> Committed:
        if commit.guard is not None and self.is_refusing:
            self.is_refusing = False
            raise DatabaseLockedError("the database", "locked")
        return await super().commit(commit)


async def test_what_was_taken_without_an_entry_is_there_for_the_next_worker() -> None:
    """The entry that says so was refused, so the run is given back with the control in its inbox."""
    store = Refusing()
    await keep(store, ME, [b"started"])
    sent = SendControl(run_id="r", event_id="event", type="USER_MESSAGE", data=codec.encode(MESSAGE))
    await store.commit(Commit(sends=(sent,)))
    (claim,) = await store.claim("one")
    row = claim.row
    inbox = InboxRegistry().open(ME)
    run = LeasedRun(request=RunRequest(who=ME, goal="g"), inbox=inbox, lease=row.lease, position=row.position)
    await run.fetch(store)
    assert [control.event_id for control in inbox.drain()] == ["event"]
    record = LeasedRecord(store, run, Crew(lambda *_: None))
    store.is_refusing = True
    with pytest.raises(RecordRefusedError):
        await record.append("r", [b"arrived"])
    await record.release(Change(release=True, is_ready=True))
    (again,) = await store.claim("two")
    assert [control.event_id for control in again.controls] == ["event"]


class Slow(MemoryStore):
    """A store that keeps a run's end, and takes its time to say so."""

    def __init__(self) -> None:
        super().__init__()
        self.is_kept, self.may_answer = asyncio.Event(), asyncio.Event()

    async def commit(self, commit: Commit) -> Committed:
        done = await super().commit(commit)
        if commit.change is not None and commit.change.status is not None:
            self.is_kept.set()
            await self.may_answer.wait()
        return done


async def test_a_worker_that_stops_while_an_end_is_kept_still_rejects_what_came_too_late() -> None:
    """It is stopped before the store confirmed the end: only this worker can publish that control."""
    store, refused, is_asked, may_end = Slow(), list[Any](), asyncio.Event(), asyncio.Event()
    engine = StoredEngine(store, Coordinator(), refused=refused.append)

    async def program(durable: Durable, request: RunRequest) -> Finish:
        is_asked.set()
        await may_end.wait()
        return Finish(FinishReason.GOAL)

    serving = asyncio.ensure_future(engine.serve(program, EffectTable({})))
    await engine.start("r", RunRequest(who=ME, goal="g"))
    async with asyncio.timeout(20):
        await is_asked.wait()
        assert await engine.send("r", MESSAGE)
        may_end.set()
        await store.is_kept.wait()
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        store.may_answer.set()
        await engine.aclose()
    assert [control.event_id for control in refused] == ["event"]
    assert (await row_of(store, "r")).status.is_final


async def test_a_run_is_not_blocked_for_the_restarts_of_its_workers() -> None:
    """However often a worker stops in the middle of a step that has no outcome yet, the next one takes the run up."""
    store, is_asked = MemoryStore(), asyncio.Event()

    async def program(durable: Durable, request: RunRequest) -> Finish:
        is_asked.set()
        await asyncio.Event().wait()
        return Finish(FinishReason.GOAL)

    engine = StoredEngine(store, Coordinator())
    await engine.start("r", RunRequest(who=ME, goal="g"))
    async with asyncio.timeout(60):
        for _ in range(MAX_ATTEMPTS + 5):
            is_asked.clear()
            serving = asyncio.ensure_future(engine.serve(program, EffectTable({})))
            await is_asked.wait()
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
    assert (await row_of(store, "r")).blocked == ""
    await engine.aclose()


async def test_what_overtook_others_is_consumed_before_them() -> None:
    """An answer that was handed to its call has left the inbox; what came first waits there for its turn."""
    store = MemoryStore()
    await keep(store, ME, [b"started"])
    for number in range(3):
        control = replace(MESSAGE, event_id=f"event-{number}")
        sent = SendControl(run_id="r", event_id=control.event_id, type="USER_MESSAGE", data=codec.encode(control))
        await store.commit(Commit(sends=(sent,)))
    (claim,) = await store.claim("one")
    inbox, row = InboxRegistry().open(ME), claim.row
    run = LeasedRun(request=RunRequest(who=ME, goal="g"), inbox=inbox, lease=row.lease, position=row.position)
    await run.fetch(store)
    inbox.take(lambda control: control.event_id == "event-1")
    first, second, third = (number for number, _ in run.sent)
    assert run.pop_consumed() == (second,)
    assert run.pop_consumed() == ()
    inbox.drain()
    assert run.pop_consumed() == (first, third)
