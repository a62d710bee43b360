"""The task registry that lives in this process.

It keeps every task of every session in memory, or in a store when it has one, and tells the bus about each change.
Read `commit` for the order in which a change becomes true, `transitions` and `groups` for the rules. It runs nothing: a
host listens with `on_spawned`, does the work, and marks how it went.
"""

from __future__ import annotations

import builtins
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from harborage.clock import SYSTEM_CLOCK, Clock
from harborage.events import EventBus, Redactor, unix_ns
from harborage.identity import Identity, Quadruple, require_triple
from harborage.ids import new_id
from harborage.tasks import announcements
from harborage.tasks.books import Books, cancelled_task
from harborage.tasks.commit import Writer
from harborage.tasks.errors import AcknowledgePublishError, InvalidRequestError, NotFoundError, TaskLimitError
from harborage.tasks.group_keeper import GroupKeeper
from harborage.tasks.groups import check_joinable
from harborage.tasks.idempotency import fingerprint
from harborage.tasks.ledger import CancelTask, SessionLedger, of_levels
from harborage.tasks.limits import TaskLimits, capped, root_of
from harborage.tasks.model import (
    GroupAction,
    GroupRequest,
    PatchAction,
    Propagate,
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
from harborage.tasks.patch_keeper import PatchKeeper
from harborage.tasks.redaction import redacted_failure, redacted_result, redacted_text
from harborage.tasks.stored_books import KEEP, RECHECK_S, StoredBooks
from harborage.tasks.transitions import Move, target_of
from harborage.tasks.waiting import begin_wait

if TYPE_CHECKING:
    from harborage.state import StateStore
    from harborage.tasks.drivers import RegistryParts
    from harborage.tasks.port import TaskListener, TaskRegistry, Who
    from harborage.tasks.watch import GroupWatch, RetainTurnWaiter

__all__ = ["InProcessTaskRegistry", "make"]

_ANY = TaskFilter()


class InProcessTaskRegistry:
    """Keeps tasks for one event loop and any number of callers on it. See `TaskRegistry`.

    Over a store tasks, groups and keys outlive the process, several processes may share them, and about `keep` tasks
    stay in memory. A living task is then read from the store whenever it is asked for or changed; who waits for what
    another process ends learns of it within `recheck_s` seconds. Tool calls are counted in memory and written with the
    task's next change, when it leaves memory, and at close: a crash loses those since.

    The bus, the redactor and the store are the caller's to close, after the registry.
    """

    def __init__(
        self,
        *,
        bus: EventBus,
        redactor: Redactor | None = None,
        store: StateStore | None = None,
        clock: Clock = SYSTEM_CLOCK,
        keep: int = KEEP,
        recheck_s: float = RECHECK_S,
        limits: TaskLimits = TaskLimits(),  # noqa: B008 - a frozen value
    ) -> None:
        self._clock = clock
        self._limits = limits
        self._redactor = redactor
        writer = Writer(bus, store)
        self._books = (
            Books(writer, clock) if store is None else StoredBooks(writer, clock, store, keep=keep, recheck_s=recheck_s)
        )
        self._groups = GroupKeeper(self._books, redactor)
        self._patches = PatchKeeper(self._books)

    # Spawning

    async def spawn(self, request: SpawnRequest) -> TaskHandle:
        self._books.check_open()
        require_triple(request.identity, "tasks.spawn")
        _check_words(request)
        ledger = self._books.open(request.identity)
        return await self._books.alone(ledger, partial(self._spawn, ledger, request))

    async def spawn_tool(self, request: SpawnToolRequest) -> TaskHandle:
        self._books.check_open()
        require_triple(request.identity, "tasks.spawn_tool")
        if not request.tool_name:
            raise InvalidRequestError("tool_name", "must not be empty")
        return await self.spawn(_tool_spawn(request))

    def on_spawned(self, listener: TaskListener) -> Callable[[], None]:
        self._books.check_open()
        return self._books.spawned.add(listener)

    def on_ended(self, listener: TaskListener) -> Callable[[], None]:
        self._books.check_open()
        return self._books.ended.add(listener)

    # Reading

    async def get(self, task_id: TaskID, *, who: Who | None = None) -> Task:
        return (await self._books.of_task(task_id, who, "tasks.get")).tasks[task_id]

    async def list(self, session: Identity, filter: TaskFilter = _ANY) -> list[TaskSummary]:
        self._books.check_open()
        require_triple(session, "tasks.list")
        return [
            TaskSummary(task.id, task.status, task.kind, task.priority, task.updated_at, task.retains_turn)
            for task in await self._books.read(session, filter.parent)
            if (filter.status is None or task.status is filter.status)
            and (filter.kind is None or task.kind is filter.kind)
        ]

    async def read(self, session: Identity) -> builtins.list[Task]:
        """The session's tasks, whole, in the order they were spawned."""
        self._books.check_open()
        require_triple(session, "tasks.list")
        return await self._books.read(session)

    async def groups(self, session: Identity) -> builtins.list[TaskGroup]:
        """The session's groups that have tasks and have not ended, in the order of their first tasks."""
        self._books.check_open()
        require_triple(session, "tasks.groups")
        return await self._books.groups(session)

    async def forget(self, before: datetime, is_over: Callable[[Identity], Awaitable[bool]]) -> int:
        """Drop the tasks of sessions that are over, as soon as all of them ended before then; returns how many.

        With the tasks go their groups and idempotency keys. `is_over` says that nothing begins in a session any more.
        """
        self._books.check_open()
        count = 0
        for session in await self._books.sessions():
            if await is_over(session):
                count += await self._books.forget(session, unix_ns(before))
        return count

    async def sessions(self) -> builtins.list[Identity]:
        """The sessions that have tasks, for callers who may look across them."""
        self._books.check_open()
        return await self._books.sessions()

    async def wait_ended(self, task_id: TaskID, *, who: Who | None = None) -> Task:
        ledger = await self._books.of_task(task_id, who, "tasks.wait_ended")
        task = ledger.tasks[task_id]
        return task if task.status.is_terminal else await self._books.wait_ended(ledger, task_id)

    async def begin_wait(self, waiter: TaskID, target: TaskID | TaskGroupID, *, who: Who | None = None) -> None:
        books = self._books
        ledger = books.open(books.caller(who, "tasks.begin_wait"))
        await books.alone(ledger, partial(begin_wait, books.waits, books, ledger, waiter, target))

    async def end_wait(self, waiter: TaskID, *, who: Who | None = None) -> None:
        caller = self._books.caller(who, "tasks.end_wait")
        session = caller.identity if isinstance(caller, Quadruple) else caller
        await self._books.waits.keep_wait(session, waiter, "")

    async def recheck(self) -> None:
        """Look whether another process ended what somebody waits for here; without a store there is none.

        For whoever learns that something happened elsewhere; it is done every so often anyway.
        """
        self._books.check_open()
        if isinstance(self._books, StoredBooks):
            await self._books.recheck()

    # Control

    async def cancel(self, task_id: TaskID, reason: str = "", *, who: Who | None = None) -> bool:
        ledger = await self._books.of_task(task_id, who, "tasks.cancel")
        return await self._books.alone(ledger, partial(self._cancel, ledger, task_id, reason))

    async def cancel_children(
        self, parent: TaskID, reason: str = "", *, only: Collection[TaskID] | None = None, who: Who | None = None
    ) -> int:
        ledger = self._books.open(self._books.caller(who, "tasks.cancel_children"))
        return await self._books.alone(ledger, partial(self._cancel_children, ledger, parent, reason, only))

    async def prioritize(self, task_id: TaskID, priority: int, *, who: Who | None = None) -> bool:
        ledger = await self._books.of_task(task_id, who, "tasks.prioritize")
        return await self._books.alone(ledger, partial(self._prioritize, ledger, task_id, priority))

    async def increment_tool_count(self, task_id: TaskID, *, who: Who | None = None) -> int:
        # In memory and without the lock, because it is called for every tool call: the count is written with the
        # task's next change.
        ledger = await self._books.of_task(task_id, who, "tasks.increment_tool_count", fresh=False)
        task = ledger.tasks[task_id]
        ledger.tasks[task_id] = msgspec.structs.replace(task, tool_count=task.tool_count + 1)
        return task.tool_count + 1

    # Lifecycle

    async def mark_running(self, task_id: TaskID, *, who: Who | None = None) -> Task:
        return await self._mark(task_id, Move.START, who)

    async def mark_paused(self, task_id: TaskID, *, who: Who | None = None) -> Task:
        return await self._mark(task_id, Move.PAUSE, who)

    async def mark_resumed(self, task_id: TaskID, *, who: Who | None = None) -> Task:
        return await self._mark(task_id, Move.RESUME, who)

    async def mark_complete(self, task_id: TaskID, result: bytes = b"", *, who: Who | None = None) -> Task:
        return await self._mark(task_id, Move.COMPLETE, who, result=result)

    async def mark_failed(self, task_id: TaskID, failure: TaskFailure, *, who: Who | None = None) -> Task:
        return await self._mark(task_id, Move.FAIL, who, error=failure)

    async def acknowledge_background(self, session: Identity, task_ids: Sequence[TaskID]) -> int:
        self._books.check_open()
        require_triple(session, "tasks.acknowledge_background")
        ledger = self._books.of_session(session)
        return 0 if ledger is None else await self._books.alone(ledger, partial(self._acknowledge, ledger, task_ids))

    # Groups and patches

    async def resolve_or_create_group(self, request: GroupRequest, *, who: Who | None = None) -> TaskGroup:
        return await self._groups.resolve_or_create(request, who)

    async def group(self, group_id: TaskGroupID, *, who: Who | None = None) -> TaskGroup:
        return await self._groups.get(group_id, who)

    async def seal_group(self, group_id: TaskGroupID, *, who: Who | None = None) -> TaskGroup:
        return await self._groups.seal(group_id, who)

    async def cancel_group(
        self, group_id: TaskGroupID, reason: str = "", propagate: bool = True, *, who: Who | None = None
    ) -> bool:
        return await self._groups.cancel(group_id, reason, propagate, who)

    async def apply_group(
        self, group_id: TaskGroupID, action: GroupAction | str, *, who: Who | None = None
    ) -> TaskGroup:
        return await self._groups.apply(group_id, action, who)

    async def watch_group(self, session: Identity, group_id: TaskGroupID) -> GroupWatch:
        return await self._groups.watch(session, group_id)

    def register_retain_turn_waiter(self, session: Identity) -> RetainTurnWaiter:
        return self._groups.turn_waiter(session)

    async def create_pending_patch(self, session: Identity, patch_id: str) -> TaskPatch:
        return await self._patches.create(session, patch_id)

    async def apply_patch(self, session: Identity, patch_id: str, action: PatchAction | str) -> bool:
        return await self._patches.apply(session, patch_id, action)

    async def aclose(self) -> None:
        await self._books.aclose()

    # Changes; each runs alone in its session

    async def _spawn(self, ledger: SessionLedger, request: SpawnRequest) -> TaskHandle:
        mark = ""
        if request.idempotency_key:
            mark = fingerprint(request)
            known = await self._books.spawned_before(ledger, request.idempotency_key, mark)
            if known is not None:
                return TaskHandle(known, True)
        now = self._clock.now()
        task = _new_task(request, unix_ns(now), self._redactor)
        if task.parent_task_id is not None:
            task = await self._with_parent(ledger, task, task.parent_task_id)
        if task.group_id:
            state = await self._books.group(ledger, task.group_id, members=False)
            check_joinable(task.group_id, state.facts())
        return TaskHandle(await self._books.enter(ledger, task, mark, now))

    async def _with_parent(self, ledger: SessionLedger, task: Task, parent_id: TaskID) -> Task:
        """The new task at its place in the tree, if there is room for it."""
        try:
            parent = await self._books.task(ledger, parent_id)
        except NotFoundError:
            parent = None  # a run without a task of its own
        root = root_of(parent, parent_id)
        most = self._limits
        if not await self._books.has_fewer_children(ledger, parent_id, most.max_children):
            raise TaskLimitError("max_children", most.max_children, f"run {parent_id}")
        if not await self._books.has_smaller_tree(ledger, root, most.max_tree):
            raise TaskLimitError("max_tree", most.max_tree, f"the tree of run {root}")
        return msgspec.structs.replace(task, root_task_id=root, deadline=capped(task.deadline, parent))

    async def _cancel(self, ledger: SessionLedger, task_id: TaskID, reason: str) -> bool:
        prior = await self._books.task(ledger, task_id)
        if prior.status.is_terminal:
            return False
        takes_along = prior.propagate_on_cancel is Propagate.CASCADE
        below = of_levels(await self._books.below(ledger, task_id), reason) if takes_along else []
        now = self._clock.now()
        task = cancelled_task(prior, now)
        if below:
            await self._books.intend(ledger, (CancelTask(task_id, reason, False), *below))
        try:
            await self._books.commit_task(ledger, task, prior, announcements.cancelled(task, reason, False, now))
        except BaseException:
            if below:
                await self._books.intend(ledger, ())
            raise
        ledger.owed.extendleft(reversed(below))
        return True

    async def _cancel_children(
        self, ledger: SessionLedger, parent: TaskID, reason: str, only: Collection[TaskID] | None
    ) -> int:
        children = [
            task
            for task in await self._books.read(ledger.session, parent)
            if not task.status.is_terminal and (only is None or task.id in only)
        ]
        cascading = [task.id for task in children if task.propagate_on_cancel is Propagate.CASCADE]
        steps = of_levels([[task.id for task in children], *await self._books.below(ledger, *cascading)], reason)
        ledger.owed.extend(steps)
        return len(steps)

    async def _prioritize(self, ledger: SessionLedger, task_id: TaskID, priority: int) -> bool:
        prior = await self._books.task(ledger, task_id)
        if prior.priority == priority:
            return False
        now = self._clock.now()
        task = msgspec.structs.replace(prior, priority=priority, updated_at=unix_ns(now))
        await self._books.commit_task(ledger, task, prior, announcements.prioritised(task, prior, now))
        return True

    async def _mark(self, task_id: TaskID, move: Move, who: Who | None, **parts: Any) -> Task:
        # Read anew below, where nobody else in this process can change it.
        ledger = await self._books.of_task(task_id, who, f"tasks.{move}", fresh=False)
        return await self._books.alone(ledger, partial(self._moved, ledger, task_id, move, parts))

    async def _moved(self, ledger: SessionLedger, task_id: TaskID, move: Move, parts: dict[str, Any]) -> Task:
        prior = await self._books.task(ledger, task_id)
        status = target_of(move, prior.status, task_id)
        if "result" in parts:
            parts = {"result": redacted_result(self._redactor, parts["result"])}
        elif "error" in parts:
            parts = {"error": redacted_failure(self._redactor, parts["error"])}
        now = self._clock.now()
        task = msgspec.structs.replace(prior, status=status, updated_at=unix_ns(now), **parts)
        await self._books.commit_task(ledger, task, prior, announcements.moved(move, task, prior, now))
        return ledger.tasks[task_id]

    async def _acknowledge(self, ledger: SessionLedger, task_ids: Sequence[TaskID]) -> int:
        count = 0
        errors: list[Exception] = []
        for task_id in task_ids:
            try:
                task = await self._books.again(partial(self._acknowledge_one, ledger, task_id))
                if task is not None:
                    count += 1
                    await self._books.writer.publish(announcements.acknowledged(task, self._clock.now()))
            except NotFoundError:
                continue
            except Exception as error:  # noqa: BLE001 - joined and raised below
                errors.append(error)
        if errors:
            raise AcknowledgePublishError(count, errors)
        return count

    async def _acknowledge_one(self, ledger: SessionLedger, task_id: TaskID) -> Task | None:
        prior = await self._books.task(ledger, task_id)
        if not _is_acknowledgeable(prior):
            return None
        task = msgspec.structs.replace(prior, background_acknowledged=True)
        await self._books.commit_task(ledger, task, prior, None)
        return task


async def make(parts: RegistryParts) -> TaskRegistry:
    """A registry in this process on these parts."""
    return InProcessTaskRegistry(
        bus=parts.bus, redactor=parts.redactor, store=parts.store, clock=parts.clock, limits=parts.limits
    )


def _check_words(request: SpawnRequest) -> None:
    if request.kind not in _KINDS:
        raise InvalidRequestError("kind", f"{request.kind!r} is not one of foreground, background")
    if request.propagate_on_cancel and request.propagate_on_cancel not in _POLICIES:
        raise InvalidRequestError(
            "propagate_on_cancel", f"{request.propagate_on_cancel!r} is not one of cascade, isolate"
        )


_KINDS: frozenset[str] = frozenset(TaskKind)
_POLICIES: frozenset[str] = frozenset(Propagate)


def _new_task(request: SpawnRequest, at: int, redactor: Redactor | None) -> Task:
    return Task(
        id=new_id(),
        identity=request.identity,
        kind=TaskKind(request.kind),
        priority=request.priority,
        parent_task_id=request.parent_task_id or None,
        group_id=request.group_id,
        description=redacted_text(redactor, request.description),
        query=redacted_text(redactor, request.query),
        propagate_on_cancel=Propagate(request.propagate_on_cancel or Propagate.CASCADE),
        notify_on_complete=request.notify_on_complete,
        idempotency_key=request.idempotency_key,
        created_at=at,
        updated_at=at,
        input_artifact_ids=tuple(request.input_artifact_ids),
        deadline=request.deadline,
        retains_turn=request.retains_turn,
    )


def _tool_spawn(request: SpawnToolRequest) -> SpawnRequest:
    return SpawnRequest(
        identity=request.identity,
        kind=TaskKind.FOREGROUND,
        priority=request.priority,
        parent_task_id=request.parent_task_id,
        group_id=request.group_id,
        description=request.description or f"tool: {request.tool_name}",
        query=request.args.decode("utf-8", "replace"),
        propagate_on_cancel=request.propagate_on_cancel,
        notify_on_complete=request.notify_on_complete,
        idempotency_key=request.idempotency_key,
    )


def _is_acknowledgeable(task: Task) -> bool:
    return task.kind is TaskKind.BACKGROUND and task.status.is_terminal and not task.background_acknowledged
