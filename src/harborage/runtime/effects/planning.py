"""The `plan` effect: call the planner with a fresh context, and return its decision and notes.

A history that exceeds the run's token budget, or that the model rejects as too long, is shortened first: by a
summariser, else by arithmetic. The recorded steps themselves never change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from msgspec.structs import replace

from harborage.crashes import is_order_to_stop
from harborage.errors import HarborageError, error_reason, error_text
from harborage.events import (
    DecisionPayload,
    EventType,
    GovernanceBudgetExceededPayload,
    PlannerErrorPayload,
    PlannerFinishPayload,
    RuntimeWarningPayload,
    safe_excerpt,
)
from harborage.llm import (
    ContextOverflowError,
    ContextWindowExceededError,
    LimitReachedError,
    PriceUnknownError,
    ProviderError,
    accounting,
)
from harborage.planner import (
    CallTool,
    ChunkKind,
    CompressionRunner,
    Decision,
    Finish,
    FinishReason,
    RepairCounters,
    RunContext,
    Trajectory,
    check_decision,
    decision_kind,
    default_token_estimator,
    mechanical_fold,
)
from harborage.planner.compression import apply_summary
from harborage.runtime.durable.engine import PROVIDER_UNAVAILABLE, HistoryMismatchError
from harborage.runtime.durable.steps import StepCall, StepPutOffError
from harborage.runtime.effects.ledger import StepAccount
from harborage.runtime.effects.outages import next_attempt, outage_of
from harborage.runtime.effects.run_resources import (
    LiveRun,
    Manifest,
    StepNotes,
    load_pictures,
    new_pictures,
    recorded_of,
)
from harborage.runtime.effects.user_code import STORE_TIMEOUT_S, SUMMARISER_TIMEOUT_S
from harborage.runtime.loop.apply import steering_finish
from harborage.runtime.loop.errors import SteeringError
from harborage.runtime.loop.limits import NOTHING_SPENT, LimitName, Reached, Spent
from harborage.runtime.loop.state import Cancelling, Planned, RunState
from harborage.state.errors import DatabaseError

if TYPE_CHECKING:
    from harborage.identity import Quadruple
    from harborage.runtime.effects.services import AgentServices


async def compress_to_budget(
    services: AgentServices, compression: CompressionRunner, context: RunContext, trajectory: Trajectory
) -> None:
    """Summarise the history if it exceeds `context.budget.token_budget`.

    Raises:
        Exception: the summariser failed, and histories are not folded.
    """
    if services.folds and not trajectory.steps:
        return
    try:
        if compression.surely_fits(context, trajectory, again=services.folds):
            return
        work = compression.maybe_compress(context, trajectory, again=services.folds)
        await services.bounded(work, SUMMARISER_TIMEOUT_S, "its summariser", context.quadruple)
    except Exception as error:
        if not services.folds:
            raise
        _fold(services, context, trajectory, error)


async def shorten_history(
    services: AgentServices, compression: CompressionRunner | None, context: RunContext, trajectory: Trajectory
) -> bool:
    """Summarise a history that the model rejected as too long; return whether it is shorter now.

    With a token budget of 0 the summariser is never called: the history is folded by arithmetic, if folding is on.
    With folding off a summariser is needed, and compresses once in a run.

    Raises:
        Exception: the summariser failed, and histories are not folded.
    """
    is_summarised = trajectory.summary is not None
    if not trajectory.steps or (is_summarised and len(trajectory.steps) <= trajectory.steps_summarised):
        return False
    if context.budget.token_budget <= 0:
        compression = None
    if not services.folds:
        if compression is None or is_summarised:
            return False
        await _summarise(services, compression, context, trajectory)
        return True
    if compression is None:
        _fold(services, context, trajectory, None)
        return True
    try:
        await _summarise(services, compression, context, trajectory)
    except Exception as error:  # noqa: BLE001 - logged; a fold takes the place of the summary
        _fold(services, context, trajectory, error)
    return True


def _summarise(
    services: AgentServices, compression: CompressionRunner, context: RunContext, trajectory: Trajectory
) -> Awaitable[None]:
    work = compression.compress(context, trajectory)
    return services.bounded(work, SUMMARISER_TIMEOUT_S, "its summariser", context.quadruple)


def is_overflow(error: BaseException | None) -> bool:
    """Return whether `error`, or one of its causes, says that the prompt exceeds the model's context window."""
    while error is not None:
        if isinstance(error, ContextWindowExceededError | ContextOverflowError):
            return True
        error = error.__cause__
    return False


