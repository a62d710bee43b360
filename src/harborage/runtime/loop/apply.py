"""How controls, decisions and observations change a run's state, and whether it may take a step.

Pure: values in, the run changed, no I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, assert_never

import msgspec
from msgspec.structs import replace

from harborage.planner import (
    UNSET_TIME,
    ControlSignals,
    FailureRecord,
    Finish,
    FinishReason,
    ResumeHint,
    SteeringInjection,
    Step,
    extract_answer,
)
from harborage.runtime.loop.arrivals import Arrivals, Hold, Interrupt, Woken
from harborage.runtime.loop.controls import ControlEvent, ControlType, TaskCancelled
from harborage.runtime.loop.errors import MaxStepsExceededError
from harborage.runtime.loop.pauses import PauseDecision
from harborage.runtime.loop.state import Cancelling, OpenPause, Planned, RunState, Steered

if TYPE_CHECKING:
    from harborage.runtime.loop.capabilities import HookAnswer


class Go(msgspec.Struct, frozen=True):
    """Take a step."""


class Stop(msgspec.Struct, frozen=True):
    """The run is over, with this finish."""

    finish: Finish


Gate = Go | Hold | Stop
GO = Go()


def gate(run: RunState) -> Gate:
    """Return whether the run steps, waits or ends. An end outranks a wait, and a wait outranks a step.

    Raises:
        MaxStepsExceededError: the planner has used up its steps.
    """
    if run.finish is not None:
        return Stop(run.finish)
    if run.cancelling is Cancelling.HARD:
        return Stop(steering_finish(run, FinishReason.CANCELLED, "hard_cancel"))
    if run.is_past_deadline:
        return Stop(steering_finish(run, FinishReason.DEADLINE_EXCEEDED, "deadline"))
    if run.pause is not None:
        if run.cancelling is not Cancelling.NO:
            return Stop(steering_finish(run, FinishReason.CANCELLED, "cancel_while_paused"))
        return Hold(run.pause.token, run.pause.deadline)
    if run.cancelling is Cancelling.TOLD:
        return Stop(steering_finish(run, FinishReason.CANCELLED, "cancel_ignored"))
    if run.put_off is None and run.steps >= run.max_steps + run.has_last_word:
        raise too_many_steps(run)
    return GO


def may_wait(run: RunState, finish: Finish) -> bool:
    """Whether a run that finishes may wait for its background work instead, and be asked again: not at its last step,
    and not when it gives up or was asked to end."""
    is_wanted = finish.reason is FinishReason.GOAL and run.cancelling is Cancelling.NO
    return is_wanted and run.steps < run.max_steps


def too_many_steps(run: RunState) -> MaxStepsExceededError:
    """Return the error of a run whose planner has used up its steps."""
    return MaxStepsExceededError(f"{run.max_steps} steps without a finish; raise max_steps or let the planner finish")


def steering_finish(run: RunState, reason: FinishReason, why: str, **more: Any) -> Finish:
    """Return the finish of a run that its steering ended, with the run and the cause in its metadata."""
    return Finish(reason=reason, metadata={"run_id": run.who.run_id, **more, "steering_reason": why})


class Observed(NamedTuple):
    """An observation as it was and as the planner sees it; `failure` is the failure, if its kind is known.

    `error` is why the step has no result. A parallel call has the errors of its branches and its join in the
    observation. `statuses` says how each call ended, where not all are done.
    """

    observation: Any
    for_planner: Any
    failure: FailureRecord | None = None
    error: str = ""
    statuses: tuple[str, ...] = ()


def apply_arrivals(run: RunState, arrivals: Arrivals) -> RunState:
    """Apply what arrived besides controls: background results and the deadline."""
    for result in arrivals.background:
        run.trajectory.background[result.group_id] = result
    run.is_past_deadline = run.is_past_deadline or arrivals.is_past_deadline
    return run


def apply_controls(run: RunState, outcomes: Sequence[Steered]) -> RunState:
    """Apply a batch of controls to the run, in order; those that failed change nothing."""
    for outcome in outcomes:
        if not outcome.error:
            _fold(run, outcome)
    return run


def _fold(run: RunState, outcome: Steered) -> None:
    control = outcome.control
    payload = control.payload or {}
    match control.type:
        case ControlType.INJECT_CONTEXT:
            if control.payload is not None:
                _signal(run, injected_context=(*run.signals.injected_context, payload))
                _note(run, "inject_context", payload)
        case ControlType.USER_MESSAGE:
            message = payload.get("message")
            if isinstance(message, str):
                _signal(run, user_messages=(*run.signals.user_messages, message))
                _note(run, "user_message", payload)
        case ControlType.REDIRECT:
            goal = payload.get("goal")
            if isinstance(goal, str) and goal:
                run.goal = goal
                _signal(run, redirect_goal=goal)
                _note(run, "redirect", payload)
        case ControlType.CANCEL:
            _cancel(run, control)
        case ControlType.PAUSE:
            _signal(run, pause_requested=True)
        case ControlType.PRIORITIZE:
            pass
        case ControlType.RESUME | ControlType.APPROVE | ControlType.REJECT:
            pass
        case _ as unreachable:
            assert_never(unreachable)
    if outcome.opened is not None:
        run.pause = outcome.opened
    if outcome.resolved is not None:
        _resolve(run, outcome.resolved_token, outcome.resolved, outcome.resolved_payload, outcome.resolved_at)


def _cancel(run: RunState, control: ControlEvent) -> None:
    _signal(run, cancelled=True)
    run.task_cancelled = run.task_cancelled or TaskCancelled.of(control)
    if (control.payload or {}).get("hard") is True:
        run.cancelling = Cancelling.HARD
    elif run.cancelling is Cancelling.NO:
        run.cancelling = Cancelling.ASKED


def _signal(run: RunState, **changes: Any) -> None:
    run.signals = replace(run.signals, **changes)


def _note(run: RunState, kind: str, payload: dict[str, Any]) -> None:
    run.trajectory.steering_inputs.append(
        SteeringInjection(kind=kind, payload=payload, at_step=len(run.trajectory.steps))
    )


def park(run: RunState, pause: OpenPause) -> RunState:
    """Park the run on a pause that its planner asked for."""
    run.pause = pause
    return run


def apply_interrupt(run: RunState, reason: Interrupt) -> RunState:
    """Apply the interruption of the planner. A step that a pause put off begins anew after the RESUME."""
    run.awaits_provider = reason is Interrupt.ARRIVAL
    return run


def apply_wake(run: RunState, woken: Woken) -> RunState:
    """Apply why a parked run resumes; a queued control is left to the next drain."""
    run.is_past_deadline = run.is_past_deadline or woken.is_past_deadline
    if woken.decision is not None and run.pause is not None:
        _resolve(run, run.pause.token, woken.decision, woken.payload, woken.at)
    return run


def _resolve(
    run: RunState, token: str, decision: PauseDecision, payload: dict[str, Any] | None, at: datetime | None
) -> None:
    run.pause = None
    match decision:
        case PauseDecision.APPROVE | PauseDecision.RESUME:
            answer = {**(payload or {}), "decision": str(decision)}
            run.trajectory.resume_hint = ResumeHint(
                pause_token=token, resumed_at=UNSET_TIME if at is None else at, resume_payload=answer
            )
            # The hint is for the next step alone; the note has the answer in the history.
            _note(run, "resumed", answer)
        case PauseDecision.REJECT:
            run.finish = steering_finish(
                run, FinishReason.CONSTRAINTS_CONFLICT, "control_reject", rejected_by="steering"
            )
        case PauseDecision.TIMEOUT:
            run.finish = steering_finish(run, FinishReason.DEADLINE_EXCEEDED, "pause_timeout", pause_token=token)
        case _ as unreachable:
            assert_never(unreachable)


_NO_SIGNALS = ControlSignals()


def apply_plan(run: RunState, planned: Planned) -> RunState:
    """Apply a planner's answer: the inputs of this call are delivered, and a soft cancel has had its one call."""
    run.steps += 1
    run.awaits_provider = False
    if planned.spent is not None:
        run.spent += planned.spent
    run.signals = _NO_SIGNALS
    run.trajectory.resume_hint = None
    if run.cancelling is Cancelling.ASKED:
        run.cancelling = Cancelling.TOLD
    if planned.pending is not None:
        run.pending = planned.pending
    if planned.summary is not None:
        run.trajectory.summarise(planned.summary)
    return run


