"""The `task.…` effects: a run's task begins with it and ends as it ends, children included.

What still waits for an answer when its run is over is settled here, and controls that came too late are refused.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from harborage import codec
from harborage.errors import error_reason
from harborage.events import (
    ControlRejectedPayload,
    EventType,
    TaskCompletedPayload,
    TaskFailedPayload,
    TaskStartedPayload,
)
from harborage.planner import (
    AnswerEnvelope,
    Finish,
    FinishReason,
    PauseReason,
    extract_answer,
    task_error_code_for_finish,
)
from harborage.runtime.agent.background import end_children, pending
from harborage.runtime.dispatch.heavy import is_kept_summary
from harborage.runtime.pauses import (
    MAX_PAGE_SIZE,
    PauseFilter,
    PauseNotFoundError,
)
from harborage.tasks import (
    FollowUpPendingError,
    InvalidTransitionError,
    NotFoundError,
    TaskFailure,
    TaskID,
    TaskStatus,
)

if TYPE_CHECKING:
    from harborage.identity import Quadruple
    from harborage.runtime.agent.live import LiveRun
    from harborage.runtime.agent.services import AgentServices
    from harborage.runtime.steering.controls import ControlEvent

__all__ = ["TASK_ERROR_FETCH", "begin", "end", "fail", "fail_task", "refuse", "withdraw"]

TASK_ERROR_FETCH: Final = "runtime_fetch_error"
"""The code of a task whose run could not be given what it works with."""

FINISHED: Final = "_finish"
"""The name under which a heavy answer is kept."""

_GONE = (InvalidTransitionError, NotFoundError)


async def begin(services: AgentServices, who: Quadruple) -> bool:
    """Whether the run may go on: its task runs now, or there is none. A task that has ended keeps its run from it."""
    if services.tasks is None:
        return True
    try:
        await services.tasks.mark_running(who.run_id, who=who)
    except NotFoundError as error:
        services.logger.info("run %s has no task: %s", who.run_id, error_reason(error))
    except FollowUpPendingError as error:
        pending(services, who, error)
    except InvalidTransitionError:
        task = await services.tasks.get(who.run_id, who=who)
        if task.status is TaskStatus.RUNNING and services.tells_with_record:
            # By a process that died before this was on record, and so before it was told.
            services.emit(EventType.TASK_STARTED, who, TaskStartedPayload(task.id, TaskStatus.PENDING))
        return not task.status.is_terminal
    return True


async def end(services: AgentServices, live: LiveRun, finish: Finish) -> list[TaskID]:
    """The run's task ends as the run did, with those of its children that do not go on; returns those that do."""
    who = live.base.quadruple
    await _close_up(services, live)
    if services.tasks is None:
        return []
    going_on = await end_children(services, live, finish.reason)
    if finish.reason is not FinishReason.GOAL:
        code = task_error_code_for_finish(finish.reason)
        text = f"RunLoop finished without satisfying goal: {finish.reason}"
        await fail_task(services, who, TaskFailure(code, text))
        return going_on
    try:
        await services.tasks.mark_complete(who.run_id, await _answer(services, live, finish), who=who)
    except FollowUpPendingError as error:
        pending(services, who, error)
    except _GONE as error:
        await _had_ended(services, who, None, error)
    return going_on


async def fail(services: AgentServices, live: LiveRun, failure: TaskFailure) -> None:
    """The run's task failed with the loop; a pause that the run was parked on is settled."""
    await _close_up(services, live)
    if live.state is not None and live.state.pause is not None:
        await withdraw(services, live.base.quadruple, live.state.pause.token)
    await end_children(services, live, None)
    await fail_task(services, live.base.quadruple, failure)


async def fail_task(services: AgentServices, who: Quadruple, failure: TaskFailure) -> None:
    """The run's task failed."""
    if services.tasks is None:
        return
    try:
        await services.tasks.mark_failed(who.run_id, failure, who=who)
    except FollowUpPendingError as error:
        pending(services, who, error)
    except _GONE as error:
        await _had_ended(services, who, failure, error)


async def _had_ended(services: AgentServices, who: Quadruple, failure: TaskFailure | None, error: Exception) -> None:
    """The run's task ended before: by somebody else, or by a process of this run that died before that was on record.

    What is not on record was not told, where both are kept together: then it is told now.
    """
    services.logger.info("run %s: its task had ended already: %s", who.run_id, error_reason(error))
    if services.tasks is None or not services.tells_with_record or isinstance(error, NotFoundError):
        return
    task = await services.tasks.get(who.run_id, who=who)
    if failure is None and task.status is TaskStatus.COMPLETE:
        services.emit(EventType.TASK_COMPLETED, who, TaskCompletedPayload(task.id))
    elif (
        failure is not None
        and task.status is TaskStatus.FAILED
        and task.error is not None
        and task.error.code == failure.code
    ):
        services.emit(EventType.TASK_FAILED, who, TaskFailedPayload(task.id, failure.code))


async def _answer(services: AgentServices, live: LiveRun, finish: Finish) -> bytes:
    """The result of the run's task. A heavy answer is kept as an artifact, and its summary stands for it."""
    steps = 0 if live.state is None else len(live.state.trajectory.steps)
    answer = extract_answer(finish)
    if services.executor is not None:
        shown = await services.executor.projected(live.base.quadruple, FINISHED, answer)
        if is_kept_summary(shown.llm):
            answer = codec.encode_text(shown.llm, "Finish.payload")
    return codec.encode(AnswerEnvelope(answer=answer, finish_reason=str(finish.reason), tool_calls_seen=steps))


async def withdraw(services: AgentServices, who: Quadruple, token: str) -> None:
    """Settle a pause that its run no longer waits for, so that nobody answers in vain."""
    with suppress(PauseNotFoundError):
        await services.pauses.withdraw(token, who=who)


def refuse(services: AgentServices, control: ControlEvent) -> None:
    """Refuse a control that came too late, out loud: each one ends as applied or as rejected."""
    payload = ControlRejectedPayload(type=str(control.type), reason="run_ended", caller_scope=str(control.caller_scope))
    services.emit(EventType.CONTROL_REJECTED, control.identity, payload)


async def withdraw_unanswered(services: AgentServices, live: LiveRun) -> None:
    """Settle the approvals that the run asked for and waits for no more."""
    for token in await _unanswered(services, live):
        await withdraw(services, live.base.quadruple, token)


async def _close_up(services: AgentServices, live: LiveRun) -> None:
    await live.mailbox.handed_over()
    await withdraw_unanswered(services, live)
    for control in live.mailbox.take().controls:
        refuse(services, control)
    if services.desk is not None:
        services.desk.forget(live.base.quadruple.run_id, live.base.tool_context.handles)


async def _unanswered(services: AgentServices, live: LiveRun) -> list[str]:
    """The approvals, and the questions about calls in doubt, that nobody waits for any more."""
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
