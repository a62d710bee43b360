"""What a run changes in other rows, it commits under its lease: pauses, children, waits and answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from harborage import CallTool, Identity, Runtime, SideEffect, tool
from harborage.events import ControlLifecyclePayload, EventType
from harborage.planner import AwaitTask, Decision, PauseReason, RequestPause, RunContext, SpawnSpec, SpawnTask
from harborage.runtime.approval import AlwaysDeny
from harborage.runtime.durable.journal import Begun, decode_entries
from harborage.state import Storage, open_storage
from harborage.store import Commit, Committed, PauseQuery, PauseStatus, RunQuery
from harborage.store.errors import LeaseLostError
from tests.kit.pauses import wait_for_approval
from tests.kit.planners import DONE, StepPlanner

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")
ASKS = RequestPause(PauseReason.AWAIT_INPUT, {"question": "which?"})


def spawning(group: str = "") -> Callable[[RunContext], Decision]:
    """Spawns one child, in the group if one is named; the child itself finishes."""
    spawn = SpawnTask(spec=SpawnSpec(query="child"), group_id=group)
    return lambda run: DONE if run.goal == "child" else spawn


def asking(run: RunContext) -> Decision:
    """Asks until there is an answer."""
    assert run.trajectory is not None
    return ASKS if run.trajectory.resume_hint is None else DONE


def awaiting(run: RunContext) -> Decision:
    """Waits for the child that was spawned."""
    assert run.trajectory is not None
    return AwaitTask(run.trajectory.steps[0].observation["task_id"])


@tool(effects=SideEffect.WRITE)
async def pay() -> str:
    """Pay."""
    return "paid"


class Watched:
    """A store that keeps every commit that it was given.

    `before` is called ahead of each of them. `refuse` says at which of them the lease of the run is found lost, for
    good; `waits` is set once a run has said that it waits for another.
    """

    def __init__(self, store: Any) -> None:
        self.store = store
        self.commits: list[Commit] = []
        self.refuse: Callable[[Commit], bool] = lambda _: False
        self.before: Callable[[Commit], Awaitable[None]] | None = None
        self.refused = asyncio.Event()
        self.waits = asyncio.Event()

    async def commit(self, commit: Commit) -> Committed:
        if self.before is not None:
            await self.before(commit)
        self.commits.append(commit)
        if self.refuse(commit) or self.refused.is_set():
            self.refused.set()
            assert commit.guard is not None
            raise LeaseLostError(commit.guard.lease.run_id)
        done: Committed = await self.store.commit(commit)
        if any(move.awaits for move in commit.moves):
            self.waits.set()
        return done

    def __getattr__(self, name: str) -> Any:
        if name == "commit_now":
            raise AttributeError(name)
        return getattr(self.store, name)


@pytest.fixture(params=["memory:", "sqlite:"])
async def watched(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A storage whose store is watched."""
    url = f"{request.param}{tmp_path / 'runs.db' if request.param == 'sqlite:' else ''}"
    async with await open_storage(url) as storage:
        storage.store = Watched(storage.store)
        yield storage


def intents(commit: Commit) -> list[str]:
    """The names of the steps whose intents a commit has."""
    return [entry.name for entry in decode_entries(commit.entries, "r") if isinstance(entry, Begun)]


def events(commit: Commit) -> list[str]:
    """The types of the events that a commit has."""
    return [one.type for one in commit.events]


async def test_a_pause_is_opened_with_the_intent_of_its_step(watched: Storage) -> None:
    """One commit under the lease of the run has the intent, the pause and its event; its answer comes under it, too."""
    store: Any = watched.store
    async with Runtime(planner=StepPlanner(asking), storage=watched) as rt, asyncio.timeout(20):
        run = await rt.start("ask", who=ME)
        async for event in run.events():
            if event.type == EventType.PAUSE_REQUESTED:
                break
        await run.resume({"answer": 42})
        await run.finished()
    (opened,) = (commit for commit in store.commits if commit.opens)
    assert opened.guard is not None
    assert intents(opened) == ["pause.request"]
    assert "pause.requested" in events(opened)
    (answered,) = (commit for commit in store.commits if commit.settles)
    assert answered.guard is not None


async def test_an_approval_is_requested_with_the_intent_of_its_call(watched: Storage) -> None:
    """One commit under the lease of the run has the intent, the pause and the events that announce it."""
    store: Any = watched.store
    planner, approvals = StepPlanner(CallTool("pay"), DONE), {"pay": AlwaysDeny()}
    runtime = Runtime(planner=planner, tools=[pay], approvals=approvals, storage=watched)
    async with runtime as rt, asyncio.timeout(20):
        run = await rt.start("pay", who=ME)
        await run.approve(await wait_for_approval(run))
        await run.finished()
    (opened,) = (commit for commit in store.commits if commit.opens)
    assert opened.guard is not None
    assert intents(opened) == ["approve.pay"]
    assert {"pause.requested", "tool.approval_requested"} <= {*events(opened)}


