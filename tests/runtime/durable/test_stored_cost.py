"""What a run costs the store that keeps it, as counts: writes, rows and bytes a step, and what a parked run holds."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from statistics import correlation
from typing import Any

import pytest

from harborage.identity import Identity
from harborage.planner import CallTool, Decision, Finish, FinishReason, PauseReason, RequestPause, RunContext
from harborage.runtime.durable.engine import RunPhase
from harborage.runtime.durable.journal import Begun, Done, Entry, decode_entries
from harborage.runtime.durable.leased_run import LeasedRun
from harborage.runtime.durable.mailbox import Mailbox
from harborage.runtime.durable.reader import phase_of
from harborage.runtime.durable.recorder import Recorder
from harborage.runtime.effects.options import RuntimeOptions
from harborage.runtime.effects.run_resources import LiveRun
from harborage.runtime.host import Runtime
from harborage.state import Storage, open_storage
from harborage.store import Commit, Committed
from harborage.tools import SideEffect, ToolDescriptor, tool
from tests.kit.stored_runs import rows_of

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")
CALL = CallTool("act", b'{"a":1,"b":2}')


class StepPlanner:
    """Calls `act` as often as the goal says."""

    async def next(self, run: RunContext) -> Decision:
        assert run.trajectory is not None
        return CALL if len(run.trajectory.steps) < int(run.goal) else Finish(FinishReason.GOAL)


def act(look: Callable[[], Any] | None = None, side_effects: SideEffect = SideEffect.WRITE) -> ToolDescriptor:
    """A tool, one that must not act twice if nothing else is said; it calls `look` when it acts."""

    @tool(effects=side_effects)
    async def act(a: int, b: int) -> int:
        """Do something."""
        if look is not None:
            await look()
        return a + b

    return act


@pytest.fixture(params=["memory", "sqlite"])
async def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A storage in memory, and one in a file."""
    url = "memory:" if request.param == "memory" else f"sqlite:{tmp_path / 'runs.db'}"
    async with await open_storage(url) as opened:
        yield opened


class Taken:
    """What the store was asked to keep since this was made: run writes with their rows, event writes with theirs."""

    def __init__(self, storage: Storage, patch: pytest.MonkeyPatch) -> None:
        self.writes: list[int] = []
        self.events: list[int] = []
        self.alone = 0
        self.bytes = 0
        commit = storage.store.commit

        async def append_run(change: Commit) -> Committed:
            if change.guard is not None and change.entries:
                self.writes.append(len(change.entries))
                self.bytes += sum(map(len, change.entries))
            if change.events:
                self.events.append(len(change.events))
                self.alone += not change.entries
                self.bytes += sum(len(event.data) for event in change.events)
            return await commit(change)

        patch.setattr(storage.store, "commit", append_run)


async def taken(storage: Storage, steps: int, side_effects: SideEffect = SideEffect.WRITE) -> Taken:
    """What a run of so many steps takes."""
    with pytest.MonkeyPatch.context() as patch:
        counted = Taken(storage, patch)
        options = RuntimeOptions(max_steps=1000)
        async with Runtime(
            planner=StepPlanner(), tools=[act(None, side_effects)], storage=storage, options=options
        ) as rt:
            await (await rt.start(str(steps), who=ME)).finished()
        return counted


async def test_a_step_is_one_write_of_three_entries_or_two(storage: Storage) -> None:
    """The outcome of a call, the next plan and the next intent are kept together, except that the outcome of a call
    that may not be repeated is kept first; the three events of a step go with them, and take no write of their own."""
    await taken(storage, 0)  # the session opens once
    for side_effects, writes in ((SideEffect.READ, 1), (SideEffect.WRITE, 2)):
        few, many = await taken(storage, 20, side_effects), await taken(storage, 60, side_effects)
        # A store that is slow for a moment may get the entries of a step that nobody waits for in two writes.
        assert abs(len(many.writes) - len(few.writes) - writes * 40) <= 4
        assert sum(many.writes) - sum(few.writes) == 3 * 40
        assert sum(many.events) - sum(few.events) == 3 * 40
        assert len(many.events) - len(few.events) <= writes * 40 + 4
        assert many.alone - few.alone <= 2  # a step that took longer than others has its events told meanwhile


