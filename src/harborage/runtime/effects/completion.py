"""The `task.…` effects: a run's task begins with it and ends as it ends, children included.

The task is the row of the run, which the engine writes; the events published here are stored in the same commit. Pauses
that are still open when their run ends are withdrawn here, and controls that came too late are rejected.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import UNSET

from harborage import codec
from harborage.errors import error_reason
from harborage.events import (
    ControlRejectedPayload,
    EventType,
    TaskCancelledPayload,
    TaskCompletedPayload,
    TaskFailedPayload,
    TaskStartedPayload,
    Triple,
)
from harborage.planner import (
    TASK_ERROR_RUN_LOOP,
    AnswerEnvelope,
    Finish,
    FinishReason,
    PauseReason,
    extract_answer,
    task_error_code_for_finish,
)
from harborage.runtime.durable.engine import NotPreparedError
from harborage.runtime.durable.pauses.errors import PauseNotFoundError
from harborage.runtime.durable.pauses.listing import MAX_PAGE_SIZE
from harborage.runtime.effects.background import end_children
from harborage.runtime.effects.heavy import is_kept_summary
from harborage.runtime.loop.context import ContextUnavailableError
from harborage.runtime.loop.pauses import PauseFilter
from harborage.store import Status
from harborage.tasks import TaskFailure, TaskID, TaskStatus
from harborage.tasks.requests import redacted_failure, redacted_result
from harborage.tasks.rows import outcome_of_failure, outcome_of_result

if TYPE_CHECKING:
    from harborage.events import Payload
    from harborage.events.bus import RunWriter
    from harborage.identity import Quadruple
    from harborage.runtime.effects.run_resources import LiveRun
    from harborage.runtime.effects.services import AgentServices
    from harborage.runtime.loop.controls import ControlEvent

TASK_ERROR_FETCH: Final = "runtime_fetch_error"
"""The error code of a task whose run could not be prepared."""

FINISHED: Final = "_finish"
"""The name under which a heavy answer is kept."""


_NOTHING: Final = msgspec.Raw(b"")


class TaskEnd(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The end of a run's task: its status, its stored result or error, and the children that continue."""

    status: Status
    outcome: msgspec.Raw = _NOTHING
    going_on: tuple[TaskID, ...] = ()


def begin(services: AgentServices, who: Quadruple) -> None:
    """Publish that the run's task has started."""
    _announce(services, EventType.TASK_STARTED, who, TaskStartedPayload(who.run_id, TaskStatus.PENDING))


async def end(services: AgentServices, live: LiveRun, finish: Finish) -> TaskEnd:
    """End the run's task as the run ended, and cancel its children that do not continue; publish it."""
    who = live.base.quadruple
    await _withdraw_and_reject(services, live)
    going_on = tuple(await end_children(services, live, finish.reason))
    cancelled = None if live.state is None else live.state.task_cancelled
    if finish.reason is FinishReason.CANCELLED and cancelled is not None:
        body = TaskCancelledPayload(who.run_id, cancelled.reason, cancelled.is_cascaded)
        _announce(services, EventType.TASK_CANCELLED, who, body)
        return TaskEnd(status=Status.CANCELLED, going_on=going_on)
    if finish.reason is not FinishReason.GOAL:
        code = task_error_code_for_finish(finish.reason)
        failure = TaskFailure(code, f"RunLoop finished without satisfying goal: {finish.reason}")
        announce_failure(services, who, failure)
        return TaskEnd(status=Status.FAILED, outcome=msgspec.Raw(outcome_of_failure(failure)), going_on=going_on)
    result = redacted_result(services.redactor, await _answer(services, live, finish))
    _announce(services, EventType.TASK_COMPLETED, who, TaskCompletedPayload(who.run_id))
    return TaskEnd(status=Status.COMPLETE, outcome=msgspec.Raw(outcome_of_result(result)), going_on=going_on)


async def fail(services: AgentServices, live: LiveRun, failure: TaskFailure) -> None:
    """Fail the run's task with the loop; withdraw the pause that the run waited for."""
    await _withdraw_and_reject(services, live)
    if live.state is not None and live.state.pause is not None:
        await withdraw(services, live.base.quadruple, live.state.pause.token, live.write)
    await end_children(services, live, None)
    announce_failure(services, live.base.quadruple, failure)


