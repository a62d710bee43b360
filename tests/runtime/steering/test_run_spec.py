"""What a run is described with, and compression, which it may ask for."""

from __future__ import annotations

from typing import Any

import pytest

from harborage.planner import (
    Budget,
    CallTool,
    CompressionRunner,
    Finish,
    FinishReason,
    RunContext,
    Trajectory,
    TrajectorySummary,
)
from harborage.runtime.steering import DEFAULT_MAX_STEPS, RunSpec, ToolExecutor
from harborage.testing.planners import RecordingPlanner, ScriptedPlanner

pytestmark = pytest.mark.anyio

GOAL = Finish(FinishReason.GOAL)
CALL = CallTool("x")
SUMMARY = TrajectorySummary(note="so far")


class Summariser:
    """Gives the same summary every time, or raises; counts how often it is asked."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.asked: list[int] = []

    async def summarise(self, run: RunContext, trajectory: Trajectory) -> TrajectorySummary:
        self.asked.append(len(trajectory.steps))
        if self.error is not None:
            raise self.error
        return SUMMARY


async def with_compression(bench: Any, summariser: Summariser, budget: int, lines: list[Any]) -> RecordingPlanner:
    """The planner of a run whose history weighs ten tokens a step."""
    runner = CompressionRunner(summariser, token_estimator=lambda history: 10 * len(history.steps))
    planner = RecordingPlanner(ScriptedPlanner(lines))
    await bench.run(planner, compression=runner, base={"budget": Budget(token_budget=budget)})
    return planner


def test_everything_but_planner_and_template_may_be_left_out() -> None:
    """The defaults are those that are documented."""
    spec = RunSpec()
    assert (spec.planner, spec.base, spec.task_id, spec.max_steps) == (None, None, "", 0)
    assert (spec.tool_executor, spec.compression, spec.on_tool_dispatched) == (None, None, None)
    assert DEFAULT_MAX_STEPS == 64


def test_an_executor_is_known_by_its_method() -> None:
    """Nothing is inherited."""

    class Own:
        async def execute_decision(self, rc: Any, decision: Any) -> Any:
            """Nothing."""

    assert isinstance(Own(), ToolExecutor)
    assert not isinstance(object(), ToolExecutor)


async def test_a_history_over_its_budget_is_summarised_before_the_planner_is_asked(bench: Any) -> None:
    """The call that would have been too long sees the summary already; the steps stay, and it happens once."""
    summariser = Summariser()
    planner = await with_compression(bench, summariser, 25, [CALL] * 6 + [GOAL])
    assert summariser.asked == [3]
    assert [one.trajectory.summary for one in planner.contexts] == [None] * 3 + [SUMMARY] * 4
    assert [one.trajectory.steps_summarised for one in planner.contexts][-1] == 3
    assert len(planner.contexts[-1].trajectory.steps) == 6


@pytest.mark.parametrize("budget", [0, -1])
async def test_without_a_budget_nothing_is_measured(bench: Any, budget: int) -> None:
    """Neither estimate nor summary is made."""
    summariser = Summariser()

    def never(history: Any) -> int:
        raise AssertionError("measured")

    runner = CompressionRunner(summariser, token_estimator=never)
    planner = ScriptedPlanner([CALL, CALL, GOAL])
    await bench.run(planner, compression=runner, base={"budget": Budget(token_budget=budget)})
    assert summariser.asked == []


async def test_compression_that_fails_ends_the_run(bench: Any) -> None:
    """Loud, with the summariser's own error; the planner is not asked."""
    summariser = Summariser(LookupError("no model"))
    planner = RecordingPlanner(ScriptedPlanner([CALL] * 5))
    runner = CompressionRunner(summariser, token_estimator=lambda history: 10 * len(history.steps))
    with pytest.raises(LookupError, match="no model"):
        await bench.run(planner, compression=runner, base={"budget": Budget(token_budget=15)})
    assert len(planner.calls) == 2
    assert len(bench.registry) == 0
