"""A step that came to nothing says why, whatever kind of decision it was and whichever code carried it out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from harborage.identity import Quadruple
from harborage.planner import (
    AwaitTask,
    CallParallel,
    CallTool,
    Finish,
    FinishReason,
    JoinKind,
    JoinSpec,
    RunContext,
    SpawnSpec,
    SpawnTask,
    Step,
)
from harborage.runtime.approval import AlwaysDeny
from harborage.runtime.pauses import Coordinator
from harborage.runtime.steering import InboxRegistry, RunLoop, RunSpec
from harborage.testing.planners import RecordingPlanner, ScriptedPlanner
from harborage.tools import tool

pytestmark = pytest.mark.anyio

Runtimes = Callable[..., Awaitable[Any]]
GOAL = Finish(FinishReason.GOAL, "done")


@tool
async def note(text: str) -> str:
    """Note."""
    return text


@tool
async def breaks() -> str:
    """Break."""
    raise ValueError("no such page")


@tool
async def reports() -> dict[str, str]:
    """Give a result that is called like an error, and is none."""
    return {"error": "none so far"}


@tool
async def guarded() -> str:
    """Is never allowed."""
    return "done"


class FromAside:
    """An embedder's executor, which fails at one tool."""

    async def execute_decision(self, rc: RunContext, decision: Any) -> tuple[Any, Any]:
        """Carry out a call."""
        if decision.tool == "breaks":
            raise ValueError("no such page")
        return "noted", "noted"


async def test_a_step_says_why_it_gave_nothing(runtimes: Runtimes) -> None:
    """The tool failed, was refused or unknown, its arguments did not fit, or there is no such task."""
    table: list[tuple[Any, str]] = [
        (CallTool("note", text="x"), ""),
        (CallTool("reports"), ""),
        (CallTool("breaks"), "no such page"),
        (CallTool("missing"), "no tool 'missing'"),
        (CallTool("note", txt="x"), "note"),
        (CallTool("guarded"), "guarded"),
        (AwaitTask("no-task"), "no-task"),
        (SpawnTask(spec=SpawnSpec(query="x")), ""),
    ]
    script = [*(decision for decision, _ in table), GOAL]
    planner = RecordingPlanner(ScriptedPlanner(script, by_query={"x": [GOAL]}))
    bench = await runtimes(
        planner, tools=[note, breaks, reports, guarded], approvals={"guarded": AlwaysDeny(reason="guarded: not today")}
    )
    run = await bench.start()
    await bench.paused(run)
    await run.reject()
    await bench.end(run)
    *_, last = [one for one in planner.contexts if one.quadruple == run.who]
    steps: list[Step] = last.trajectory.steps
    assert len(steps) == len(table)
    for step, (decision, error) in zip(steps, table, strict=True):
        assert bool(step.error) == bool(error), (decision, step)
        assert error in step.error, (decision, step)
        if error:
            assert step.observation == {"error": step.error}
            assert step.llm_observation == {"error": step.error}
    assert steps[4].failure is not None
    assert steps[4].failure.message == steps[4].error


async def test_a_parallel_call_keeps_what_its_branches_gave(runtimes: Runtimes) -> None:
    """Its branches, and its join, say themselves what is wrong; one that was aborted as a whole is like any other."""
    branches = (CallTool("note", text="x"), CallTool("breaks"))
    joins = [JoinSpec(JoinKind.ALL), JoinSpec(JoinKind.N, n=2), JoinSpec(JoinKind.N, n=9)]
    planner = RecordingPlanner(ScriptedPlanner([*(CallParallel(branches, join) for join in joins), GOAL]))
    bench = await runtimes(planner, tools=[note, breaks])
    await bench.end(await bench.start())
    one, short, aborted = planner.contexts[-1].trajectory.steps
    assert one.error == short.error == ""
    assert [branch.value for branch in short.observation.branches] == ["x", None]
    assert short.observation.error
    assert aborted.error
    assert aborted.observation == {"error": aborted.error}


async def test_a_custom_executor_that_fails_is_reported_alike() -> None:
    """Under a loop without a runtime what its executor raises is the step's error."""
    planner = RecordingPlanner(ScriptedPlanner([CallTool("breaks"), CallTool("note"), GOAL]))
    base = RunContext(quadruple=Quadruple("t", "u", "s", "r"), goal="g")
    spec = RunSpec(planner=planner, base=base, tool_executor=FromAside())
    await RunLoop(InboxRegistry(), Coordinator()).run(spec)
    assert [step.error for step in planner.contexts[-1].trajectory.steps] == ["no such page", ""]