def _fold(services: AgentServices, context: RunContext, trajectory: Trajectory, error: Exception | None) -> None:
    if error is not None:
        services.logger.warning(
            "run %s: compression failed, folding: %s", context.quadruple.run_id, error_reason(error)
        )
    try:
        estimate = default_token_estimator(trajectory)
    except HarborageError:
        estimate = 0  # a failing estimate must not prevent the fold
    apply_summary(context, trajectory, mechanical_fold(trajectory), estimate)


_MAX_ERROR_TEXT = 256
_MICRO = 1_000_000


class PlannerStepError(SteeringError):
    """The planner failed at a step; its own error is the `__cause__`. `step` counts from 0."""

    def __init__(self, step: int = 0, reason: str = "") -> None:
        self.step = step
        super().__init__(f"steering: planner step {step}: {reason}")


class PlannerTimeoutError(SteeringError):
    """A planner gave no decision within `seconds`; its step fails."""

    def __init__(self, seconds: float = 0, option: str = "RuntimeOptions(planner_timeout=…)") -> None:
        self.seconds = seconds
        super().__init__(f"the planner gave no decision within {seconds:g} s; {option} is the limit")


async def plan(services: AgentServices, live: LiveRun, call: StepCall) -> Planned:
    """Return the planner's next decision; where a limit forbids the step, the decision to finish the run.

    Raises:
        StepPutOffError: the model's provider is down; the step is retried later.
        PlannerStepError: the provider was down for longer than `provider_patience`, or the planner failed otherwise.
        InvalidDecisionError: the planner returned no decision, or one that cannot be executed.
        Exception: compression failed, and histories are not folded. Its `for_record` holds the step's model calls.
    """
    run: RunState = call.payload
    if live.ledger is not None:
        reached = await live.ledger.begin_step(run.steps, replace(run.spent, steps=run.steps))
        if reached is not None:
            return over_limit(services, run, reached.limit, reached.text, reached)
    exchanges = None if services.model_recorder is None else services.model_recorder.begin(run.who)
    account = StepAccount(live.ledger)
    try:
        try:
            with accounting(account, (run.who.run_id, run.steps + 1)):
                planned = await _decide(services, live, run, account)
        except Exception as error:
            if account.fault is not None:
                raise account.fault from error  # the step is retried once the store answers
            if account.refused is None:
                raise
            planned = _finish_refused(services, run, account, account.refused)
    except Exception as error:
        if exchanges is not None:
            vars(error)["for_record"] = exchanges.encode(live.open_transcript(), services.logger) or None
        if services.patience is not None and isinstance(error, PlannerStepError):
            _put_off_if_down(services, live, call, error, services.patience)
        raise
    finally:
        if services.model_recorder is not None:
            services.model_recorder.end(run.who)
    recorded = None if exchanges is None else exchanges.encode(live.open_transcript(), services.logger)
    return replace(planned, heard=recorded) if recorded else planned


def _put_off_if_down(
    services: AgentServices, live: LiveRun, call: StepCall, error: PlannerStepError, patience: timedelta
) -> None:
    """Put the step off if it failed because the model's provider is down, until `patience` is used up.

    Raises:
        StepPutOffError: the step is retried later.
    """
    down = outage_of(error)
    if down is None:
        return
    run: RunState = call.payload
    now = services.stamp.now()
    attempts, since = call.begun + 1, call.since or now
    until = next_attempt(attempts, since=since, now=now, patience=patience, asked_s=down.retry_after_s, key=call.key)
    if until is not None:
        raise _put_off(services, live, run, down, attempts, until) from error
    # The error is raised unchanged, so that a replay fails with the same one.
    _warn(services, run, _describe_giving_up(services, down, attempts, since, now), attempts)
    if services.announces:
        _announce_error(services, run, error)


def _put_off(
    services: AgentServices, live: LiveRun, run: RunState, down: ProviderError, attempts: int, until: datetime
) -> StepPutOffError:
    """Return the error that puts the step off. Announces it, and resets what was streamed of the answer."""
    if live.base.on_chunk is not None:
        live.base.on_chunk("", False, ChunkKind.RESET)
    reason = f"{PROVIDER_UNAVAILABLE}: {safe_excerpt(error_text(down), _MAX_ERROR_TEXT, services.redactor)}"
    at = f"{until:%Y-%m-%d %H:%M:%S} UTC"
    text = f"{reason}; attempt {attempts} failed, next attempt at {at}; resume the run to try now"
    _warn(services, run, text, attempts, next_attempt_at=until.isoformat())
    return StepPutOffError(until, reason)


def _warn(services: AgentServices, run: RunState, text: str, attempts: int, **more: str) -> None:
    fields = {"run_id": run.who.run_id, "attempts": attempts, **more}
    services.emit(EventType.RUNTIME_WARNING, run.who, RuntimeWarningPayload(text, fields))


