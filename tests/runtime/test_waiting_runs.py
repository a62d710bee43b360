"""Runs that wait for one another under the assembled runtime: in memory, out of memory, and over its restarts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from harborage.identity import Identity
from harborage.planner import AwaitTask, CallTool, Decision, Finish, FinishReason, RunContext, SpawnSpec, SpawnTask
from harborage.runtime.effects.options import RuntimeOptions
from harborage.runtime.host import Runtime
from harborage.state.storage import Storage, open_storage
from harborage.testing.clock import settle
from tests.kit.stored_runs import row_of

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")
LEAVES_AT_ONCE = RuntimeOptions(linger=timedelta(0))
Runtimes = Callable[..., Awaitable[Any]]


@pytest.fixture
async def storage() -> AsyncIterator[Storage]:
    """A storage in memory that outlives the runtimes of a test."""
    async with await open_storage("memory:") as opened:
        yield opened


class Circle:
    """A parent that waits for its child, which waits for its parent."""

    async def next(self, run: RunContext) -> Decision:
        steps = run.trajectory.steps
        if steps:
            return Finish(FinishReason.GOAL, steps[-1].observation)
        if run.query.startswith("child "):
            return AwaitTask(run.query.split()[1])
        return SpawnTask(spec=SpawnSpec(query=f"child {run.quadruple.run_id}", retain_turn=True))


@pytest.mark.parametrize("is_stored", [False, True])
async def test_a_child_cannot_await_the_parent_that_waits_for_it(storage: Storage, is_stored: bool) -> None:
    """Its planner gets the reason, and both runs end."""
    options = LEAVES_AT_ONCE if is_stored else RuntimeOptions()
    async with Runtime(planner=Circle(), storage=storage if is_stored else None, options=options) as rt:
        run = await rt.start("parent", who=ME)
        async with asyncio.timeout(20):
            finish = await run.finished()
    assert "this wait would never end" in finish.payload["result"]["answer"]


class LateCircle:
    """Two runs of which the second awaits the first; the first is let go later, and then awaits the second."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.other = ""

    async def next(self, run: RunContext) -> Decision:
        steps = run.trajectory.steps
        if len(steps) == (2 if run.query == "first" else 1):
            return Finish(FinishReason.GOAL, steps[-1].observation)
        if run.query == "first":
            return AwaitTask(self.other) if steps else CallTool("hold")
        return AwaitTask(run.query)

    async def hold(self) -> str:
        """Wait until the test goes on."""
        await self.go.wait()
        return "on"


async def test_a_circle_is_refused_after_a_restart_too(storage: Storage) -> None:
    """The second run waits out of memory when its process ends; in the next one the first must not wait for it."""
    planner = LateCircle()

    def runtime() -> Runtime:
        return Runtime(planner=planner, tools=[planner.hold], storage=storage, options=LEAVES_AT_ONCE)

    async with runtime() as rt:
        first = await rt.start("first", who=ME)
        second = await rt.start(first.id, who=ME)
        planner.other = second.id
        async with asyncio.timeout(20):
            while (await row_of(storage.store, second.id)).awaits != first.id:  # noqa: ASYNC110
                await asyncio.sleep(0)
    async with runtime() as rt:
        planner.go.set()
        async with asyncio.timeout(20):
            finish = await (await rt.run(first.id, who=ME)).finished()
            outcome = await (await rt.run(second.id, who=ME)).finished()
    assert "this wait would never end" in finish.payload["error"]
    assert outcome.payload["status"] == "complete"


