"""What a planner sees of its run, how it is woken, and how it publishes events."""

from __future__ import annotations

import asyncio
import copy
from datetime import UTC, datetime, timedelta, timezone

import pytest

from harborage.concurrency import CancelScope
from harborage.events import EventType, PlannerFinishPayload, RuntimeWarningPayload
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
    WakeAware,
    WakeMode,
    effective_reasoning_replay,
    publish,
    raise_if_cancelled,
    resolve_wake_mode,
)
from harborage.planner.finish import FinishPlanner
from tests.kit.tables import each_row

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
    now = RunContext(quadruple=WHO, clock=lambda: moment).now()
    assert now == moment
    assert now.tzinfo is UTC
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


class Declares:
    """A planner that declares its wake mode."""

    def __init__(self, mode):
        self.mode = mode

    def wake_mode(self):
        """The declared mode."""
        return self.mode


@each_row("mode", WakeMode)
def test_a_declared_mode_counts(mode):
    """A planner that declares a mode gets it."""
    assert isinstance(Declares(mode), WakeAware)
    assert resolve_wake_mode(Declares(mode)) is mode


@pytest.mark.parametrize("planner", [FinishPlanner(), object()])
def test_push_is_the_default(planner):
    """A planner that says nothing is woken by push."""
    assert not isinstance(planner, WakeAware)
    assert resolve_wake_mode(planner) is WakeMode.PUSH


pytestmark = pytest.mark.anyio


async def test_an_ordinary_task_goes_on():
    """A task that was not cancelled passes."""
    assert raise_if_cancelled() is None


async def test_a_cancelled_task_is_cancelled_before_its_next_wait():
    """A task that was asked to stop learns of it at once."""
    reached = []

    async def work():
        asyncio.current_task().cancel()
        reached.append("before")
        raise_if_cancelled()
        reached.append("after")

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(work())
    assert reached == ["before"]


async def test_a_scope_that_ended_leaves_no_trace():
    """After a cancelled scope the task may go on."""
    with CancelScope() as scope:
        scope.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert scope.was_cancelled
    assert raise_if_cancelled() is None


AT = datetime(2026, 1, 1, tzinfo=UTC)
BODY = PlannerFinishPayload(identity=WHO, reason="goal", occurred_at=AT)


def test_an_event_carries_the_run():
    """The event has the run's whole identity and the payload's time."""
    events = []
    publish(RunContext(quadruple=WHO, emit=events.append), EventType.PLANNER_FINISH, BODY)
    (event,) = events
    assert (event.type, event.identity, event.payload, event.occurred_at) == ("planner.finish", WHO, BODY, AT)


def test_a_payload_without_a_time():
    """Where the payload has no time, the bus is left to set it."""
    events = []
    body = RuntimeWarningPayload(message="m", fields={})
    publish(RunContext(quadruple=WHO, emit=events.append), EventType.RUNTIME_WARNING, body)
    assert events[0].occurred_at is None


def test_without_an_emitter_nothing_is_published():
    """Without an emitter the call does nothing."""
    assert publish(RunContext(quadruple=WHO), EventType.PLANNER_FINISH, BODY) is None


def test_a_failing_emitter_is_logged(caplog):
    """A failure to tell is logged with the event's type and goes no further."""

    def emit(event):
        raise OSError("bus gone")

    publish(RunContext(quadruple=WHO, emit=emit), EventType.PLANNER_FINISH, BODY)
    (record,) = caplog.records
    assert record.event_type == "planner.finish"
    assert "bus gone" in caplog.text


def test_interrupts_are_not_swallowed():
    """What is not an ordinary error passes through."""

    def emit(event):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        publish(RunContext(quadruple=WHO, emit=emit), EventType.PLANNER_FINISH, BODY)
