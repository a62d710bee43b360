"""A runtime under bad timing: late answers are applied, and what tools do to their own task harms no run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from harborage import codec
from harborage.events import EventType
from harborage.identity import Identity
from harborage.planner import CallTool, Finish
from harborage.runtime.approval import AlwaysDeny
from harborage.runtime.durable.journal import Done, decode_entries
from harborage.runtime.host import Runtime
from harborage.runtime.loop.outcome import OutcomeStatus, ToolOutcome
from harborage.runtime.steering import RunCancelledError
from harborage.testing.clock import settle
from harborage.testing.planners import ScriptedPlanner

pytestmark = pytest.mark.anyio


async def pay() -> str:
    return "paid"


async def test_an_approval_right_behind_a_hard_cancel_is_refused() -> None:
    """The caller gets an error at once; the run ends cancelled, the tool is not called, the refusal is published."""
    async with Runtime(planner=ScriptedPlanner([CallTool("pay")]), tools=[pay], approvals=AlwaysDeny()) as runtime:
        run = await runtime.start("g", who=Identity("t", "u", "s"))
        await settle()
        (asked,) = await run.waiting()
        await run.cancel(hard=True)
        with pytest.raises(RunCancelledError, match="was cancelled, so APPROVE changes nothing"):
            await run.approve(asked.token)
        finish = await run.finished()
        published = [(event.type, event.payload) async for event in run.events()]
        assert not await run.waiting()
    assert (finish.reason, finish.metadata["steering_reason"]) == ("cancelled", "hard_cancel")
    applied = [payload for kind, payload in published if kind == EventType.CONTROL_APPLIED]
    assert [(one.type, one.outcome) for one in applied] == [("CANCEL", "applied")]
    assert [one.type for kind, one in published if kind == EventType.CONTROL_REJECTED] == ["APPROVE"]


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
        finish = await asyncio.wait_for(run.finished(), 5)
    assert finish.payload == "1 lost"


async def cancels_itself_and_waits() -> str:
    """Ask its own task to stop, and wait for that."""
    current().cancel()
    await asyncio.sleep(0)
    return "gone on"


async def cancels_itself_and_returns() -> str:
    """Ask its own task to stop, and be done before that comes."""
    current().cancel()
    return "done"


async def is_cancelled_later() -> str:
    """Have its own task asked to stop while it waits."""
    asyncio.get_running_loop().call_soon(current().cancel, "some reason")
    await asyncio.Event().wait()
    return "gone on"


def current() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


TOOLS = (cancels_itself_and_waits, cancels_itself_and_returns, is_cancelled_later)


@pytest.mark.parametrize("is_kept", [False, True])
@pytest.mark.parametrize("tool", TOOLS)
async def test_a_run_outlives_a_tool_that_cancels_its_own_task(
    tool: Callable[[], Awaitable[str]], is_kept: bool, tmp_path: Path
) -> None:
    """The call has failed, or is done where it ended first, and the planner is asked for the next step."""
    name = tool.__name__
    script = [CallTool(name), CallTool("pay"), Finish("goal")]
    storage = f"sqlite:{tmp_path / 'runs.db'}" if is_kept else None
    async with Runtime(planner=ScriptedPlanner(script), tools=[*TOOLS, pay], storage=storage) as runtime:
        run = await runtime.start("g", who=Identity("t", "u", "s"))
        async with asyncio.timeout(60):
            finish = await run.finished()
        ends = (EventType.TOOL_COMPLETED, EventType.TOOL_FAILED)
        published = [event.type for event in [one async for one in run.events()] if event.type in ends]
        entries = decode_entries(await run.history(), run.id)
    assert finish.reason == "goal"
    first, second = (codec.decode(bytes(one.result), ToolOutcome) for one in entries if is_call(one))
    if tool is cancels_itself_and_returns:
        assert first.observation == "done"
    else:
        assert first.status is OutcomeStatus.FAILED
        assert first.error == f'tool "{name}" invoke: it cancelled its own task, which only its run may do'
    assert second.observation == "paid"
    assert published == [
        EventType.TOOL_COMPLETED if tool is cancels_itself_and_returns else EventType.TOOL_FAILED,
        ends[0],
    ]


def is_call(entry: Any) -> bool:
    return isinstance(entry, Done) and entry.name.startswith("tool.")
