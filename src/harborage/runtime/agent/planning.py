"""The `plan` effect: one call of the planner, with a fresh context in and its decision and notes out."""

from __future__ import annotations

import asyncio
import copy

from harborage.events import EventType
from harborage.events.payloads import DecisionPayload, PlannerErrorPayload, PlannerFinishPayload
from harborage.identity import Quadruple
from harborage.planner import (
    CallTool,
    CompressionRunner,
    Decision,
    Finish,
    RunContext,
    Trajectory,
    TrajectorySummary,
    check_decision,
    decision_kind,
    mechanical_fold,
)
from harborage.runtime.agent.live import LiveRun, StepNotes
from harborage.runtime.agent.services import AgentServices
from harborage.runtime.steering.errors import SteeringError
from harborage.runtime.steering.state import Planned, RunState

__all__ = ["PlannerStepError", "plan"]

_MAX_ERROR_TEXT = 256


class PlannerStepError(SteeringError):
    """The planner failed at a step; its own error is the cause. `step` counts from 0."""

    def __init__(self, step: int = 0, reason: str = "") -> None:
        self.step = step
        super().__init__(f"steering: planner step {step}: {reason}")


async def plan(services: AgentServices, live: LiveRun, run: RunState) -> Planned:
    """Ask the planner for one decision.

    Raises:
        PlannerStepError: the planner raised.
        InvalidDecisionError: it returned what is no decision, or none that can be acted on.
        Exception: compression failed, where that ends the run.
    """
    notes = StepNotes(live.base.emit)
    context = _context(live, run, notes)
    live.context = context
    summary = None
    if live.compression is not None and context.budget.token_budget > 0:
        summary = await _compress(services, live.compression, context, run.trajectory)
    started_at = services.stamp.now()
    before = services.clock.monotonic()
    try:
        answer = await live.planner.next(context)
    except (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        if services.announces:
            _announce_error(services, run, error)
        raise PlannerStepError(run.steps, str(error) or type(error).__name__) from error
    decision = check_decision(answer)
    if services.announces:
        _announce(services, run.who, decision, notes)
    return Planned(
        decision=decision,
        reasoning=notes.reasoning,
        preamble=notes.preamble,
        pending=notes.pending,
        summary=summary,
        started_at=started_at,
        latency_ms=int((services.clock.monotonic() - before) * 1000),
    )


def _context(live: LiveRun, run: RunState, notes: StepNotes) -> RunContext:
    context = copy.copy(live.base)
    context.goal = run.goal
    context.trajectory = run.trajectory
    context.control = run.signals
    context.pending_tool_calls = run.pending
    context.on_reasoning = notes.on_reasoning
    context.on_assistant_content = notes.on_assistant_content
    context.on_pending_tool_calls = notes.on_pending_tool_calls
    if live.base.emit is not None:
        context.emit = notes.emit
    if run.steps:
        context.input_artifacts = ()
    return context


async def _compress(
    services: AgentServices, compression: CompressionRunner, context: RunContext, trajectory: Trajectory
) -> TrajectorySummary | None:
    """The summary that this step's compression made, if it made one."""
    before = trajectory.summary
    try:
        await compression.maybe_compress(context, trajectory, again=services.folds)
    except Exception as error:
        if not services.folds:
            raise
        services.logger.warning("run %s: compression failed, folding: %s", context.quadruple.run_id, error)
        trajectory.summarise(mechanical_fold(trajectory))
    return None if trajectory.summary is before else trajectory.summary


def _announce(services: AgentServices, who: Quadruple, decision: Decision, notes: StepNotes) -> None:
    now = services.stamp.now()
    if not notes.has_announced:
        tool = decision.tool if isinstance(decision, CallTool) else ""
        payload = DecisionPayload(
            identity=who,
            decision_kind=decision_kind(decision),
            tool=tool,
            reasoning_chars=len(notes.reasoning),
            reasoning_trace=notes.reasoning,
            occurred_at=now,
        )
        services.emit(EventType.PLANNER_DECISION, who, payload, now)
    if isinstance(decision, Finish):
        finish = PlannerFinishPayload(identity=who, reason=str(decision.reason), occurred_at=now)
        services.emit(EventType.PLANNER_FINISH, who, finish, now)


def _announce_error(services: AgentServices, run: RunState, error: BaseException) -> None:
    payload = PlannerErrorPayload(
        identity=run.who,
        error_code=type(error).__name__,
        error_message=str(error)[:_MAX_ERROR_TEXT],
        step=run.steps,
        occurred_at=services.stamp.now(),
    )
    services.emit(EventType.PLANNER_ERROR, run.who, payload)