def _describe_giving_up(
    services: AgentServices, down: ProviderError, attempts: int, since: datetime, now: datetime
) -> str:
    text = safe_excerpt(str(down), _MAX_ERROR_TEXT, services.redactor)
    took = str(now - since).split(".", maxsplit=1)[0]
    return (
        f"provider unavailable: {text}; given up after {attempts} attempts in {took}, "
        "RuntimeOptions(provider_patience=…) is the limit; fork the run to continue from its last step"
    )


def restore_planned(live: LiveRun, planned: Planned) -> None:
    """Restore from a recorded step what later steps of the run need: its model calls and the artifacts it was shown."""
    if planned.heard:
        live.open_transcript().add_recorded(bytes(planned.heard))
    live.manifest = planned.manifest_after(live.manifest)
    if live.first_manifest is None:
        live.first_manifest = live.manifest


def _finish_refused(
    services: AgentServices, run: RunState, account: StepAccount, refused: LimitReachedError | PriceUnknownError
) -> Planned:
    """Return the decision to finish a run for which a limit refused a model call of the step."""
    limit = refused.limit if isinstance(refused, LimitReachedError) else LimitName.COST
    return replace(over_limit(services, run, limit, error_text(refused)), spent=_spent_on(account))


def _spent_on(account: StepAccount) -> Spent | None:
    return None if account.spent is NOTHING_SPENT or account.spent == NOTHING_SPENT else account.spent


async def _decide(services: AgentServices, live: LiveRun, run: RunState, account: StepAccount) -> Planned:
    """Return one decision of the planner; its model calls are charged to `account`."""
    notes = StepNotes(live.base.emit, services.redactor, run.steps + 1)
    await _read_artifacts(services, live, run)
    context = _context(live, run, notes)
    live.context = context
    known = run.trajectory.summary
    if live.compression is not None and context.budget.token_budget > 0:
        await compress_to_budget(services, live.compression, context, run.trajectory)
    started_at = context.started_at = services.stamp.now()
    before = services.clock.monotonic()
    task, limit = asyncio.current_task(), services.planner_limit
    assert task is not None
    if limit is not None:
        limit.begin(task, before)
    counters = None if context.repair_counters is None else replace(context.repair_counters)
    answer: object  # a planner is user code: `check_decision` says whether it is a decision
    try:
        try:
            answer = await services.leavable(live.planner.next(context), "its planner", run.who, owner=task)
        except Exception as error:
            if not is_overflow(error) or not await shorten_history(services, live.compression, context, run.trajectory):
                raise
            answer = await _decide_on_shortened(services, live, context, run, counters)
    except BaseException as failure:
        if limit is not None and limit.end(task, failure):
            late = PlannerTimeoutError(limit.seconds, limit.option)
            raise _failed_step(services, run, account, late) from late
        if is_order_to_stop(failure, task) or isinstance(failure, HistoryMismatchError):
            raise
        raise _failed_step(services, run, account, failure) from failure
    if limit is not None:
        limit.end(task)
    decision = check_decision(answer)
    if services.announces:
        _announce(services, run.who, run.steps + 1, decision, notes)
    manifest: Manifest | None = None
    new_artifacts: Manifest = ()
    if live.base.session_artifacts is not live.manifest:
        shown = tuple(live.base.session_artifacts)
        manifest, new_artifacts = recorded_of(live.manifest, shown)
        live.manifest = shown
    return Planned(
        decision=decision,
        reasoning=notes.reasoning,
        preamble=notes.preamble,
        pending=notes.pending,
        # Recorded, so that the planner sees the same history when the run is resumed.
        summary=None if run.trajectory.summary is known else run.trajectory.summary,
        started_at=started_at,
        latency_ms=int((services.clock.monotonic() - before) * 1000),
        manifest=manifest,
        new_artifacts=new_artifacts,
        spent=_spent_on(account),
        budget=None if live.ledger is None else context.budget,
    )


async def _read_artifacts(services: AgentServices, live: LiveRun, run: RunState) -> None:
    """Have the artifacts of the session listed, and the pictures of its last results read, for the step."""
    if live.listing is not None:
        known_artifacts = live.listing.unchanged()
        live.base.session_artifacts = await live.listing.current() if known_artifacts is None else known_artifacts
    if live.first_manifest is None:
        live.first_manifest = tuple(live.base.session_artifacts)
    if pictures := new_pictures(live, run.trajectory):
        await _load_pictures(services, live, run, pictures)