def failure_of(services: AgentServices, error: Exception) -> TaskFailure:
    """Return the failure of the task of a run that ends with this error."""
    code = TASK_ERROR_FETCH if isinstance(error, ContextUnavailableError | NotPreparedError) else TASK_ERROR_RUN_LOOP
    cause = error.__cause__ if isinstance(error, NotPreparedError) and error.__cause__ is not None else error
    return redacted_failure(services.redactor, TaskFailure(code, error_reason(cause)))


def announce_failure(services: AgentServices, who: Quadruple, failure: TaskFailure) -> None:
    """Publish that the run's task failed."""
    _announce(services, EventType.TASK_FAILED, who, TaskFailedPayload(who.run_id, failure.code))


def _announce(services: AgentServices, type: EventType, who: Quadruple, payload: Payload) -> None:
    """Publish an event of the run's task; its identity is the task's own, which has no run."""
    services.emit(type, who.identity.with_run(""), payload)


async def _answer(services: AgentServices, live: LiveRun, finish: Finish) -> bytes:
    """Return the result of the run's task. A heavy answer is kept as an artifact, and replaced by its summary."""
    steps = 0 if live.state is None else len(live.state.trajectory.steps)
    has_output = services.has_output or (live.request is not None and live.request.output is not None)
    answer, output = extract_answer(finish), finish.payload if has_output else msgspec.UNSET
    is_whole = live.request is not None and live.request.is_handed_over  # it is the answer of another run
    if services.executor is not None and not is_whole:
        kept = answer if output is msgspec.UNSET else codec.encode_text(output, "Finish.payload")
        shown = await services.executor.projected(live.base.quadruple, FINISHED, kept)
        if is_kept_summary(shown.llm):
            answer, output = codec.encode_text(shown.llm, "Finish.payload"), msgspec.UNSET
    return AnswerEnvelope(answer, str(finish.reason), steps, output).encode()


async def withdraw(services: AgentServices, who: Quadruple, token: str, write: RunWriter | None) -> None:
    """Withdraw a pause that its run no longer waits for, so that no person answers it for nothing."""
    with suppress(PauseNotFoundError):
        await services.pauses.withdraw(token, who=who, write=write)


def refuse(services: AgentServices, control: ControlEvent) -> None:
    """Publish that a control came too late: every control ends as applied or as rejected."""
    payload = ControlRejectedPayload(
        type=str(control.type),
        reason="run_ended",
        caller_scope=str(control.caller_scope),
        by=UNSET if control.by is None else Triple.of(control.by),
        event_id=control.event_id or UNSET,
    )
    services.emit(EventType.CONTROL_REJECTED, control.identity, payload)


async def withdraw_unanswered(services: AgentServices, live: LiveRun) -> None:
    """Withdraw the approvals that the run requested and no longer waits for."""
    for token in await _unanswered(services, live):
        await withdraw(services, live.base.quadruple, token, live.write)


async def _withdraw_and_reject(services: AgentServices, live: LiveRun) -> None:
    await live.mailbox.wait_for_answers()
    await withdraw_unanswered(services, live)
    for control in live.mailbox.take().controls:
        refuse(services, control)
    if services.context_providers is not None:
        services.context_providers.drop_handles(live.base.quadruple.run_id, live.base.tool_context.handles)


async def _unanswered(services: AgentServices, live: LiveRun) -> Sequence[str]:
    """Return the tokens of the approvals and of the questions about interrupted calls that no call waits for."""
    if not live.was_cut_at_gate:
        return live.unanswered
    who = live.base.quadruple
    mine = PauseFilter(
        reasons=(PauseReason.APPROVAL_REQUIRED, PauseReason.AWAIT_INPUT),
        users=(who.user_id,),
        sessions=(who.session_id,),
        runs=(who.run_id,),
    )
    page = await services.pauses.list(mine, page_size=MAX_PAGE_SIZE, who=who)
    return [*live.unanswered, *(pause.token for pause in page.rows if pause.token not in live.unanswered)]
