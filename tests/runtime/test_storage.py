"""A runtime over a storage: its runs outlive it, and the next runtime carries them on as if nothing had happened."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta

import pytest

from harborage.identity import Identity
from harborage.planner import (
    AwaitTask,
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
from harborage.runtime.durable.engine import RunPhase
from harborage.runtime.effects.options import RuntimeOptions
from harborage.runtime.host import Runtime
from harborage.runtime.pauses import Pause
from harborage.runtime.run import Run
from harborage.state.storage import Storage, open_storage
from harborage.testing.planners import ScriptedPlanner
from tests.kit.stored_runs import row_of

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")
LEAVES_AT_ONCE = RuntimeOptions(linger=timedelta(0))


@pytest.fixture
async def storage() -> AsyncIterator[Storage]:
    """A storage in memory that outlives the runtimes of a test."""
    async with await open_storage("memory:") as opened:
        yield opened


class Till:
    """A tool that counts what it was called with."""

    def __init__(self) -> None:
        self.paid: list[int] = []

    async def pay(self, amount: int) -> str:
        """Pay an amount."""
        self.paid.append(amount)
        return f"paid {amount}"


def over(storage: Storage, planner: ScriptedPlanner, *tools: Callable, **more) -> Runtime:
    """A runtime over the storage whose runs leave memory as soon as they only wait."""
    return Runtime(planner=planner, tools=tools, storage=storage, options=LEAVES_AT_ONCE, **more)


async def waiting(run: Run) -> Pause:
    """What the run waits for, once it waits and no worker executes it any more."""
    async with asyncio.timeout(20):
        while not (pauses := await run.waiting()):  # noqa: ASYNC110 - a pause that is kept tells nobody here
            await asyncio.sleep(0)
    return pauses[0]


async def left(storage: Storage, run: Run) -> None:
    """Return once the run has left memory."""
    async with asyncio.timeout(20):
        while (await row_of(storage.store, run.id)).owner:  # noqa: ASYNC110 - nor does a lease that is given back
            await asyncio.sleep(0)


async def answer(run: Run) -> object:
    """What the run's finish holds."""
    async with asyncio.timeout(20):
        return (await run.finished()).payload


async def test_a_parked_run_is_resumed_by_the_next_runtime(storage: Storage) -> None:
    """Neither the process nor the memory of the first one is needed; nothing that was done is done again."""
    till = Till()
    script = ScriptedPlanner(
        [
            CallTool("pay", b'{"amount":5}'),
            RequestPause(PauseReason.AWAIT_INPUT),
            lambda run: Finish(FinishReason.GOAL, run.trajectory.steps[0].observation),
        ]
    )
    async with over(storage, script, till.pay) as first:
        run_id = (run := await first.start("go", who=ME)).id
        await waiting(run)
        await left(storage, run)
    async with over(storage, script, till.pay) as second:
        run = await second.run(run_id, who=ME)
        assert (await run.status()).phase is RunPhase.PARKED
        assert [pause.reason for pause in await run.waiting()] == [PauseReason.AWAIT_INPUT]
        await run.resume()
        assert await answer(run) == "paid 5"
    assert till.paid == [5]


async def test_an_approval_waits_through_a_restart(storage: Storage) -> None:
    """The call that was shown is the call that is made, once, however many processes came and went."""
    till = Till()
    script = ScriptedPlanner([CallTool("pay", b'{"amount":7}'), Finish(FinishReason.GOAL, "done")])
    gates = {"pay": AlwaysDeny("look first")}
    async with over(storage, script, till.pay, approvals=gates) as first:
        run_id = (run := await first.start("go", who=ME)).id
        token = (await waiting(run)).token
    async with over(storage, script, till.pay, approvals=gates) as second:
        run = await second.run(run_id, who=ME)
        assert (await waiting(run)).token == token
        assert till.paid == []
        await run.approve(token)
        assert await answer(run) == "done"
    assert till.paid == [7]


