"""The `plan` effect: one call of the planner, with a fresh context in and its decision and notes out."""

from __future__ import annotations

import asyncio
import copy

from msgspec.structs import replace

from harborage.events import EventType
from harborage.events.payloads import DecisionPayload, PlannerErrorPayload, PlannerFinishPayload
from harborage.identity import Quadruple
from harborage.planner import (
    ArtifactManifestEntry,
    CallTool,
    ChunkKind,
    Decision,
    Finish,
    RunContext,
    check_decision,
    decision_kind,
)
from harborage.runtime.agent.compressing import is_overflow, keep_within_budget, shortened
from harborage.runtime.agent.live import LiveRun, StepNotes
from harborage.runtime.agent.services import AgentServices
from harborage.runtime.steering.errors import SteeringError
from harborage.runtime.steering.state import Planned, RunState

__all__ = ["PlannerStepError", "plan", "recall"]

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
        Exception: compression failed, where that ends the run. What was heard of the model is its `for_record`.
    """
    if services.hearing is None:
        return await _plan(services, live, run)
    heard = services.hearing.begin(run.who)
    try:
        planned = await _plan(services, live, run)
    except Exception as error:
        vars(error)["for_record"] = heard.told(live.told(), services.logger) or None
        raise
    finally:
        services.hearing.end(run.who)
    told = heard.told(live.told(), services.logger)
    return replace(planned, heard=told) if told else planned


def recall(live: LiveRun, planned: Planned) -> None:
    """Heed a step that was planned before this process carried the run."""
    if planned.heard:
        live.told().recall(bytes(planned.heard))
    if planned.manifest is not None:
        live.manifest = planned.manifest


async def _plan(services: AgentServices, live: LiveRun, run: RunState) -> Planned:
    notes = StepNotes(live.base.emit, services.redactor)
    context = _context(live, run, notes)
    live.context = context
    known = run.trajectory.summary
    if live.compression is not None and context.budget.token_budget > 0:
        await keep_within_budget(services, live.compression, context, run.trajectory)
    started_at = services.stamp.now()
    before = services.clock.monotonic()
    try:
        answer = await _asked(services, live, context, run)
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
        # Recorded, so that a run that is carried on sees the history as this one does.
        summary=None if run.trajectory.summary is known else run.trajectory.summary,
        started_at=started_at,
        latency_ms=int((services.clock.monotonic() - before) * 1000),
        manifest=_manifest(live),
    )


def _manifest(live: LiveRun) -> tuple[ArtifactManifestEntry, ...] | None:
    """The session's artifacts as the planner was shown them, if the record does not have them so yet."""
    shown = live.base.session_artifacts
    if shown is live.manifest or tuple(shown) == live.manifest:
        return None
    live.manifest = tuple(shown)
    return live.manifest


async def _asked(services: AgentServices, live: LiveRun, context: RunContext, run: RunState) -> object:
    """What the planner answers; when its model finds the prompt too long, it is asked again with a shorter history."""
    counters = copy.copy(context.repair_counters)
    try:
        return await live.planner.next(context)
    except Exception as error:
        if not is_overflow(error) or not await shortened(services, live.compression, context, run.trajectory):
            raise
    if counters is not None:
        # The step begins again, and with it what the planner counts in it.
        assert context.repair_counters is not None
        for field in counters.__struct_fields__:
            setattr(context.repair_counters, field, getattr(counters, field))
    if context.on_chunk is not None:
        context.on_chunk("", False, ChunkKind.RESET)
    return await live.planner.next(context)


def _context(live: LiveRun, run: RunState, notes: StepNotes) -> RunContext:
    context = copy.copy(live.base)
    context.goal = run.goal
    context.trajectory = run.trajectory
    context.control = run.signals
    context.pending_tool_calls = run.pending
    context.steps_left = run.max_steps - run.steps
    context.on_reasoning = notes.on_reasoning
    context.on_assistant_content = notes.on_assistant_content
    context.on_pending_tool_calls = notes.on_pending_tool_calls
    if live.base.emit is not None:
        context.emit = notes.emit
    return context


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
