"""What follows for runs and sessions when a task ends, or the runtime closes meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.planner import TASK_ERROR_CANCELLED
from harborage.runtime.durable import RunNotFoundError, RunStatus
from harborage.runtime.steering.controls import ControlEvent, ControlType, Scope
from harborage.sessions import SessionReopenForbiddenError
from harborage.store import Commit, RunQuery
from harborage.tasks import NotFoundError, Task, TaskFailure, TaskStatus

if TYPE_CHECKING:
    from harborage.runtime.assembly import Assembly
    from harborage.store import Store

__all__ = ["abandon", "cancel_run", "see_again", "wake_parent"]


async def cancel_run(parts: Assembly, task: Task) -> None:
    """Cancel the run of a task that was cancelled, the call in flight included."""
    who = task.identity.identity.with_run(task.id)
    control = ControlEvent(ControlType.CANCEL, who, Scope.ADMIN, who.tenant_id, {"hard": True})
    try:
        await parts.engine.send(task.id, control)
    except RunNotFoundError:
        return


async def wake_parent(store: Store, task: Task) -> None:
    """Let a run go on that may wait for a task without a run, and is not in memory; the end of a run is told by it."""
    if task.parent_task_id and not (await store.runs(RunQuery(run_ids=(task.id,), limit=1))).rows:
        await store.commit(Commit(wakes=(task.parent_task_id,)))


async def see_again(parts: Assembly, task: Task) -> None:
    """A session is not idle in which work has only just ended."""
    try:
        await parts.sessions.visit(task.identity)
    except SessionReopenForbiddenError:
        return


async def abandon(parts: Assembly, status: RunStatus) -> None:
    """Say of a run that ends with its process that it does: its task and what it was sent must not look as if it went
    on."""
    for control in await parts.engine.untaken(status.run_id):
        parts.refuse(control)
    tasks = parts.tasks
    try:
        task = await tasks.get(status.run_id, who=status.who)
    except NotFoundError:
        return  # a run of an earlier runtime, whose tasks ended with it
    match task.status:
        case TaskStatus.RUNNING:
            failure = TaskFailure(TASK_ERROR_CANCELLED, "the runtime was closed")
            await tasks.mark_failed(task.id, failure, who=status.who)
        case TaskStatus.PENDING | TaskStatus.PAUSED:
            await tasks.cancel(task.id, "the runtime was closed", who=status.who)
        case _:
            pass
