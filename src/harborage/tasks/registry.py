"""The task registry over a store of record: a task is its run's row, a group and a patch are rows of their own.

Every verb reads the row, asks the rules whether the change may be made, and commits it under the condition that the
row is still as it was read. Nothing of a task is kept here but who waits for its end. It runs nothing by itself: with
`runs` each spawned task has a run that a host executes, which alone moves the task from then on.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from harborage.clock import SYSTEM_CLOCK
from harborage.events import EventBus, Redactor, unix_ns
from harborage.identity import Identity, Quadruple, effective_quadruple, require_triple
from harborage.store import LIVE, Commit, DecidePatch, Move, RunQuery, RunRow, SessionQuery, Status, Store
from harborage.store.errors import (
    RowNotFoundError,
    RunCycleError,
    RunOverError,
    StatusConflictError,
)
from harborage.store.memory import MemoryStore
from harborage.tasks import announcements
from harborage.tasks.changes import Changes
from harborage.tasks.errors import (
    AcknowledgePublishError,
    GroupInvalidTransitionError,
    InvalidRequestError,
    InvalidTransitionError,
    PatchNotFoundError,
    RegistryClosedError,
    StaleChangeError,
    TaskNotFoundError,
    WaitCycleError,
)
from harborage.tasks.grouping import MAX_TRIES, EndedRuns, Groups
from harborage.tasks.model import (
    GroupAction,
    GroupRequest,
    PatchAction,
    PatchStatus,
    SpawnRequest,
    SpawnToolRequest,
    Task,
    TaskFailure,
    TaskFilter,
    TaskGroup,
    TaskGroupID,
    TaskHandle,
    TaskID,
    TaskKind,
    TaskPatch,
    TaskSummary,
)
from harborage.tasks.requests import (
    TaskLimits,
    redacted_failure,
    redacted_result,
    tool_request,
)
from harborage.tasks.rows import outcome_of_failure, outcome_of_result, patch_of, task_of
from harborage.tasks.rules import Move as Step
from harborage.tasks.rules import check_priority, target_of
from harborage.tasks.spawning import Spawning
from harborage.tasks.trees import Children, below, cancellation, circle, rows_of

if TYPE_CHECKING:
    from harborage.clock import Timers
    from harborage.events.bus import RunWriter
    from harborage.store import Committed
    from harborage.tasks.changes import Closing, Launch, Runs
    from harborage.tasks.ends import GroupWatch, RetainTurnWaiter
    from harborage.tasks.port import Who

_ANY: Final = TaskFilter()
_DECIDED: Final = {PatchAction.ACCEPT: PatchStatus.APPLIED, PatchAction.REJECT: PatchStatus.REJECTED}


class InProcessTaskRegistry:
    """Tasks, groups and patches of a store, of one in memory when none is given. See `TaskRegistry`.

    Safe for many callers on one event loop, and for many processes over one store. On a bus over the same store each
    change and its events are one commit. Bus, redactor and store are the caller's to close, after the registry.
    """

    def __init__(
        self,
        *,
        bus: EventBus,
        redactor: Redactor | None = None,
        store: Store | None = None,
        clock: Timers = SYSTEM_CLOCK,
        limits: TaskLimits = TaskLimits(),  # noqa: B008 - a frozen value
        runs: Runs | None = None,
    ) -> None:
        self._clock = clock
        self._redactor = redactor
        self._runs = runs
        self._store: Store = MemoryStore(clock=clock) if store is None else store
        self._changes = Changes(self._store, bus)
        self._groups = Groups(self._store, self._changes, clock, redactor, runs)
        self._ends = self._groups.ends
        self.run_ends = EndedRuns(self._groups, lambda run: self.get(run.run_id, who=run))
        self._children = Children(self._store)
        self._spawning = Spawning(self._store, self._changes, clock, redactor, limits)
        self._is_closed = False

    # Spawning

    async def spawn(
        self, request: SpawnRequest, *, launch: Launch | None = None, write: RunWriter | None = None
    ) -> TaskHandle:
        """As `TaskRegistry.spawn`; `launch` starts the run of this task in place of what `runs` would start."""
        self._check_open()
        require_triple(request.identity, "tasks.spawn")
        return await self._spawning.spawn(request, self._launch(launch), write)

    async def spawn_alone(
        self,
        request: SpawnRequest,
        group: GroupRequest,
        *,
        is_awaited: bool = False,
        launch: Launch | None = None,
        write: RunWriter | None = None,
    ) -> TaskHandle:
        """As `TaskRegistry.spawn_alone`; `launch` as that of `spawn`."""
        self._check_open()
        require_triple(request.identity, "tasks.spawn_alone")
        who, parent = request.identity.identity, request.parent_task_id
        if group.session != who or group.id != request.group_id:
            raise InvalidRequestError("group_id", "must be the id of the group, in the session of the task")
        launched = self._launch(launch)
        handle = await self._spawning.spawn_alone(request, group, launched, write, is_awaited=is_awaited)
        if handle is not None and not handle.reused:
            return handle
        # The task is known, or its group is: an earlier version made one after the other, and may have died between.
        await self._groups.resolve_or_create(group, who)
        if is_awaited and parent is not None:
            await self.begin_wait(parent, group.id, who=who, write=write)
        if handle is None:
            handle = await self._spawning.spawn(request, launched, write)
        with suppress(GroupInvalidTransitionError):
            await self._groups.seal(group.id, who)
        return handle

    async def spawn_tool(self, request: SpawnToolRequest) -> TaskHandle:
        self._check_open()
        require_triple(request.identity, "tasks.spawn_tool")
        if not request.tool_name:
            raise InvalidRequestError("tool_name", "must not be empty")
        return await self._spawning.spawn(tool_request(request), None, None)

    # Reading

    async def get(self, task_id: TaskID, *, who: Who | None = None) -> Task:
        return task_of(await self._row(task_id, who, "tasks.get"))

    async def list(self, session: Identity, filter: TaskFilter = _ANY) -> list[TaskSummary]:
        self._check_open()
        require_triple(session, "tasks.list")
        if filter.parent and filter == TaskFilter(parent=filter.parent):
            rows = await self._children.of(session, filter.parent)
        else:
            query = replace(
                _of_session(session),
                parent=filter.parent or "",
                statuses=() if filter.status is None else (Status(filter.status),),
                kinds=() if filter.kind is None else (str(filter.kind),),
                is_whole=False,
            )
            rows = await rows_of(self._store, query)
        return [
            TaskSummary(task.id, task.status, task.kind, task.priority, task.updated_at, task.retains_turn)
            for task in map(task_of, rows)
        ]

    async def read(self, session: Identity) -> builtins.list[Task]:
        """The session's tasks, whole, in the order they were spawned."""
        self._check_open()
        require_triple(session, "tasks.list")
        return [task_of(row) for row in await rows_of(self._store, _of_session(session))]

    async def sessions(self) -> builtins.list[Identity]:
        """The sessions of the store, for callers who may look across them."""
        self._check_open()
        found: builtins.list[Identity] = []
        query = SessionQuery(include_closed=True, limit=200)
        while True:
            page = await self._store.sessions(query)
            found += (row.who for row in page.rows)
            if page.cursor is None:
                return found
            query = replace(query, after=page.cursor)

    async def wait_ended(self, task_id: TaskID, *, who: Who | None = None) -> Task:
        self._check_open()
        with self._ends.waiting(task_id) as ended:
            task = task_of(await self._row(task_id, who, "tasks.wait_ended"))
            return task if task.status.is_terminal else await ended

    async def begin_wait(
        self, waiter: TaskID, target: TaskID | TaskGroupID, *, who: Who | None = None, write: RunWriter | None = None
    ) -> None:
        try:
            row = await self._row(waiter, who, "tasks.begin_wait")
        except TaskNotFoundError:
            return  # no run can wait for a run without a task, so it is in no circle
        if row.awaits == target:
            return  # it was noted when what it waits for was spawned
        try:
            await self._note_wait(waiter, target, write)
        except RunCycleError as error:
            raise WaitCycleError(await circle(self._store, row, target)) from error
        except (RowNotFoundError, StatusConflictError):
            return  # it has ended

    async def end_wait(self, waiter: TaskID, *, who: Who | None = None, write: RunWriter | None = None) -> None:
        try:
            row = await self._row(waiter, who, "tasks.end_wait")
            if row.awaits:
                await self._note_wait(waiter, "", write)
        except (TaskNotFoundError, RowNotFoundError, StatusConflictError):
            return

    # Control

    async def cancel(self, task_id: TaskID, reason: str = "", *, who: Who | None = None) -> bool:
        for _ in range(MAX_TRIES):
            row = await self._row(task_id, who, "tasks.cancel")
            if row.status.is_final:
                return False
            along = await below(self._store, [row]) if row.is_cascading else []
            is_first = await self._cancel_all([(row, False), *((one, True) for one in along)], reason)
            if is_first is not None:
                return is_first
        raise StaleChangeError(task_id)

    async def cancel_children(
        self,
        parent: TaskID,
        reason: str = "",
        *,
        only: Collection[TaskID] | None = None,
        who: Who | None = None,
        write: RunWriter | None = None,
    ) -> int:
        session = self._caller(who, "tasks.cancel_children")
        children = replace(_of_session(session), parent=parent, statuses=LIVE)
        for _ in range(MAX_TRIES):
            living = [row for row in await rows_of(self._store, children) if only is None or row.run_id in only]
            if not living:
                return 0
            along = await below(self._store, [row for row in living if row.is_cascading])
            going = {row.run_id: row for row in (*living, *along)}
            if await self._cancel_all([(row, True) for row in going.values()], reason, write) is not None:
                return len(going)
        raise StaleChangeError(parent)

    async def prioritize(
        self, task_id: TaskID, priority: int, *, who: Who | None = None, write: RunWriter | None = None
    ) -> bool:
        check_priority(priority, "tasks.prioritize: priority")
        for _ in range(MAX_TRIES):
            row = await self._row(task_id, who, "tasks.prioritize")
            if row.priority == priority:
                return False
            prior, now = task_of(row), self._clock.now()
            move = Move(run_id=task_id, expected=(row.status,), priority=priority)
            event = announcements.prioritised(replace(prior, priority=priority), prior, now)
            try:
                await self._changes.commit(Commit(moves=(move,)), [event], write=write)
            except (StatusConflictError, RowNotFoundError):
                continue
            return True
        raise StaleChangeError(task_id)

    async def increment_tool_count(self, task_id: TaskID, *, who: Who | None = None) -> int:
        row = await self._row(task_id, who, "tasks.increment_tool_count")
        await self._store.commit(Commit(moves=(Move(run_id=task_id, expected=tuple(Status), tool_calls=1),)))
        return row.tool_count + 1

    # Lifecycle

    async def mark_running(self, task_id: TaskID, *, who: Who | None = None) -> Task:
        return await self._mark(task_id, Step.START, who)

    async def mark_paused(self, task_id: TaskID, *, who: Who | None = None) -> Task:
        return await self._mark(task_id, Step.PAUSE, who)

    async def mark_resumed(self, task_id: TaskID, *, who: Who | None = None) -> Task:
        return await self._mark(task_id, Step.RESUME, who)

    async def mark_complete(self, task_id: TaskID, result: bytes = b"", *, who: Who | None = None) -> Task:
        return await self._mark(task_id, Step.COMPLETE, who, result=redacted_result(self._redactor, result) or None)

    async def mark_failed(self, task_id: TaskID, failure: TaskFailure, *, who: Who | None = None) -> Task:
        return await self._mark(task_id, Step.FAIL, who, error=redacted_failure(self._redactor, failure))

    def on_ended(self, listener: Callable[[Quadruple], None]) -> Callable[[], None]:
        self._check_open()
        return self._ends.listen(listener)

    async def acknowledge_background(self, session: Identity, task_ids: Sequence[TaskID]) -> int:
        self._check_open()
        require_triple(session, "tasks.acknowledge_background")
        count = 0
        errors: list[Exception] = []
        for task_id in task_ids:
            try:
                row = await self._row(task_id, session, "tasks.acknowledge_background")
                if row.kind != TaskKind.BACKGROUND or not row.status.is_final or row.is_acknowledged:
                    continue
                await self._store.commit(
                    Commit(moves=(Move(run_id=task_id, expected=(row.status,), is_acknowledged=True),))
                )
                count += 1
                await self._changes.commit(Commit(), [announcements.acknowledged(task_of(row), self._clock.now())])
            except (TaskNotFoundError, StatusConflictError):
                continue
            except Exception as error:  # noqa: BLE001 - joined and raised below
                errors.append(error)
        if errors:
            raise AcknowledgePublishError(count, errors)
        return count

    # Groups and patches

    async def resolve_or_create_group(self, request: GroupRequest, *, who: Who | None = None) -> TaskGroup:
        what = "tasks.resolve_or_create_group"
        caller = self._caller(who, what)
        require_triple(request.session, what)
        return await self._groups.resolve_or_create(request, caller)

    async def group(self, group_id: TaskGroupID, *, who: Who | None = None) -> TaskGroup:
        return await self._groups.get(group_id, self._caller(who, "tasks.group"))

    async def seal_group(self, group_id: TaskGroupID, *, who: Who | None = None) -> TaskGroup:
        return await self._groups.seal(group_id, self._caller(who, "tasks.seal_group"))

    async def cancel_group(
        self, group_id: TaskGroupID, reason: str = "", propagate: bool = True, *, who: Who | None = None
    ) -> bool:
        caller = self._caller(who, "tasks.cancel_group")
        return await self._groups.cancel(group_id, caller, reason, propagate=propagate)

    async def apply_group(
        self, group_id: TaskGroupID, action: GroupAction | str, *, who: Who | None = None
    ) -> TaskGroup:
        return await self._groups.apply(group_id, action, self._caller(who, "tasks.apply_group"))

    async def watch_group(self, session: Identity, group_id: TaskGroupID) -> GroupWatch:
        return await self._groups.watch(group_id, self._caller(session, "tasks.watch_group"))

    def register_retain_turn_waiter(self, session: Identity) -> RetainTurnWaiter:
        return self._ends.watch_turns(self._caller(session, "tasks.register_retain_turn_waiter"))

    async def settle_group(self, group_id: TaskGroupID, *, who: Identity) -> None:
        """End a group whose members have all ended, where the process that should have is gone."""
        await self._groups.settle(who, group_id)

    async def create_pending_patch(self, session: Identity, patch_id: str) -> TaskPatch:
        session = self._caller(session, "tasks.create_pending_patch")
        if not patch_id:
            raise InvalidRequestError("patch_id", "must not be empty")
        await self._store.commit(Commit(patches=(DecidePatch(patch_id=patch_id, who=session),)))
        return await self._patch(session, patch_id)

    async def apply_patch(self, session: Identity, patch_id: str, action: PatchAction | str) -> bool:
        session = self._caller(session, "tasks.apply_patch")
        if action not in _DECIDED:
            raise InvalidRequestError("action", f"{action!r} is not one of accept, reject")
        decision = PatchAction(action)
        patch = await self._patch(session, patch_id)
        if patch.status is PatchStatus.PENDING:
            now = self._clock.now()
            decided = replace(patch, status=_DECIDED[decision], decided_at=now)
            change = DecidePatch(patch_id=patch_id, who=session, decision=str(decision))
            try:
                await self._changes.commit(Commit(patches=(change,)), [announcements.patch_decided(decided, now)])
            except StatusConflictError:
                patch = await self._patch(session, patch_id)
            else:
                return True
        if patch.status is _DECIDED[decision]:
            return False
        raise GroupInvalidTransitionError(patch_id, patch.status, decision)

    async def aclose(self) -> None:
        """Turn away those who wait here. Closing twice does nothing."""
        self._is_closed = self.run_ends.is_closed = True
        await self._children.aclose()
        await self._ends.aclose()

    # Parts of the above

    def _launch(self, launch: Launch | None) -> Launch | None:
        return self._runs.launch if launch is None and self._runs is not None else launch

    def _check_open(self) -> None:
        if self._is_closed:
            raise RegistryClosedError()

    def _caller(self, who: Who | None, what: str) -> Identity:
        self._check_open()
        caller = effective_quadruple() if who is None else who
        require_triple(caller, what)
        assert caller is not None
        return caller.identity if isinstance(caller, Quadruple) else caller

    async def _row(self, task_id: TaskID, who: Who | None, what: str) -> RunRow:
        """The whole row of a task of the caller's session.

        Raises:
            TaskNotFoundError: there is none.
        """
        session = self._caller(who, what)
        rows = (await self._store.runs(RunQuery(run_ids=(task_id,), is_whole=True, limit=1))).rows
        if not rows or rows[0].who != session:
            raise TaskNotFoundError(task_id)
        return rows[0]

    async def _patch(self, session: Identity, patch_id: str) -> TaskPatch:
        row = await self._store.patch(patch_id, who=session)
        if row is None:
            raise PatchNotFoundError(patch_id)
        return patch_of(row)

    async def _cancel_all(
        self, rows: Sequence[tuple[RunRow, bool]], reason: str, write: RunWriter | None = None
    ) -> bool | None:
        """Cancel these; whether the first was not cancelled before. None where others have changed one meanwhile."""
        cancelled = cancellation(rows, reason, self._clock.now(), self._runs)
        try:
            done = await self._changes.commit(cancelled.commit, cancelled.events, write=write)
        except (StatusConflictError, RunOverError, RowNotFoundError):
            return None
        await self._groups.tasks_ended(cancelled.ended, done)
        return done.sent[0] if rows[0][0].position else True

    async def _note_wait(self, waiter: TaskID, target: TaskID | TaskGroupID, write: RunWriter | None) -> None:
        noted = Commit(moves=(Move(run_id=waiter, expected=LIVE, awaits=target),))
        await self._changes.commit(noted, (), write=write)

    async def _mark(self, task_id: TaskID, step: Step, who: Who | None, **parts: Any) -> Task:
        for _ in range(MAX_TRIES):
            row = await self._row(task_id, who, f"tasks.{step}")
            prior, now = task_of(row), self._clock.now()
            status = target_of(step, prior.status, task_id)
            if row.position:
                why = "it ends with its run; cancel it, or send the run a control"
                raise InvalidTransitionError(prior.status, status, task_id, why)
            task = replace(prior, status=status, updated_at=unix_ns(now), **parts)
            move = Move(
                run_id=task_id,
                expected=(row.status,),
                status=Status(status),
                reason=None if task.error is None else task.error.code,
                outcome=_outcome(task),
            )
            closing = await self._groups.closing_with(task) if status.is_terminal else None
            done = await self._moved(move, announcements.moved(step, task, prior, now), closing)
            if done is not None:
                if status.is_terminal:
                    await self._groups.tasks_ended((task,), done, closing)
                return task
        raise StaleChangeError(task_id)

    async def _moved(self, move: Move, event: Any, closing: Closing | None = None) -> Committed | None:
        try:
            return await self._changes.commit_end(Commit(moves=(move,)), event, closing)
        except (StatusConflictError, RowNotFoundError):
            return None


def _outcome(task: Task) -> bytes | None:
    if task.error is not None:
        return outcome_of_failure(task.error)
    return None if task.result is None else outcome_of_result(task.result)


def _of_session(session: Identity) -> RunQuery:
    return RunQuery(
        tenant=session.tenant_id,
        user=session.user_id,
        session=session.session_id,
        oldest_first=True,
        is_whole=True,
    )
