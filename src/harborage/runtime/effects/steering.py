"""The `steer` effect: applies a batch of controls to everything outside the run, one by one and in order.

`runtime.loop.apply` then applies the outcomes to the run itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never

from msgspec import UNSET

from harborage import codec
from harborage.clock import sleep
from harborage.errors import InvalidOptionError, error_reason, error_text
from harborage.events import BusClosedError, ControlLifecyclePayload, Event, EventType, PauseResumedPayload, Triple
from harborage.identity import bound
from harborage.planner import PauseReason, Trajectory
from harborage.planner.errors import ToolContextLostError
from harborage.runtime.durable.engine import RecordRefusedError, RunLeftError
from harborage.runtime.durable.pauses.errors import AlreadyResumedError, PauseNotFoundError, PauseScopeMismatchError
from harborage.runtime.effects.approval.errors import ApprovalNotFoundError, InvalidApprovalError
from harborage.runtime.effects.approval.model import ApprovalDecision
from harborage.runtime.effects.completion import withdraw
from harborage.runtime.loop.controls import AppliedControl, ControlEvent, ControlType, Remember, answered_pause
from harborage.runtime.loop.errors import (
    NoOutstandingPauseError,
    PayloadInvalidError,
    RunLoopMisconfiguredError,
    ScopeMismatchError,
)
from harborage.runtime.loop.pauses import Pause, PauseDecision, PauseRequest
from harborage.runtime.loop.payload import validate_answer
from harborage.runtime.loop.state import ControlErrors, OpenPause, Steered, SteerRequest
from harborage.state.errors import DatabaseError
from harborage.tasks.rules import check_priority

if TYPE_CHECKING:
    from datetime import datetime

    from harborage.events import EventBus
    from harborage.events.bus import RunWriter
    from harborage.identity import Quadruple
    from harborage.runtime.effects.approval.gate import ApprovalGate
    from harborage.runtime.effects.hard_cancel import HardCancel
    from harborage.runtime.effects.services import AgentServices

_RETRY_DELAY_S = 1.0
_GATE_SCOPES = frozenset({"admin", "console:fleet"})
RESUMES = {
    ControlType.RESUME: PauseDecision.RESUME,
    ControlType.APPROVE: PauseDecision.APPROVE,
    ControlType.REJECT: PauseDecision.REJECT,
}


async def steer(
    services: AgentServices,
    who: Quadruple,
    request: SteerRequest,
    *,
    key: str = "",
    hard_cancel: HardCancel | None = None,
    deadline: datetime | None = None,
    write: RunWriter | None = None,
) -> list[Steered]:
    """Apply the controls of one batch in order; each ends as applied or failed, in the events and in the history.

    `key` identifies the batch: applied again after a crash, it finds the pause that it opened. `hard_cancel` is the
    run's hook; a hard cancel calls it unless it was called before, and waits until it has returned. `deadline` is the
    run's, and `write` how it commits.

    Raises:
        Exception: the error of the first control that failed, if a failed control ends the run.
    """
    pause = request.pause
    step = request.step
    resolved = ""
    outcomes: list[Steered] = []
    for index, control in enumerate(request.controls):
        _emit(services, who, EventType.CONTROL_RECEIVED, control, "received")
        try:
            if pause is None:
                _check_resolved(control, resolved)
            if request.is_workflow and control.type is ControlType.REDIRECT:
                text = "REDIRECT: the goal of a workflow is what its code was started with; send it a message"
                raise PayloadInvalidError(text, bound="goal")
            if control.type is ControlType.CANCEL:
                await _propagate_cancel(services, who, control, hard_cancel)
            if request.awaits_provider and pause is None and control.type is ControlType.RESUME:
                outcome = Steered(control=control)  # its arrival resumed the run
            else:
                apply = partial(_apply, task_id=request.task_id, key=f"{key}/{index}", deadline=deadline, write=write)
                outcome = await _apply_with_retries(services, who, control, apply, pause)
        except RunLeftError:
            raise  # the next worker that executes the run applies the batch again
        except Exception as error:
            await _drop_answer(services, who, control)
            _record(services, who, control, error, step)
            if services.control_errors is ControlErrors.FAIL:
                if pause is not None and pause is not request.pause:
                    await withdraw(services, who, pause.token, write)
                raise
            outcomes.append(Steered(control=control, error=failure_code(error)))
            continue
        _record(services, who, control, None, step)
        outcomes.append(outcome)
        if outcome.resolved is not None:
            pause, resolved = None, outcome.resolved_token
        elif outcome.opened is not None:
            pause = outcome.opened
    return outcomes


def route_answer(
    services: AgentServices, who: Quadruple, control: ControlEvent, write: RunWriter | None = None
) -> Coroutine[Any, Any, None] | None:
    """Return the work of passing an approval to the call of this run that waits for it; None if no call does.

    `write` is how the run commits.
    """
    gate = _gate_of(services, who, control)
    if gate is None:
        return None
    return apply_mid_step(services, who, control, partial(_resolve_approval, gate, control, write))


def failure_code(error: Exception) -> str:
    """Return the short code of why a control failed; it never quotes the caller."""
    match error:
        case NoOutstandingPauseError():
            return "no_outstanding_pause"
        case RunLoopMisconfiguredError():
            return "misconfigured"
        case PayloadInvalidError() | InvalidApprovalError():
            return "payload_invalid"
        case AlreadyResumedError():
            return "already_resumed"
        case PauseScopeMismatchError() | ScopeMismatchError():
            return "scope_mismatch"
        case PauseNotFoundError():
            return "pause_not_found"
        case ToolContextLostError():
            return "tool_context_lost"
        case _:
            return "apply_failed"


async def publish_failure(bus: EventBus, control: ControlEvent, error: Exception) -> None:
    """Publish a control as received and failed that never reached its run, because there is nothing that it fits."""
    code = failure_code(error)
    if code == "scope_mismatch" and isinstance(error, PauseScopeMismatchError):
        code = "pause_not_found"  # of another principal: nothing says that it is there
    for kind, outcome, err in (
        (EventType.CONTROL_RECEIVED, "received", ""),
        (EventType.CONTROL_APPLIED, "failed", code),
    ):
        with suppress(BusClosedError):
            await bus.publish(Event(kind, control.identity, _lifecycle(control, outcome, err)))


async def open_pause(
    services: AgentServices,
    who: Quadruple,
    reason: PauseReason,
    payload: dict[str, Any],
    *,
    key: str,
    handles: Trajectory | None = None,
    deadline: datetime | None = None,
    write: RunWriter | None = None,
) -> OpenPause:
    """Open a pause on the coordinator, with the earlier of two deadlines: the runtime's limit for pauses, and the run's
    `deadline`, because an answer after the end of the run has no effect."""
    pause = await services.pauses.request(
        PauseRequest(
            identity=who,
            reason=reason,
            payload=payload,
            trajectory=handles,
            deadline=services.answer_by(services.pause_ttl, deadline),
            key=f"pause:{key}" if services.keys_pauses else "",
        ),
        write=write,
        is_repeated=services.keys_pauses,
    )
    return OpenPause(pause.token, reason, pause.deadline)


async def _apply_with_retries(
    services: AgentServices,
    who: Quadruple,
    control: ControlEvent,
    apply: Callable[..., Awaitable[Steered]],
    pause: OpenPause | None,
) -> Steered:
    """Apply a control. If failed controls do not end the run, retry while the database fails.

    The batch does not begin anew: the controls before this one are applied, and their events are published.
    """
    while True:
        try:
            return await apply(services, who, control, pause)
        except DatabaseError as error:
            if services.control_errors is ControlErrors.FAIL:
                raise
            services.logger.warning("run %s: %s is retried: %s", who.run_id, control.type, error_reason(error))
            await sleep(services.clock, _RETRY_DELAY_S)


async def _apply(
    services: AgentServices,
    who: Quadruple,
    control: ControlEvent,
    pause: OpenPause | None,
    *,
    task_id: str,
    key: str,
    deadline: datetime | None,
    write: RunWriter | None,
) -> Steered:
    match control.type:
        case ControlType.INJECT_CONTEXT | ControlType.REDIRECT | ControlType.USER_MESSAGE | ControlType.CANCEL:
            return Steered(control=control)
        case ControlType.PRIORITIZE:
            await _prioritize(services, who, control, task_id, write)
            return Steered(control=control)
        case ControlType.PAUSE:
            if pause is not None:
                return Steered(control=control)
            payload = {**(control.payload or {}), "requested_by": "steering"}
            opened = await open_pause(
                services, who, PauseReason.EXTERNAL_EVENT, payload, key=key, deadline=deadline, write=write
            )
            return Steered(control=control, opened=opened)
        case ControlType.RESUME | ControlType.APPROVE | ControlType.REJECT:
            return await _resume(services, who, control, pause, write)
        case _ as unreachable:
            assert_never(unreachable)


async def _propagate_cancel(
    services: AgentServices, who: Quadruple, control: ControlEvent, hook: HardCancel | None
) -> None:
    """Wait for the hook of a hard cancel. The step in flight is interrupted even if the hook fails."""
    if hook is None or (control.payload or {}).get("hard") is not True:
        return
    error = await hook.wait()
    if error is None:
        return
    if services.control_errors is ControlErrors.FAIL:
        raise error
    services.logger.warning("run %s: the hard cancel hook failed: %s", who.run_id, error_reason(error))


async def _resume(
    services: AgentServices,
    who: Quadruple,
    control: ControlEvent,
    pause: OpenPause | None,
    write: RunWriter | None,
) -> Steered:
    gate = _gate_of(services, who, control)
    if gate is not None:
        await _answer_call(services, who, control, partial(_resolve_approval, gate, control, write))
        if pause is None:
            return Steered(control=control)
    token = answered_pause(control) if services.binds_answers else ""
    if pause is None or token not in {"", pause.token}:
        return await _check_late_answer(services, who, control, token, pause)
    payload = dict(control.payload or {})
    if payload.get("args_patch") is not None or payload.get("remember") is not None:
        text = f"{control.type}: only the approval of a call changes its arguments or is remembered"
        raise PayloadInvalidError(text, bound="args_patch")
    if services.binds_answers and payload.get("token") == pause.token:
        del payload["token"]  # it names the pause, and is no part of the answer
    if control.type is ControlType.REJECT:
        payload["rejected"] = True
    try:
        answer = RESUMES[control.type]
        resolved: Pause = await services.pauses.resume(
            pause.token, answer, payload, who=who, by=control.by, event_id=control.event_id, write=write
        )
    except AlreadyResumedError:
        resolved = await services.pauses.status(pause.token, who=who)
        if not _is_resolved_by(control, resolved):
            raise
        if services.publishes_with_record:  # that process recorded no outcome, so it published no event either
            decision = str(resolved.decision or "")
            body = PauseResumedPayload(
                token=resolved.token,
                reason=resolved.reason,
                decision=decision,
                by=UNSET if control.by is None else Triple.of(control.by),
                event_id=control.event_id or UNSET,
            )
            services.emit(EventType.PAUSE_RESUMED, who, body)
    return Steered(
        control=control,
        resolved=resolved.decision,
        resolved_token=pause.token,
        resolved_payload=resolved.payload,
        resolved_at=resolved.resumed_at,
    )


def _check_resolved(control: ControlEvent, resolved: str) -> None:
    """Refuse an answer to the pause that an earlier control of the same batch has resolved."""
    token = (control.payload or {}).get("token") or resolved
    if resolved and control.type in RESUMES and token == resolved:
        raise AlreadyResumedError(resolved)


async def _check_late_answer(
    services: AgentServices, who: Quadruple, control: ControlEvent, token: str, pause: OpenPause | None
) -> Steered:
    """Accept an answer to a pause for which the run no longer waits, if it is the one that resolved it.

    It arrives again after a process died. Where answers are bound to tokens, an answer resolves the pause that it names
    or none, so a second click on a button never answers the next pause.

    Raises:
        AlreadyResumedError: another answer resolved the pause.
        NoOutstandingPauseError, PauseNotFoundError: it names no resolved pause of this run.
    """
    known: Pause | None = None
    if token:
        with suppress(PauseNotFoundError, PauseScopeMismatchError):
            known = await services.pauses.status(token, who=who)
    if known is not None and known.identity == who and not known.is_paused:
        if _is_resolved_by(control, known):
            return Steered(control=control)
        raise AlreadyResumedError.of(known)
    if pause is None:
        raise NoOutstandingPauseError(f"run {who.run_id} is not paused; there is nothing to {control.type.lower()}")
    raise PauseNotFoundError(token)


def _is_resolved_by(control: ControlEvent, resolved: Pause) -> bool:
    """Return whether this control resolved the pause, in a process that died before it recorded that."""
    if resolved.answering:
        is_its_own = resolved.answering == control.event_id
    else:  # a control without a token answers the open pause, as the run's own user
        is_its_own = not answered_pause(control) and resolved.resolved_by == control.identity.user_id
    return is_its_own and resolved.decision == RESUMES[control.type]


async def _prioritize(
    services: AgentServices, who: Quadruple, control: ControlEvent, task_id: str, write: RunWriter | None
) -> None:
    priority: Any = (control.payload or {}).get("priority")
    if isinstance(priority, float) and priority.is_integer():
        priority = int(priority)
    try:
        check_priority(priority, "payload.priority")
    except InvalidOptionError as error:
        raise PayloadInvalidError(f"PRIORITIZE: {error_text(error)}", bound="priority") from error
    if services.tasks is None:
        raise RunLoopMisconfiguredError("PRIORITIZE needs a task registry, and this run loop has none")
    if not task_id:
        raise PayloadInvalidError("PRIORITIZE: this run has no task to prioritise", bound="task_id")
    await services.tasks.prioritize(task_id, priority, who=who, write=write)


def _gate_of(services: AgentServices, who: Quadruple, control: ControlEvent) -> ApprovalGate | None:
    """The gate at which a call of this very run waits for the token that the control names."""
    if control.type not in {ControlType.APPROVE, ControlType.REJECT}:
        return None
    token = (control.payload or {}).get("token")
    if not isinstance(token, str) or not token:
        return None
    return next((gate for gate in services.gates.all if gate.owner(token) == who), None)


async def apply_mid_step(
    services: AgentServices, who: Quadruple, control: ControlEvent, apply: Callable[[], Awaitable[None]]
) -> None:
    """Apply an answer while a step is in flight, by calling `apply`, and publish its outcome.

    It is retried while the database fails.
    """
    with bound(who):  # the run acts, no matter which user sent the control
        await _apply_mid_step(services, who, control, apply)


async def _apply_mid_step(
    services: AgentServices, who: Quadruple, control: ControlEvent, apply: Callable[[], Awaitable[None]]
) -> None:
    _emit(services, who, EventType.CONTROL_RECEIVED, control, "received")
    try:
        while True:
            try:
                await _answer_call(services, who, control, apply)
                break
            except (DatabaseError, RecordRefusedError) as error:
                services.logger.warning("run %s: %s is retried: %s", who.run_id, control.type, error_reason(error))
                await sleep(services.clock, _RETRY_DELAY_S)
    except RunLeftError:
        return  # another worker has the run, and applies the control again
    except Exception as error:  # noqa: BLE001 - recorded and announced as a failed control
        await _drop_answer(services, who, control)
        _record(services, who, control, error)
        services.logger.warning("run %s: %s could not be applied: %s", who.run_id, control.type, error_reason(error))
        return
    _record(services, who, control, None)


async def _answer_call(
    services: AgentServices, who: Quadruple, control: ControlEvent, apply: Callable[[], Awaitable[None]]
) -> None:
    """Pass an answer to its call. If it resolved the pause before a process died, its second arrival is no failure: the
    call may have read it from the pause already."""
    try:
        await apply()
    except (ApprovalNotFoundError, AlreadyResumedError):
        token = answered_pause(control)
        with suppress(PauseNotFoundError, PauseScopeMismatchError):
            if token and _is_resolved_by(control, await services.pauses.status(token, who=who)):
                return
        raise


async def _drop_answer(services: AgentServices, who: Quadruple, control: ControlEvent) -> None:
    """Drop an answer that failed, before the failure is published, so that a caller may send another one."""
    token = answered_pause(control) if services.binds_answers else ""
    while token:
        try:
            await services.pauses.drop_answer(token, control.event_id)
            break
        except DatabaseError as error:
            services.logger.warning("run %s: dropping %s is retried: %s", who.run_id, control.type, error_reason(error))
            await sleep(services.clock, _RETRY_DELAY_S)


async def _resolve_approval(gate: ApprovalGate, control: ControlEvent, write: RunWriter | None) -> None:
    payload = control.payload or {}
    validate_answer(payload)
    edited, remember = payload.get("args"), payload.get("remember")
    is_approval = control.type is ControlType.APPROVE
    if not is_approval and (payload.get("args_patch") is not None or remember is not None):
        raise PayloadInvalidError(f"{control.type}: only an approval changes arguments or is remembered", bound="args")
    await gate.resolve_approval(
        payload["token"],
        ApprovalDecision.APPROVE if is_approval else ApprovalDecision.REJECT,
        str(payload.get("reason", "")),
        args=None if edited is None else codec.encode(edited, "args"),
        args_patch=payload.get("args_patch"),
        remember=None if remember is None else Remember(remember),
        who=control.identity,
        by=control.by,
        event_id=control.event_id,
        scopes=_GATE_SCOPES,
        write=write,
    )


def _record(
    services: AgentServices, who: Quadruple, control: ControlEvent, error: Exception | None, step: int = 0
) -> None:
    services.history.record(who, AppliedControl(control.type, who.run_id, services.stamp.now(), error))
    outcome, err = ("applied", "") if error is None else ("failed", failure_code(error))
    services.emit(EventType.CONTROL_APPLIED, who, _lifecycle(control, outcome, err, step))


def _emit(
    services: AgentServices, who: Quadruple, type: EventType, control: ControlEvent, outcome: str, err: str = ""
) -> None:
    services.emit(type, who, _lifecycle(control, outcome, err))


def _lifecycle(control: ControlEvent, outcome: str, err: str, step: int = 0) -> ControlLifecyclePayload:
    return ControlLifecyclePayload(
        type=str(control.type),
        outcome=outcome,
        err=err,
        by=UNSET if control.by is None else Triple.of(control.by),
        event_id=control.event_id or UNSET,
        step=step or UNSET,
    )