class Fan:
    """A run that opens a group of three, awaits it and finishes with what its members answered."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def next(self, run: RunContext) -> Decision:
        steps = run.trajectory.steps
        if run.query.isdigit():
            return Finish(FinishReason.GOAL, run.query) if steps else CallTool("hold")
        if len(steps) < 3:
            return SpawnTask(spec=SpawnSpec(query=str(len(steps))), group_id="fan")
        if len(steps) == 3:
            return AwaitTask("fan")
        return Finish(FinishReason.GOAL, [one["result"]["answer"] for one in steps[-1].observation["members"]])

    async def hold(self) -> str:
        """Wait until the test goes on."""
        await self.go.wait()
        return "on"


async def test_a_run_that_awaits_a_group_leaves_memory_and_comes_back(storage: Storage) -> None:
    """Over a restart, too: it waits for a living member and looks at the group again when that has ended."""
    planner = Fan()

    def runtime() -> Runtime:
        return Runtime(planner=planner, tools=[planner.hold], storage=storage, options=LEAVES_AT_ONCE)

    async with runtime() as rt:
        run = await rt.start("fan", who=ME)
        async with asyncio.timeout(20):
            while not (await row_of(storage.store, run.id)).awaits:  # noqa: ASYNC110
                await asyncio.sleep(0)
    planner.go.set()
    async with runtime() as rt:
        async with asyncio.timeout(20):
            finish = await (await rt.run(run.id, who=ME)).finished()
    assert finish.payload == ["0", "1", "2"]


class Awaits:
    """A run that waits for a child, by a kept turn or an await, and finishes with what the child answered."""

    def __init__(self, *, keeps_turn: bool) -> None:
        self.go = asyncio.Event()
        self.keeps_turn = keeps_turn

    async def next(self, run: RunContext) -> Decision:
        steps = run.trajectory.steps
        if run.query == "child":
            return Finish(FinishReason.GOAL, "from below") if steps else CallTool("hold")
        if not steps:
            return SpawnTask(spec=SpawnSpec(query="child", retain_turn=self.keeps_turn))
        if len(steps) == 1 and not self.keeps_turn:
            return AwaitTask(steps[0].observation["task_id"])
        return Finish(FinishReason.CANCELLED if run.control.cancelled else FinishReason.GOAL, steps[-1].observation)

    async def hold(self) -> str:
        """Wait until the test goes on."""
        await self.go.wait()
        return "on"


async def waits_for_child(run: Any) -> None:
    """Return once the run waits for its child."""
    async with asyncio.timeout(20):
        while not [one for one in await run.history() if b'"task.spawn"' in one and b'"done"' in one]:  # noqa: ASYNC110
            await asyncio.sleep(0)
    await settle()


@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize("keeps_turn", [False, True])
async def test_a_pause_parks_a_run_that_waits_for_a_child_at_once(
    storage: Storage, is_stored: bool, keeps_turn: bool
) -> None:
    """Once resumed it waits on, and its planner sees the child's outcome as if there had been no pause."""
    planner = Awaits(keeps_turn=keeps_turn)
    options = LEAVES_AT_ONCE if is_stored else RuntimeOptions()
    parts: Any = {"planner": planner, "tools": [planner.hold], "options": options}
    async with Runtime(**parts, storage=storage if is_stored else None) as rt:
        run = await rt.start("parent", who=ME)
        await waits_for_child(run)
        await run.pause()
        async with asyncio.timeout(20):
            while not await run.waiting():  # noqa: ASYNC110
                await asyncio.sleep(0)
        planner.go.set()
        await settle(100)
        assert not (await run.status()).phase.is_final
        await run.resume()
        async with asyncio.timeout(20):
            finish = await run.finished()
        record = await run.history()
    assert finish.payload["result"]["answer"] == "from below"
    assert finish.reason is FinishReason.GOAL
    replayed = await Runtime(**parts).replay(record)
    assert replayed.is_same


async def test_a_cancel_ends_a_put_off_wait(runtimes: Runtimes) -> None:
    """A soft cancel while the run is paused ends it, its child with it."""
    planner = Awaits(keeps_turn=True)
    bench = await runtimes(planner, tools=[planner.hold])
    run = await bench.start("parent")
    await waits_for_child(run)
    await run.pause()
    await bench.paused(run)
    await run.cancel()
    assert (await bench.end(run)).reason is FinishReason.CANCELLED
    await settle(100)
    assert all(one.status.is_terminal for one in await bench.rt.tasks.list(ME))
