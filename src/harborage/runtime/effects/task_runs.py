"""The runs of tasks: how one is started with its task, how a cancel reaches it, and how many may be under way."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from harborage import codec
from harborage.planner.spawning import is_own_group
from harborage.runtime.loop.controls import ControlEvent, ControlType, Scope, TaskCancelled
from harborage.store import SendControl, Status
from harborage.tasks import TaskLimitError

if TYPE_CHECKING:
    from harborage.clock import Clock
    from harborage.identity import Quadruple
    from harborage.store import GroupLeft, RunRow
    from harborage.tasks.changes import Closing, EndedRun, Launch
    from harborage.tasks.grouping import EndedRuns


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


CountRuns = Callable[[str, int], Awaitable[int]]
"""How many runs of this tenant have not ended; counted up to the second argument."""


class Admission:
    """Admits spawned runs while fewer than `most` of their tenant's runs, started or spawned, have not ended.

    Runs are counted anew when this process has admitted so many that there may be no room. Of several processes over
    one storage each counts for itself in between, so together they may admit up to `most` each.
    """

    def __init__(self, count: CountRuns, most: int) -> None:
        self._count = count
        self._most = most
        self._at_most: dict[str, int] = {}

    async def admit(self, who: Quadruple) -> None:
        """Accept one more run beside those of the tenant of `who`.

        Raises:
            TaskLimitError: there are as many as there may be.
        """
        tenant = who.tenant_id
        if self._at_most.get(tenant, self._most) >= self._most:
            self._at_most[tenant] = await self._count(tenant, self._most)
        if self._at_most[tenant] >= self._most:
            del self._at_most[tenant]
            raise TaskLimitError("max_running", self._most, f"tenant {tenant!r}, of runs that have not ended,")
        self._at_most[tenant] += 1


class TaskEnds:
    """What the end of a run is for its task: with that of a group whose last member it was in the same commit."""

    def __init__(self, runs: EndedRuns) -> None:
        self._runs = runs

    async def closing(self, end: EndedRun, *, is_refused: bool) -> Closing | None:
        if not is_refused and is_own_group(end.group) and end.status is not Status.FAILED:
            return self._runs.sole_closing(end)  # it was sealed when the run was spawned
        return await self._runs.closing(end)

    def ended(self, end: EndedRun, left: GroupLeft | None, closing: Closing | None) -> Coroutine[Any, Any, None] | None:
        return self._runs.ended(end, left, closing)