BEFORE_FINISH: Final = "before_finish"
"""Why a run ended whose answer its hooks refused: the `steering_reason` of its finish, whose `detail` says more."""

MOST_GUIDES: Final = 3
"""How often a hook may send the planner's answer back; the next time the run fails."""

_SHOWN_CHARS: Final = 2_000


def apply_finish(run: RunState, finish: Finish, said: HookAnswer) -> Finish | None:
    """Apply what the hooks say of an answer: the finish of the run, or None when the planner is asked again."""
    if said.refusal:
        return steering_finish(run, FinishReason.CONSTRAINTS_CONFLICT, BEFORE_FINISH, detail=said.refusal)
    if said.advice:
        if run.guided >= MOST_GUIDES:
            detail = f"its answer was sent back {MOST_GUIDES} times, and still is: {said.advice}"
            return steering_finish(run, FinishReason.CONSTRAINTS_CONFLICT, BEFORE_FINISH, detail=detail)
        run.guided += 1
        answer = extract_answer(finish)
        shown = answer if len(answer) <= _SHOWN_CHARS else f"{answer[:_SHOWN_CHARS]}…"
        message = f"Your answer was not accepted: {said.advice}\nAnswer again. It was: {shown}"
        _signal(run, user_messages=(*run.signals.user_messages, message))
        _note(run, "user_message", {"message": message})
        return None
    return finish if said.value is msgspec.UNSET else replace(finish, payload=said.value)


def remember(run: RunState, planned: Planned, observed: Observed) -> RunState:
    """Append the step: the decision, the observation, and the notes of the planner."""
    observation, for_planner, failure, error, statuses = observed
    run.trajectory.steps.append(
        Step(
            action=planned.decision,
            observation=observation,
            llm_observation=for_planner,
            error=error,
            failure=failure,
            reasoning_trace=planned.reasoning,
            assistant_preamble=planned.preamble,
            started_at=UNSET_TIME if planned.started_at is None else planned.started_at,
            latency_ms=planned.latency_ms,
            statuses=statuses,
        )
    )
    return run