async def _load_pictures(services: AgentServices, live: LiveRun, run: RunState, pictures: Iterable[str]) -> None:
    """Read pictures; without those that the artifact store does not give in time."""
    try:
        await services.bounded(load_pictures(live, pictures), STORE_TIMEOUT_S, "its artifact store", run.who)
    except DatabaseError:
        raise
    except Exception as error:  # noqa: BLE001 - logged; a planner can decide without them
        services.logger.warning("run %s: pictures are not shown: %s", run.who.run_id, error_reason(error))


async def _decide_on_shortened(
    services: AgentServices, live: LiveRun, context: RunContext, run: RunState, counters: RepairCounters | None
) -> object:
    """Return the planner's decision on the shortened history.

    The step begins again, so the planner's repair counters and what was streamed are reset.
    """
    if counters is not None:
        assert context.repair_counters is not None
        for field in counters.__struct_fields__:
            setattr(context.repair_counters, field, getattr(counters, field))
    if context.on_chunk is not None:
        context.on_chunk("", False, ChunkKind.RESET)
    return await services.leavable(live.planner.next(context), "its planner", run.who)


def _context(live: LiveRun, run: RunState, notes: StepNotes) -> RunContext:
    context = replace(
        live.base,
        goal=run.goal,
        trajectory=run.trajectory,
        pictures=live.pictures,
        control=run.signals,
        pending_tool_calls=run.pending,
        artifacts_at_start=live.first_manifest,
        steps_left=run.max_steps - run.steps,
        on_reasoning=notes.on_reasoning,
        on_assistant_content=notes.on_assistant_content,
        on_pending_tool_calls=notes.on_pending_tool_calls,
    )
    if live.ledger is not None:
        context.budget = live.ledger.budget(live.base.budget)
    elif live.shown is not None:
        context.budget = live.shown
    elif run.spent.cost:
        context.budget = replace(live.base.budget, cost_spent=live.base.budget.cost_spent + run.spent.cost)
    if live.base.emit is not None:
        context.emit = notes.emit
    return context


def over_limit(
    services: AgentServices, run: RunState, limit: str, text: str, reached: Reached | None = None
) -> Planned:
    """What ends a run at a limit: a finish that says which. A run that was asked to end has ended as it was asked."""
    if run.cancelling is not Cancelling.NO:
        return Planned(decision=steering_finish(run, FinishReason.CANCELLED, "cancel", limit=limit), limit=limit)
    numbers = {} if reached is None else {"cap": reached.cap, "spent": reached.spent}
    finish = steering_finish(run, FinishReason.CONSTRAINTS_CONFLICT, "limit", limit=limit, detail=text, **numbers)
    now = services.stamp.now()
    if reached is not None and reached.limit is LimitName.COST:
        exceeded = GovernanceBudgetExceededPayload(
            identity=run.who,
            tier="run",
            model="",
            total_cost=reached.spent / _MICRO,
            ceiling=reached.cap / _MICRO,
            occurred_at=now,
        )
        services.emit(EventType.GOVERNANCE_BUDGET_EXCEEDED, run.who, exceeded, now)
    if services.announces:
        _announce(services, run.who, run.steps + 1, finish, StepNotes(None, services.redactor))
    return Planned(decision=finish, limit=limit, started_at=now)


def _announce(services: AgentServices, who: Quadruple, step: int, decision: Decision, notes: StepNotes) -> None:
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
            step=step,
        )
        services.emit(EventType.PLANNER_DECISION, who, payload, now)
    if isinstance(decision, Finish):
        finish = PlannerFinishPayload(identity=who, reason=str(decision.reason), occurred_at=now)
        services.emit(EventType.PLANNER_FINISH, who, finish, now)


def _failed_step(
    services: AgentServices, run: RunState, account: StepAccount, problem: BaseException
) -> PlannerStepError:
    """Return the error of a step without a decision, and announce `problem`, unless the step is to be tried again.

    The caller of a planner keeps no name for its error, which holds the frame: a run would be left in a cycle.
    """
    is_passing = services.patience is not None and outage_of(problem) is not None
    if services.announces and not is_passing and account.refused is None and account.fault is None:
        _announce_error(services, run, problem)
    return PlannerStepError(run.steps, error_reason(problem))


def _announce_error(services: AgentServices, run: RunState, error: BaseException) -> None:
    payload = PlannerErrorPayload(
        identity=run.who,
        error_code=type(error).__name__,
        error_message=safe_excerpt(error_text(error), _MAX_ERROR_TEXT, services.redactor),
        step=run.steps,
        occurred_at=services.stamp.now(),
    )
    services.emit(EventType.PLANNER_ERROR, run.who, payload)
