"""A run that outlives its runtime: a second one over the same storage resumes it from its record."""

from __future__ import annotations

import asyncio

import pytest

from harborage import CallTool, Finish, FinishReason, Identity, RunContext, Runtime, SideEffect, tool
from harborage.state.storage import open_storage
from tests.kit.planners import StepPlanner

pytestmark = pytest.mark.anyio

WHO = Identity("t", "u", "s")


def finish(run: RunContext) -> Finish:
    """Finish with what the tools returned."""
    return Finish(FinishReason.GOAL, [step.observation for step in run.trajectory.steps])


IN_ORDER = StepPlanner(CallTool("first"), CallTool("second"), finish)


async def test_a_second_runtime_carries_on_from_the_record():
    """What was recorded is not done again, a read that was cut off is, and the run ends."""
    calls: list[str] = []
    is_reached = asyncio.Event()

    @tool(effects=SideEffect.READ)
    async def first() -> int:
        calls.append("first")
        return 1

    @tool(effects=SideEffect.READ)
    async def second() -> int:
        calls.append("second")
        if not is_reached.is_set():
            is_reached.set()
            await asyncio.Event().wait()
        return 2

    async with await open_storage("memory:") as storage:
        async with Runtime(planner=IN_ORDER, tools=[first, second], storage=storage) as runtime:
            run_id = (await runtime.start("go", who=WHO)).id
            await is_reached.wait()
        async with Runtime(planner=IN_ORDER, tools=[first, second], storage=storage) as runtime:
            run = await runtime.run(run_id, who=WHO)
            assert (await run.finished()).payload == [1, 2]
    assert calls == ["first", "second", "second"]
