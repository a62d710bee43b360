"""Controls beside a storage that several processes share: none is dropped, and what waits costs little."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from harborage import codec
from harborage.events import ControlLifecyclePayload, Cursor, EventType, Filter, typed_event
from harborage.identity import Identity
from harborage.planner import (
    CallTool,
    Finish,
    FinishReason,
    PauseReason,
    RequestPause,
    RunContext,
    SpawnSpec,
    SpawnTask,
)
from harborage.runtime.approval import AlwaysDeny
from harborage.runtime.durable.engine import RunNotFoundError
from harborage.runtime.durable.journal import Done, decode_entry
from harborage.runtime.host import Runtime
from harborage.runtime.steering import ControlEvent, ControlType, Scope, SteeringError
from harborage.state.errors import DatabaseLockedError
from harborage.state.storage import Storage, open_storage
from harborage.store import Commit, Committed, ControlRow, SendControl
from harborage.testing.clock import FakeClock, settle
from harborage.testing.planners import ScriptedPlanner
from tests.kit.stored_runs import row_of

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")
GOAL = Finish(FinishReason.GOAL, "done")


class Held:
    """A planner whose only call takes until it is let go."""

    def __init__(self) -> None:
        self.is_asked = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def next(self, run: RunContext) -> Finish:
        self.is_asked.set()
        await self.may_answer.wait()
        return GOAL


class Around:
    """A wrapper of a store; a subclass replaces single methods."""

    def __init__(self, store: Any) -> None:
        self.store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


@pytest.fixture
async def storage() -> AsyncIterator[Storage]:
    """A storage in memory."""
    async with await open_storage("memory:") as opened:
        yield opened


async def outcomes(runtime: Runtime, run_id: str) -> list[tuple[str, str]]:
    """What became of the controls of a run that is over; a rejection may be published after its end."""
    await settle()
    kinds = {EventType.CONTROL_APPLIED, EventType.CONTROL_REJECTED}
    kept = map(typed_event, await runtime.bus.replay(Cursor(ME.session_id, 0), Filter.of(ME)))
    mine = [event for event in kept if event.identity.run_id == run_id]
    return [(str(event.type), event.payload.type) for event in mine if event.type in kinds]


async def test_a_control_from_another_process_that_comes_too_late_is_rejected(tmp_path: Path) -> None:
    """Accepted while the planner gives its last answer: it is not dropped, and its rejection is announced."""
    url, planner = f"sqlite:{tmp_path / 'runs.db'}", Held()
    async with (
        Runtime(planner=planner, storage=url, agent="a") as first,
        Runtime(planner=ScriptedPlanner([]), storage=url, agent="b") as second,
        asyncio.timeout(20),
    ):
        run = await first.start("g", who=ME)
        await planner.is_asked.wait()
        other = await second.run(run.id, who=ME)
        assert await other.message("one more thing")
        assert await other.inject({"k": 1})
        planner.may_answer.set()
        assert await run.finished() == GOAL
        wanted = [("control.rejected", "USER_MESSAGE"), ("control.rejected", "INJECT_CONTEXT")]
        assert await outcomes(first, run.id) == wanted


@pytest.mark.parametrize("is_kept", [False, True])
async def test_every_control_of_a_flood_has_an_outcome(is_kept: bool, tmp_path: Path) -> None:
    """A run that ends under hundreds of accepted messages publishes the rejection of each; a refused one raises."""
    planner = Held()
    storage = f"sqlite:{tmp_path / 'runs.db'}" if is_kept else None
    async with Runtime(planner=planner, storage=storage) as runtime, asyncio.timeout(60):
        run = await runtime.start("g", who=ME)
        await planner.is_asked.wait()
        sending = [asyncio.create_task(run.message(f"message {number}")) for number in range(300)]
        await asyncio.wait(sending, return_when=asyncio.FIRST_COMPLETED)
        planner.may_answer.set()
        sent = await asyncio.gather(*sending, return_exceptions=True)
        assert await run.finished() == GOAL
        refused = [one for one in sent if one is not True]
        assert all(isinstance(one, RunNotFoundError | SteeringError) for one in refused)
        missing = 300 - sum(
            isinstance(one, RunNotFoundError) for one in refused
        )  # that there is no run is told nobody else
        assert await outcomes(runtime, run.id) == [("control.rejected", "USER_MESSAGE")] * missing


async def test_a_control_accepted_while_the_end_is_written_is_rejected(storage: Storage) -> None:
    """From wherever it comes: what was accepted has an outcome."""

    class Late(Around):
        is_sent = False

        async def commit(self, commit: Commit) -> Committed:
            status = None if commit.change is None else commit.change.status
            if status is not None and status.is_final and not self.is_sent:
                self.is_sent = True
                run_id = commit.guard.lease.run_id
                control = ControlEvent(ControlType.PAUSE, ME.with_run(run_id), Scope.OWNER_USER, "t", None, "late")
                late = SendControl(run_id=run_id, event_id="late", type="PAUSE", data=codec.encode(control))
                assert (await storage.store.commit(Commit(sends=(late,)))).sent == (True,)
            return await self.store.commit(commit)

    odd = Storage(state=storage.state, store=Late(storage.store))
    async with Runtime(planner=ScriptedPlanner([GOAL]), storage=odd) as runtime, asyncio.timeout(20):
        run = await runtime.start("g", who=ME)
        assert await run.finished() == GOAL
        assert await outcomes(runtime, run.id) == [("control.rejected", "PAUSE")]


class Dies(Around):
    """The store of a process that dies as it is about to record what became of a control: nothing is kept from then."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self.is_dead = asyncio.Event()

    async def commit(self, commit: Commit) -> Committed:
        entries = [decode_entry(stored, "", 0) for stored in commit.entries]
        if any(isinstance(entry, Done) and entry.name == "steer" for entry in entries):
            self.is_dead.set()
        if self.is_dead.is_set():
            raise DatabaseLockedError("the database", "its process is dead")
        done: Committed = await self.store.commit(commit)
        return done


