"""What a planner sees of its run."""

from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta, timezone

import pytest

from harborage.identity import Quadruple
from harborage.planner import (
    Budget,
    ControlSignals,
    Planner,
    PlanningNudges,
    ReasoningReplayMode,
    RepairCounters,
    RunContext,
    ToolContext,
    Trajectory,
    effective_reasoning_replay,
)
from harborage.planner.finish import FinishPlanner
from tables import each_row

WHO = Quadruple("t", "u", "s", "r")


def test_only_the_identity_is_required():
    """Every field but the identity has a default that means "nothing"."""
    run = RunContext(quadruple=WHO)
    assert (run.query, run.goal, run.llm_context, run.tool_context) == ("", "", {}, ToolContext())
    assert (run.control, run.budget, run.hints) == (ControlSignals(), Budget(), PlanningNudges())
    for name in ("trajectory", "repair_counters", "planning_hints", "catalog", "memory", "skills", "artifacts"):
        assert getattr(run, name) is None
    for name in ("input_artifacts", "session_artifacts", "skills_context", "discovered_tools", "pending_tool_calls"):
        assert len(getattr(run, name)) == 0
    for name in ("clock", "emit", "reasoning_replay", "memory_blocks"):
        assert getattr(run, name) is None
    for name in ("on_pending_tool_calls", "on_reasoning", "on_assistant_content", "on_chunk"):
        assert getattr(run, name) is None
    with pytest.raises(TypeError):
        RunContext()


def test_what_a_planner_writes_on_its_copy_is_lost():
    """Each step gets a copy, so assignments do not reach the next one."""
    base = RunContext(quadruple=WHO, goal="first")
    step = copy.copy(base)
    step.goal = "second"
    step.pending_tool_calls = ("x",)
    assert (base.goal, base.pending_tool_calls) == ("first", ())


def test_counters_and_history_are_shared_by_reference():
    """The counters and the history of a run are the same objects in all of its steps."""
    base = RunContext(quadruple=WHO, repair_counters=RepairCounters(), trajectory=Trajectory())
    step = copy.copy(base)
    step.repair_counters.args_repair += 1
    assert base.repair_counters.args_repair == 1
    assert step.trajectory is base.trajectory


def test_runs_do_not_share_defaults():
    """Two runs never share a mutable default."""
    assert RunContext(quadruple=WHO).llm_context is not RunContext(quadruple=WHO).llm_context
    assert RepairCounters() == RepairCounters(0, 0, 0)


def test_now_is_the_run_clock_in_utc():
    """Time comes from the run's clock when there is one, always in UTC."""
    moment = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    told = RunContext(quadruple=WHO, clock=lambda: moment).now()
    assert told == moment
    assert told.tzinfo is UTC
    before = datetime.now(UTC)
    assert before <= RunContext(quadruple=WHO).now() <= datetime.now(UTC)


def test_budget_defaults_mean_no_limit():
    """An untouched budget limits nothing: no deadline, no hop cap, no cost cap, no compression."""
    assert Budget() == Budget(deadline=None, hop_budget=-1, cost_cap=0, cost_spent=0, token_budget=0)


def test_signals_are_a_snapshot():
    """Control signals are frozen, and a list handed in cannot change them later."""
    messages = ["hello"]
    signals = ControlSignals(user_messages=messages, injected_context=[{"k": 1}])
    messages.append("later")
    assert signals.user_messages == ("hello",)
    assert signals.injected_context == ({"k": 1},)
    with pytest.raises(AttributeError):
        signals.cancelled = True


@each_row(
    "override, configured, effective",
    [
        (None, "", "never"),
        (None, "never", "never"),
        (None, "text", "text"),
        (None, "junk", "never"),
        ("text", "never", "text"),
        ("never", "text", "never"),
        ("", "text", "never"),
        ("junk", "text", "never"),
        ("TEXT", "text", "never"),
        (ReasoningReplayMode.TEXT, ReasoningReplayMode.NEVER, "text"),
    ],
)
def test_effective_replay(override, configured, effective):
    """The run's override wins when there is one, and everything but `text` means `never`."""
    run = RunContext(quadruple=WHO, reasoning_replay=override)
    assert effective_reasoning_replay(run, configured) is ReasoningReplayMode(effective)


def test_planner_is_a_structural_type():
    """Any object with `next` is a planner; one without is not."""
    assert isinstance(FinishPlanner(), Planner)
    assert not isinstance(object(), Planner)