async def test_a_control_that_was_sent_while_no_worker_had_the_run_is_applied(storage: Storage) -> None:
    """It is kept by the storage until the run is carried again."""
    script = ScriptedPlanner(
        [
            RequestPause(PauseReason.AWAIT_INPUT),
            lambda run: Finish(FinishReason.GOAL, [one.payload for one in run.trajectory.steering_inputs][:1]),
        ]
    )
    async with over(storage, script) as first:
        run = await first.start("go", who=ME)
        await waiting(run)
        await left(storage, run)
        await run.message("still there?")
        await run.resume()
        assert await answer(run) == [{"message": "still there?"}]


async def test_a_run_that_awaits_a_task_leaves_memory_and_comes_back(storage: Storage) -> None:
    """The end of the task brings back the run that waits for it."""
    gate = asyncio.Event()

    async def hold() -> str:
        """Wait for the test."""
        await gate.wait()
        return "opened"

    def next_of(run: RunContext) -> object:
        steps = run.trajectory.steps
        if run.goal == "child":
            return CallTool("hold") if not steps else Finish(FinishReason.GOAL, steps[0].observation)
        if not steps:
            return SpawnTask(spec=SpawnSpec(query="child", retain_turn=True))
        if len(steps) == 1:
            return AwaitTask(steps[0].observation["task_id"])
        return Finish(FinishReason.GOAL, steps[1].observation["result"]["answer"])

    async with over(storage, ScriptedPlanner([next_of] * 8), hold) as runtime:
        run = await runtime.start("parent", who=ME)
        async with asyncio.timeout(20):
            while (kept := await row_of(storage.store, run.id)).owner or not kept.awaits:  # noqa: ASYNC110
                await asyncio.sleep(0)
        gate.set()
        assert await answer(run) == "opened"


async def test_a_run_that_is_cut_off_is_carried_on(storage: Storage) -> None:
    """Closing a runtime in the middle of a run leaves it to the next one, and its task is not given up."""
    started = asyncio.Event()

    async def linger() -> str:
        """Take for ever."""
        started.set()
        return await asyncio.Event().wait() or ""

    async def quick() -> str:
        """Take no time."""
        return "quick"

    script = [CallTool("linger"), Finish(FinishReason.GOAL, "done")]
    async with over(storage, ScriptedPlanner(script), linger) as first:
        run_id = (await first.start("go", who=ME)).id
        await started.wait()
    quick.__name__ = "linger"
    async with over(storage, ScriptedPlanner(script), quick) as second:
        run = await second.run(run_id, who=ME)
        assert await answer(run) == "done"
        assert [event.type async for event in run.events()][-1] == "task.completed"


async def test_only_runs_of_the_agent_are_carried(storage: Storage) -> None:
    """Runs that another agent's runtime started wait for that agent."""
    script = ScriptedPlanner([RequestPause(PauseReason.AWAIT_INPUT), Finish(FinishReason.GOAL, "mine")])
    async with over(storage, script, agent="a") as first:
        run = await first.start("go", who=ME)
        await waiting(run)
        await left(storage, run)
    async with over(storage, script, agent="b") as other:
        seen = await other.run(run.id, who=ME)
        await seen.resume()
        assert (await (await other.start("x", who=ME)).status()).phase is not RunPhase.FAILED
        assert not (await seen.status()).phase.is_final
    async with over(storage, script, agent="a") as second:
        assert await answer(await second.run(run.id, who=ME)) == "mine"


async def test_two_runtimes_share_the_runs(storage: Storage) -> None:
    """Each run is carried by one of them, and both know how it ended."""
    script = ScriptedPlanner([CallTool("pay", b'{"amount":1}'), Finish(FinishReason.GOAL, "done")])
    till = Till()
    async with over(storage, script, till.pay) as one, over(storage, script, till.pay) as two:
        runs = [await (one if number % 2 else two).start("go", who=ME) for number in range(20)]
        for run in runs:
            assert await answer(await one.run(run.id, who=ME)) == "done"
            assert await answer(await two.run(run.id, who=ME)) == "done"
    assert till.paid == [1] * 20
