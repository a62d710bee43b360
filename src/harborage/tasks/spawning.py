"""How a task is spawned: its row, its place in the tree, and a group of its own if it has one, in one commit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from harborage.events import unix_ns
from harborage.store import LIVE, Commit, Move, RunQuery
from harborage.store.errors import (
    GroupClosedError,
    RowNotFoundError,
    RunKnownError,
    RunLimitError,
    StatusConflictError,
)
from harborage.store.times import moment
from harborage.tasks import announcements
from harborage.tasks.errors import (
    GroupNotFoundError,
    GroupSealedError,
    IdempotencyConflictError,
    StaleChangeError,
    TaskLimitError,
)
from harborage.tasks.grouping import MAX_TRIES, new_group, row_of_new
from harborage.tasks.model import GroupStatus, TaskHandle
from harborage.tasks.requests import capped, check_words, fingerprint, new_task
from harborage.tasks.rows import new_run

if TYPE_CHECKING:
    from harborage.clock import Timers
    from harborage.events import Event, Redactor
    from harborage.events.bus import RunWriter
    from harborage.store import RunRow, Store
    from harborage.tasks.changes import Changes, Launch
    from harborage.tasks.model import GroupRequest, SpawnRequest, Task
    from harborage.tasks.requests import TaskLimits


class Spawning:
    """Spawns the tasks of one store."""

    def __init__(
        self, store: Store, changes: Changes, clock: Timers, redactor: Redactor | None, limits: TaskLimits
    ) -> None:
        self._store = store
        self._changes = changes
        self._clock = clock
        self._redactor = redactor
        self._limits = limits

    async def spawn(self, request: SpawnRequest, launch: Launch | None, write: RunWriter | None) -> TaskHandle:
        """A new task, or the one that the same request made before."""
        check_words(request)
        task, _ = await self._placed(request)
        return await self._commit(request, task, Commit(), (self._told(task),), launch, write)

    async def spawn_alone(
        self,
        request: SpawnRequest,
        asked: GroupRequest,
        launch: Launch | None,
        write: RunWriter | None,
        *,
        is_awaited: bool,
    ) -> TaskHandle | None:
        """A new task with the new group of its request, sealed; None where there is such a group already.

        With `is_awaited` the task's parent, if it is a task that lives, waits for the group.
        """
        check_words(request)
        for _ in range(MAX_TRIES):
            task, parent = await self._placed(request)
            group = new_group(asked, self._redactor, self._clock.now())
            sealed = replace(group, status=GroupStatus.SEALED, members=(task.id,))
            events = (
                announcements.group_created(group),
                self._told(task),
                announcements.group_sealed(sealed, self._clock.now()),
            )
            moves: tuple[Move, ...] = ()
            if is_awaited and parent is not None and not parent.status.is_final:
                moves = (Move(run_id=parent.run_id, expected=LIVE, awaits=group.id),)
            opened = Commit(groups=(replace(row_of_new(group), is_sealed=True),), moves=moves)
            try:
                return await self._commit(request, task, opened, events, launch, write)
            except StatusConflictError as error:
                if error.what == f"group {group.id}":
                    return None  # otherwise its parent has just ended
        raise StaleChangeError(request.parent_task_id or "")

    async def _commit(
        self,
        request: SpawnRequest,
        task: Task,
        commit: Commit,
        events: Sequence[Event],
        launch: Launch | None,
        write: RunWriter | None,
    ) -> TaskHandle:
        mark = fingerprint(request) if request.idempotency_key else ""
        commit = replace(commit, starts=(new_run(task, mark, self._limits),))
        try:
            await self._changes.commit(commit, events, task=task, launch=launch, write=write)
        except RunKnownError as error:
            if error.row.fingerprint != mark:
                raise IdempotencyConflictError(request.idempotency_key, error.row.run_id) from error
            return TaskHandle(error.row.run_id, True)
        except RunLimitError as error:
            limit = "max_children" if error.what == f"run {task.parent_task_id}" else "max_tree"
            raise TaskLimitError(limit, error.limit, error.what) from error
        except GroupClosedError as error:
            raise GroupSealedError(error.group_id, error.status) from error
        except RowNotFoundError as error:
            raise GroupNotFoundError(task.group_id) from error
        return TaskHandle(task.id)

    def _told(self, task: Task) -> Event:
        return announcements.spawned(task, self._clock.now())

    async def _placed(self, request: SpawnRequest) -> tuple[Task, RunRow | None]:
        """The new task at its place in the tree, and the row of its parent. A parent without a task is a root."""
        task = new_task(request, unix_ns(self._clock.now()), self._redactor)
        if task.parent_task_id is None:
            return task, None
        rows = (await self._store.runs(RunQuery(run_ids=(task.parent_task_id,), limit=1))).rows
        if not rows or rows[0].who != task.identity.identity:
            return replace(task, root_task_id=task.parent_task_id), None
        parent = rows[0]
        most = None if parent.deadline is None else moment(parent.deadline)
        return replace(task, root_task_id=parent.root or parent.run_id, deadline=capped(task.deadline, most)), parent