async def test_an_approval_is_resolved_with_the_intent_of_the_approved_call(watched: Storage) -> None:
    """One commit under the lease of the run has the resolution, its events, the answer as consumed, and the intent."""
    store: Any = watched.store
    planner, approvals = StepPlanner(CallTool("pay"), DONE), {"pay": AlwaysDeny()}
    runtime = Runtime(planner=planner, tools=[pay], approvals=approvals, storage=watched)
    async with runtime as rt, asyncio.timeout(20):
        run = await rt.start("pay", who=ME)
        await run.approve(await wait_for_approval(run))
        await run.finished()
    (resolved,) = (commit for commit in store.commits if commit.settles)
    assert resolved.guard is not None
    assert intents(resolved) == ["tool.pay"]
    assert {"pause.resumed", "tool.approved", "control.applied"} <= {*events(resolved)}
    assert resolved.consumed


async def test_an_approval_that_comes_after_another_answer_makes_no_call(watched: Storage) -> None:
    """Another caller rejects the pause before the approval is committed: the run is taken up again and sees that."""
    store: Any = watched.store
    calls: list[str] = []

    @tool(name="pay", effects=SideEffect.WRITE)
    async def pay_once() -> str:
        """Pay."""
        calls.append("pay")
        return "paid"

    async def reject_first(commit: Commit) -> None:
        if commit.guard is not None and commit.settles:
            (settle,) = commit.settles
            store.before = None
            await store.store.commit(Commit(settles=(replace(settle, status=PauseStatus.REJECTED, by="other"),)))

    store.before = reject_first
    planner, approvals = StepPlanner(CallTool("pay"), DONE), {"pay": AlwaysDeny()}
    runtime = Runtime(planner=planner, tools=[pay_once], approvals=approvals, storage=watched)
    async with runtime as rt, asyncio.timeout(20):
        run = await rt.start("pay", who=ME)
        await run.approve(await wait_for_approval(run))
        await run.finished()
        applied = [event.payload async for event in run.events() if event.type == EventType.CONTROL_APPLIED]
        (pause,) = (await store.pauses(PauseQuery(run_ids=(run.id,)))).rows
    assert calls == []
    assert pause.status is PauseStatus.REJECTED
    (outcome,) = applied
    assert isinstance(outcome, ControlLifecyclePayload)
    assert outcome.outcome == "failed"


@pytest.mark.parametrize("group", ["", "crew"])
async def test_a_child_is_started_with_the_intent_of_its_step(watched: Storage, group: str) -> None:
    """One commit under the lease of the parent has the intent, the child and the events that announce it."""
    store: Any = watched.store
    async with Runtime(planner=StepPlanner(spawning(group), DONE), storage=watched) as rt, asyncio.timeout(20):
        run = await rt.start("spawn", who=ME)
        await run.finished()
    started = [commit for commit in store.commits if any(row.parent == run.id for row in commit.starts)]
    assert started
    for commit in started:
        assert commit.guard is not None
        assert intents(commit) == ["task.spawn"]
        assert "task.spawned" in events(commit)


@pytest.mark.parametrize("line", [asking, spawning(), CallTool("pay")], ids=["pause", "spawn", "approval"])
async def test_a_worker_that_lost_its_run_changes_nothing_for_it(watched: Storage, line: Any) -> None:
    """Neither the pause that it would open nor the child that it would start is there, and the step has not begun."""
    store: Any = watched.store
    store.refuse = lambda commit: bool(commit.opens) or any(row.parent for row in commit.starts)
    options: Any = {"tools": [pay], "approvals": {"pay": AlwaysDeny()}, "storage": watched}
    async with Runtime(planner=StepPlanner(line, DONE), **options) as rt, asyncio.timeout(20):
        run = await rt.start("go", who=ME)
        await store.refused.wait()
    assert not (await store.pauses(PauseQuery())).rows
    assert [row.run_id for row in (await store.runs(RunQuery())).rows] == [run.id]
    kept = decode_entries(await store.entries(run.id), run.id)
    assert [entry for entry in kept if isinstance(entry, Begun)] == []


async def test_a_run_says_under_its_lease_that_it_waits_for_a_task(watched: Storage) -> None:
    """And that it waits no longer: a worker that lost it cannot say either."""
    store: Any = watched.store
    held = asyncio.Event()

    class Held(StepPlanner):
        async def next(self, run: Any) -> Any:
            if run.goal == "child":
                await held.wait()
            return await super().next(run)

    planner = Held(spawning(), awaiting, DONE)
    async with Runtime(planner=planner, storage=watched) as rt, asyncio.timeout(20):
        run = await rt.start("wait", who=ME)
        await store.waits.wait()
        held.set()
        await run.finished()
    waits = [commit for commit in store.commits if any(move.awaits is not None for move in commit.moves)]
    assert len(waits) == 2
    assert all(commit.guard is not None for commit in waits)


async def test_a_run_cancels_its_children_under_its_lease(watched: Storage) -> None:
    """The controls that end the children of a cancelled run are sent in a commit of that run."""
    store: Any = watched.store
    is_asked = asyncio.Event()

    class Held(StepPlanner):
        async def next(self, run: Any) -> Any:
            if run.goal == "child":
                is_asked.set()
                await asyncio.Event().wait()
            return await super().next(run)

    async with Runtime(planner=Held(spawning(), asking), storage=watched) as rt, asyncio.timeout(20):
        run = await rt.start("cancel", who=ME)
        await is_asked.wait()
        await run.cancel()
        await run.finished()
    (cancelled,) = (commit for commit in store.commits if any(one.run_id != run.id for one in commit.sends))
    assert cancelled.guard is not None
    assert cancelled.guard.lease.run_id == run.id
