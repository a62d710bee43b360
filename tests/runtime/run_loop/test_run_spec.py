"""What a run is described with, and compression, which it may ask for."""

from __future__ import annotations

from typing import Any

import pytest

from harborage.errors import InvalidOptionError
from harborage.identity import Quadruple
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
from harborage.runtime.pauses import Coordinator
from harborage.runtime.steering import DEFAULT_MAX_STEPS, InboxRegistry, RunLoop, RunSpec, ToolExecutor
from harborage.testing.planners import RecordingPlanner, ScriptedPlanner

pytestmark = pytest.mark.anyio

WHO = Quadruple("t", "u", "s", "r")
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


async def test_what_makes_no_sense_is_refused_by_name() -> None:
    """A value of another type is refused where it is written, and by the loop where it was set since; no run begins."""
    table: list[tuple[str, Any, str]] = [
        ("base", {}, "expected a RunContext"),
        ("task_id", None, "expected a text"),
        ("max_steps", "9", "expected a whole number, or 0 for 64"),
        ("max_steps", True, "expected a whole number"),
        ("tool_executor", object(), "execute_decision"),
        ("tool_executor", ToolExecutor, "execute_decision"),
        ("compression", Summariser(), r"expected a CompressionRunner\(summariser\)"),
    ]
    registry = InboxRegistry()
    loop = RunLoop(registry, Coordinator())
    for field, value, message in table:
        with pytest.raises(InvalidOptionError, match=message) as caught:
            RunSpec(**{field: value})
        assert caught.value.option == f"RunSpec: {field}"
        spec = RunSpec(planner=ScriptedPlanner([GOAL]), base=RunContext(quadruple=WHO))
        setattr(spec, field, value)
        with pytest.raises(InvalidOptionError, match=f"RunSpec: {field}="):
            await loop.run(spec)
    with pytest.raises(InvalidOptionError, match=r"expected a RunSpec\(planner=…, base=…\)"):
        await loop.run(ScriptedPlanner([GOAL]))
    assert len(registry) == 0


def test_a_template_that_makes_no_sense_is_refused_by_name() -> None:
    """What the loop reads of it is checked, its limits one by one."""
    table: list[tuple[str, Any]] = [
        ("goal", 5),
        ("query", None),
        ("trajectory", 5),
        ("budget", None),
        ("control", 5),
        ("repair_counters", 5),
        ("input_artifacts", 5),
        ("session_artifacts", None),
        ("skills_context", "one"),
        ("discovered_tools", "search"),
        ("pending_tool_calls", 5),
    ]
    for field, value in table:
        with pytest.raises(InvalidOptionError, match=rf"RunSpec: base\.{field}={value!r}: expected a"):
            RunSpec(base=RunContext(**{"quadruple": WHO, field: value}))
    for limit in Budget.__struct_fields__:
        with pytest.raises(InvalidOptionError, match=rf"RunSpec: base\.budget\.{limit}='3': expected a"):
            RunSpec(base=RunContext(quadruple=WHO, budget=Budget(**{limit: "3"})))


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
