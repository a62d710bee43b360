"""The runs of tasks as the task registry knows them: how one is started with its task, and how a cancel reaches it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harborage import codec
from harborage.events import Event, EventType, Payload, TaskCancelledPayload, TaskFailedPayload
from harborage.planner import TASK_ERROR_CANCELLED
from harborage.runtime.steering.controls import ControlEvent, ControlType, Scope, TaskCancelled
from harborage.store import SendControl
from harborage.tasks import TaskStatus

if TYPE_CHECKING:
    from harborage.clock import Clock
    from harborage.runtime.assembly import Assembly
    from harborage.runtime.durable import RunStatus
    from harborage.store import RunRow
    from harborage.tasks.changes import Launch

_CLOSED: Final = "the runtime was closed"


class TaskRuns:
    """The runs of the tasks of one store; `launch` starts one. Without it they can be cancelled, and a task that is
    spawned has none."""

    def __init__(self, clock: Clock, launch: Launch | None = None) -> None:
        self._clock = clock
        self.launch = launch

    def cancellation(self, row: RunRow, reason: str, *, is_cascaded: bool) -> SendControl:
        """The hard CANCEL that ends a run with its task, the call in flight included; sending it again does nothing."""
        who = row.quadruple
        cancelled = TaskCancelled(reason, is_cascaded, not row.is_cascading).payload()
        event_id = f"task-cancelled/{row.run_id}"
        now = self._clock.now()
        control = ControlEvent(ControlType.CANCEL, who, Scope.ADMIN, who.tenant_id, cancelled, event_id, now)
        return SendControl(
            run_id=row.run_id, event_id=event_id, type=str(ControlType.CANCEL), data=codec.encode(control)
        )


async def abandon(parts: Assembly, status: RunStatus) -> None:
    """Say of a run that ends with its process that it does: neither its task nor what it was sent may look as if it
    went on."""
    for control in await parts.engine.untaken(status.run_id):
        parts.refuse(control)
    task = await parts.tasks.get(status.run_id, who=status.who)
    if task.status is TaskStatus.RUNNING:
        body: Payload = TaskFailedPayload(task.id, TASK_ERROR_CANCELLED)
        parts.bus.publish_nowait(Event(EventType.TASK_FAILED, task.identity, body))
    else:
        body = TaskCancelledPayload(task.id, _CLOSED, False)
        parts.bus.publish_nowait(Event(EventType.TASK_CANCELLED, task.identity, body))