async def test_a_control_whose_worker_died_before_its_outcome_was_kept_is_published_once(storage: Storage) -> None:
    """The next process applies the batch again: what took effect did not fail, and was received once."""
    store: Any = Dies(storage.store)
    dying = Storage(state=storage.state, store=store)
    planner = ScriptedPlanner([RequestPause(PauseReason.AWAIT_INPUT, {}), GOAL])
    async with Runtime(planner=planner, storage=dying) as first, asyncio.timeout(20):
        run = await first.start("g", who=ME)
        async for event in run.events():
            if event.type == EventType.PAUSE_REQUESTED:
                break
        await run.resume()
        await store.is_dead.wait()
    async with Runtime(planner=ScriptedPlanner([GOAL]), storage=storage) as second, asyncio.timeout(20):
        again = await second.run(run.id, who=ME)
        assert await again.finished() == GOAL
        kept = map(typed_event, await second.bus.replay(Cursor(ME.session_id, 0), Filter.of(ME)))
        lives = [one.payload for one in kept if isinstance(one.payload, ControlLifecyclePayload)]
    assert [(one.type, one.outcome, one.err) for one in lives] == [
        ("RESUME", "received", ""),
        ("RESUME", "applied", ""),
    ]


async def pay() -> str:
    """Pay."""
    return "paid"


async def test_a_message_does_not_keep_a_waiting_run_in_memory() -> None:
    """One that waits for an approval, and one that waits for its child: the message is read when the run goes on; until
    then the run waits on disk, as it did before."""
    clock = FakeClock()
    child = [RequestPause(PauseReason.AWAIT_INPUT, {}), GOAL]
    parent = [SpawnTask(spec=SpawnSpec(query="child", retain_turn=True)), GOAL]
    async with Runtime(
        planner=ScriptedPlanner([CallTool("pay"), GOAL], by_query={"parent": parent, "child": child}),
        tools=[pay],
        approvals={"pay": AlwaysDeny()},
        storage="memory:",
        clock=clock,
    ) as runtime:
        engine: Any = runtime.parts.engine
        runs = [await runtime.start(query, who=ME) for query in ("gate", "parent")]
        await settle()
        await clock.run_for(5)
        if engine._running or not await runs[0].waiting():
            raise RuntimeError("the runs do not wait outside of memory")
        for run in runs:
            await run.message("hello")
        await clock.run_for(60)
        assert not engine._running


async def test_a_control_is_read_once_however_many_wait(storage: Storage) -> None:
    """A hundred messages to a run that is at work cost a hundred reads, not the square of that."""
    read = 0

    class Counting(Around):
        async def controls(self, run_id: str, *, after: int = 0, limit: int = 100) -> Sequence[ControlRow]:
            nonlocal read
            sent: Sequence[ControlRow] = await self.store.controls(run_id, after=after, limit=limit)
            read += len(sent)
            return sent

        async def controls_of(self, after: Mapping[str, int], *, limit: int = 100) -> Sequence[ControlRow]:
            nonlocal read
            sent: Sequence[ControlRow] = await self.store.controls_of(after, limit=limit)
            read += len(sent)
            return sent

    planner = Held()
    odd = Storage(state=storage.state, store=Counting(storage.store))
    async with Runtime(planner=planner, storage=odd) as runtime, asyncio.timeout(20):
        run = await runtime.start("g", who=ME)
        await planner.is_asked.wait()
        for number in range(100):
            await run.message(f"m{number}")
        assert (await row_of(storage.store, run.id)).owner
        planner.may_answer.set()
        await run.finished()
    assert read <= 300