async def test_bytes_are_a_line(storage: Storage) -> None:
    """A step takes as much in a long run as in a short one."""
    await taken(storage, 0)  # the session opens once
    sizes = (10, 40, 120, 300)
    found = [(await taken(storage, steps)).bytes for steps in sizes]
    assert correlation([float(steps) for steps in sizes], [float(one) for one in found]) ** 2 >= 0.9999
    early, late = (found[1] - found[0]) / 30, (found[3] - found[2]) / 180
    assert late == pytest.approx(early, rel=0.02)  # numbers get a digit more


async def test_the_intent_is_kept_before_a_tool_acts(storage: Storage) -> None:
    """With the plan that led to it, and the outcome of the call before."""
    seen: list[list[Entry]] = []

    async def look() -> None:
        (row,) = await rows_of(storage.store)
        seen.append(decode_entries(await storage.store.entries(row.run_id), row.run_id))

    async with Runtime(planner=StepPlanner(), tools=[act(look)], storage=storage) as rt:
        await (await rt.start("3", who=ME)).finished()
    assert len(seen) == 3
    for calls, entries in enumerate(seen):
        *_, plan, intent = entries
        assert isinstance(plan, Done)
        assert plan.name == "plan"
        assert isinstance(intent, Begun)
        outcomes = [one for one in entries if isinstance(one, Done) and one.name == "tool.act"]
        assert len(outcomes) == calls


async def test_an_outcome_is_kept_while_the_planner_thinks(storage: Storage) -> None:
    """It does not wait for the planner's next answer, which may take long."""
    is_asked, may_answer = asyncio.Event(), asyncio.Event()

    class Thinking(StepPlanner):
        async def next(self, run: RunContext) -> Decision:
            assert run.trajectory is not None
            if run.trajectory.steps:
                is_asked.set()
                await may_answer.wait()
            return await super().next(run)

    is_kept = asyncio.Event()
    async with Runtime(planner=Thinking(), tools=[act()], storage=storage) as rt:
        commit = storage.store.commit

        async def noticed(change: Commit) -> Committed:
            done = await commit(change)
            names = [one.name for one in decode_entries(change.entries, "") if isinstance(one, Done)]
            if "tool.act" in names:
                assert "plan" not in names
                is_kept.set()
            return done

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(storage.store, "commit", noticed)
            run = await rt.start("1", who=ME)
            async with asyncio.timeout(20):
                await is_asked.wait()
                await is_kept.wait()
                may_answer.set()
                await run.finished()


class Waiting:
    """Asks a person at once."""

    async def next(self, _: RunContext) -> Decision:
        return RequestPause(PauseReason.AWAIT_INPUT)


HELD = (LeasedRun, LiveRun, Mailbox, Recorder)


def held() -> int:
    """The objects in memory that belong to a run which is carried, and the tasks."""
    gc.collect()
    return sum(isinstance(one, HELD) for one in gc.get_objects()) + len(asyncio.all_tasks())


async def test_a_parked_run_holds_nothing(storage: Storage) -> None:
    """No task and no object of the runtime is its own once it has left memory."""
    runs = 30
    options = RuntimeOptions(linger=timedelta(0))
    async with Runtime(planner=Waiting(), storage=storage, options=options) as rt:
        await _park(rt, storage, 1)
        before = held()
        await _park(rt, storage, runs)
        async with asyncio.timeout(20):  # the store says so a moment before its worker has let go
            while held() > before + 2:  # noqa: ASYNC110 - what the runtime is at by itself is no more than two things
                await asyncio.sleep(0.01)


async def _park(rt: Runtime, storage: Storage, number: int) -> None:
    """Start so many runs, and wait until all there are have left memory."""

    async def parked() -> int:
        return sum(phase_of(row) is RunPhase.PARKED for row in await rows_of(storage.store))

    wanted = number + await parked()
    is_given_back = asyncio.Event()
    unlisten = storage.store.on_change(is_given_back.set)
    for _ in range(number):
        await rt.start("wait", who=ME)
    async with asyncio.timeout(20):
        while await parked() < wanted:
            await is_given_back.wait()
            is_given_back.clear()
    unlisten()
    await asyncio.sleep(0)
