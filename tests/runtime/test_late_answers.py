"""A runtime under bad timing: late answers are heard, and what tools do to their own task harms no run."""

from __future__ import annotations

import asyncio

import pytest

from harborage.events import EventType
from harborage.identity import Identity
from harborage.planner import CallTool, Finish
from harborage.runtime.approval import AlwaysDeny
from harborage.runtime.host import Runtime
from harborage.runtime.steering import RunCancelledError
from harborage.testing.clock import settle
from harborage.testing.planners import ScriptedPlanner

pytestmark = pytest.mark.anyio


async def pay() -> str:
    return "paid"


async def test_an_approval_right_behind_a_hard_cancel_is_refused() -> None:
    """Whoever gave it learns at once; the run ends cancelled, the tool is not called, the refusal is announced."""
    async with Runtime(planner=ScriptedPlanner([CallTool("pay")]), tools=[pay], approvals=AlwaysDeny()) as runtime:
        run = await runtime.start("g", who=Identity("t", "u", "s"))
        await settle()
        (asked,) = await run.waiting()
        await run.cancel(hard=True)
        with pytest.raises(RunCancelledError, match="was cancelled, so APPROVE changes nothing"):
            await run.approve(asked.token)
        finish = await run.result()
        told = [(event.type, event.payload) async for event in run.events()]
        assert not await run.waiting()
    assert (finish.reason, finish.metadata["steering_reason"]) == ("cancelled", "hard_cancel")
    applied = [payload for kind, payload in told if kind == EventType.CONTROL_APPLIED]
    assert [(one.type, one.outcome) for one in applied] == [("CANCEL", "applied")]
    assert [one.type for kind, one in told if kind == EventType.CONTROL_REJECTED] == ["APPROVE"]


async def test_a_run_outlives_a_tool_whose_task_group_failed() -> None:
    """A member's failure inside a tool is the tool's own affair: the run is asked for its next step."""

    async def fan_out() -> str:
        async def fail() -> None:
            await asyncio.sleep(0)
            raise ValueError("member")

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())
        except* ValueError as errors:
            gone = len(errors.exceptions)
        return f"{gone} lost"

    script = [CallTool("fan_out"), lambda run: Finish("goal", run.trajectory.steps[-1].observation)]
    async with Runtime(planner=ScriptedPlanner(script), tools=[fan_out]) as runtime:
        run = await runtime.start("g", who=Identity("t", "u", "s"))
        finish = await asyncio.wait_for(run.result(), 5)
    assert finish.payload == "1 lost"
