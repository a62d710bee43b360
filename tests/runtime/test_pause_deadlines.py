"""What a person is asked can be answered until the run ends: a pause shows the earlier of its deadline and that one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from harborage import (
    CallTool,
    Decision,
    Finish,
    FinishReason,
    Identity,
    PauseReason,
    RequestPause,
    RunContext,
    Runtime,
    RuntimeOptions,
    tool,
)
from harborage.planner import Budget
from harborage.runtime.approval import AlwaysDeny
from harborage.runtime.pauses import Coordinator
from harborage.runtime.steering import InboxRegistry, RunLoop, RunSpec
from harborage.testing.clock import FakeClock, settle
from harborage.testing.planners import ScriptedPlanner
from tests.kit.pauses import wait_for_pause

pytestmark = pytest.mark.anyio

WHO = Identity("t", "u", "s")
HOUR = timedelta(hours=1)


class Waits:
    """Asks a question, calls a tool behind a gate, or works on until it is paused, as its goal says."""

    async def next(self, run: RunContext) -> Decision:
        assert run.trajectory is not None
        match run.goal:
            case "ask":
                return RequestPause(PauseReason.AWAIT_INPUT)
            case "gate" if not run.trajectory.steps:
                return CallTool("pay")
            case "paused":
                return CallTool("think")
            case _:
                return Finish(FinishReason.GOAL)


@tool
async def pay() -> str:
    """Pay."""
    return "paid"


@tool
async def think() -> str:
    """Think."""
    await asyncio.sleep(0)
    return "hm"


@pytest.fixture(params=["memory", "sqlite"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Runtime]:
    url = None if request.param == "memory" else f"sqlite:{tmp_path / 'runs.db'}"

    def make(clock: FakeClock, ttl: timedelta) -> Runtime:
        options = RuntimeOptions(pause_ttl=ttl, approval_ttl=ttl)
        approvals = {"pay": AlwaysDeny()}
        return Runtime(
            planner=Waits(), tools=[pay, think], approvals=approvals, options=options, storage=url, clock=clock
        )

    return make


@pytest.mark.parametrize("goal", ["ask", "gate", "paused"])
@pytest.mark.parametrize("is_run_first", [True, False], ids=["the run ends first", "the question ends first"])
async def test_a_pause_shows_the_earlier_deadline(
    opened: Callable[..., Runtime], goal: str, is_run_first: bool
) -> None:
    """In the list and in its status, whatever asked for it; a run that ends first ends by its deadline."""
    clock = FakeClock()
    start, run_ends = clock.now(), clock.now() + (HOUR if is_run_first else 3 * HOUR)
    async with opened(clock, 2 * HOUR) as rt:
        run = await rt.start(goal, who=WHO, deadline=run_ends, max_steps=10_000)
        if goal == "paused":
            await run.pause()
        pause = await wait_for_pause(run)
        assert pause.deadline == start + (HOUR if is_run_first else 2 * HOUR)
        assert (await rt.pauses.status(pause.token, who=WHO)).deadline == pause.deadline
        if is_run_first:
            await settle()
            await clock.run_for(HOUR.total_seconds())
            finish = await asyncio.wait_for(run.finished(), 20)
            assert finish.reason is FinishReason.DEADLINE_EXCEEDED
            assert (finish.metadata or {})["steering_reason"] == "deadline"
            assert await run.waiting() == []


async def test_a_pause_of_a_run_loop_shows_the_deadline_of_its_budget() -> None:
    """A loop has no time limit of its own for pauses."""
    clock = FakeClock()
    pauses, who = Coordinator(clock=clock), WHO.with_run("r")
    base = RunContext(quadruple=who, budget=Budget(deadline=clock.now() + HOUR))
    spec = RunSpec(planner=ScriptedPlanner([RequestPause(PauseReason.AWAIT_INPUT)]), base=base)
    running = asyncio.create_task(RunLoop(InboxRegistry(clock=clock), pauses, clock=clock).run(spec))
    await settle()
    (pause,) = (await pauses.list(who=who)).rows
    assert pause.deadline == clock.now() + HOUR
    clock.advance(HOUR.total_seconds())
    assert (await asyncio.wait_for(running, 20)).reason is FinishReason.DEADLINE_EXCEEDED
