"""The port of tasks: what every task registry offers, wherever it keeps them.

Isolation is by (tenant, user, session): a task of another triple is not found, exactly as if it did not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from harborage.identity import Identity, Quadruple

if TYPE_CHECKING:
    from harborage.events.bus import RunWriter
    from harborage.tasks.ends import GroupWatch, RetainTurnWaiter
    from harborage.tasks.model import (
        GroupAction,
        GroupRequest,
        PatchAction,
        SpawnRequest,
        SpawnToolRequest,
        Task,
        TaskFailure,
        TaskFilter,
        TaskGroup,
        TaskGroupID,
        TaskHandle,
        TaskID,
        TaskPatch,
        TaskSummary,
    )

Who: TypeAlias = Identity | Quadruple


@runtime_checkable
class TaskRegistry(Protocol):
    """Keeps tasks, their groups and their patches, and publishes an event for every change.

    Every verb raises RegistryClosedError after `aclose`. Verbs that take an id take `who=`, or read the ambient
    identity, and raise IdentityRequiredError without either; a task, group or patch of another (tenant, user, session)
    is not found. An event that cannot be published fails the verb; where events are kept with the change they report,
    or both are kept in memory, what the verb asked for has not happened then. A task that a run works on moves with its
    run alone: marking it is an InvalidTransitionError, and a cancel ends it as soon as its run has stopped.
    """

    async def spawn(self, request: SpawnRequest, *, write: RunWriter | None = None) -> TaskHandle:
        """A new pending task, or the one that the same request with the same idempotency key made before.

        With `write`, here and below, a run makes the change: it is committed as that run commits.

        Raises:
            IdentityRequiredError, InvalidRequestError, IdempotencyConflictError, GroupNotFoundError, GroupSealedError:
                in this order; nothing was spawned.
            TaskLimitError: its parent, or the tree, has as many tasks as it may; nothing was spawned.
        """
        ...

    async def spawn_alone(
        self, request: SpawnRequest, group: GroupRequest, *, is_awaited: bool = False, write: RunWriter | None = None
    ) -> TaskHandle:
        """As `spawn`, with the group of the request as a new one that takes no other task; one change makes both.

        With `is_awaited` the task's parent waits for the group from then on, as after `begin_wait`. Repeated, it gives
        the same task in the same group.

        Raises:
            InvalidRequestError, GroupSealedError, TaskLimitError and the others of `spawn`: nothing was made.
            WaitCycleError: it is repeated, and by now the group waits for the parent.
        """
        ...

    async def spawn_tool(self, request: SpawnToolRequest) -> TaskHandle:
        """A pending foreground task for one tool call; nothing runs it by itself."""
        ...

    async def get(self, task_id: TaskID, *, who: Who | None = None) -> Task:
        """The task as it is now.

        Raises:
            TaskNotFoundError: unknown, or another session's.
        """
        ...

    async def list(self, session: Identity, filter: TaskFilter = ...) -> list[TaskSummary]:
        """The session's tasks that pass the filter, in no promised order."""
        ...

    async def cancel(self, task_id: TaskID, reason: str = "", *, who: Who | None = None) -> bool:
        """True when this call cancelled the task; False, and no event, when it had ended already.

        A task whose policy is `cascade` takes its descendants along, whatever their own policy says; the walk does not
        go below a descendant that had ended.
        """
        ...

    async def cancel_children(
        self,
        parent: TaskID,
        reason: str = "",
        *,
        only: Collection[TaskID] | None = None,
        who: Who | None = None,
        write: RunWriter | None = None,
    ) -> int:
        """Cancel the living tasks under `parent`, or those named in `only`, each with what its policy takes along.

        One change for a whole tree; returns how many tasks it cancelled. `parent` itself is left as it is.
        """
        ...

    async def prioritize(
        self, task_id: TaskID, priority: int, *, who: Who | None = None, write: RunWriter | None = None
    ) -> bool:
        """True when the priority changed; an ended task may be re-prioritised too."""
        ...

    async def increment_tool_count(self, task_id: TaskID, *, who: Who | None = None) -> int:
        """The task's tool calls so far, this one included. No event."""
        ...

    async def mark_running(self, task_id: TaskID, *, who: Who | None = None) -> Task:
        """The task, running: from pending or paused.

        Raises:
            InvalidTransitionError: from anywhere else; so for each `mark_*`.
        """
        ...

    async def mark_paused(self, task_id: TaskID, *, who: Who | None = None) -> Task:
        """The task, paused: from running."""
        ...

    async def mark_resumed(self, task_id: TaskID, *, who: Who | None = None) -> Task:
        """The task, running again: from paused only."""
        ...

    async def mark_complete(self, task_id: TaskID, result: bytes = b"", *, who: Who | None = None) -> Task:
        """The task, complete: from running. Text that is no JSON is kept as a JSON string."""
        ...

    async def mark_failed(self, task_id: TaskID, failure: TaskFailure, *, who: Who | None = None) -> Task:
        """The task, failed: from running. A `fail_fast` group that it belongs to ends with it."""
        ...

    async def wait_ended(self, task_id: TaskID, *, who: Who | None = None) -> Task:
        """The task once it has ended; wakes by the change itself, never polls.

        Raises:
            TaskNotFoundError: at once, for an unknown or foreign task.
            RegistryClosedError: the registry closed before the task ended.
        """
        ...

    async def begin_wait(
        self, waiter: TaskID, target: TaskID | TaskGroupID, *, who: Who | None = None, write: RunWriter | None = None
    ) -> None:
        """Note that the run `waiter` waits for a task or group of the session; it waits for one at a time.

        Raises:
            WaitCycleError: what it would wait for waits for it, directly or through others; nothing was noted.
        """
        ...

    async def end_wait(self, waiter: TaskID, *, who: Who | None = None, write: RunWriter | None = None) -> None:
        """Note that the run `waiter` waits no longer; one that does not wait is left alone."""
        ...

    async def acknowledge_background(self, session: Identity, task_ids: Sequence[TaskID]) -> int:
        """How many of these were background tasks of the session that had ended and were not yet acknowledged.

        Raises:
            AcknowledgePublishError: some events did not go out; its `count` were acknowledged.
        """
        ...

    async def resolve_or_create_group(self, request: GroupRequest, *, who: Who | None = None) -> TaskGroup:
        """The session's group with this id as it is, or a new open one.

        Raises:
            IdentityRequiredError: the caller is not the session that the request names.
            GroupNotFoundError: the id belongs to another session.
        """
        ...

    async def group(self, group_id: TaskGroupID, *, who: Who | None = None) -> TaskGroup:
        """The group as it is now, with its members in the order they joined.

        Raises:
            GroupNotFoundError: unknown, or another session's.
        """
        ...

    async def seal_group(self, group_id: TaskGroupID, *, who: Who | None = None) -> TaskGroup:
        """The group, taking no more members; it ends at once when it has members and all of them have ended.

        Raises:
            GroupInvalidTransitionError: it was not open.
        """
        ...

    async def cancel_group(
        self, group_id: TaskGroupID, reason: str = "", propagate: bool = True, *, who: Who | None = None
    ) -> bool:
        """True when this call cancelled the group; False when it had ended already. Members go along on `propagate`."""
        ...

    async def apply_group(
        self, group_id: TaskGroupID, action: GroupAction | str, *, who: Who | None = None
    ) -> TaskGroup:
        """The group after `seal`, `cancel` or `resolve`.

        Raises:
            GroupNotSealedError: `resolve` on an open group.
            GroupInvalidTransitionError: the group has ended, or the action is unknown.
        """
        ...

    async def watch_group(self, session: Identity, group_id: TaskGroupID) -> GroupWatch:
        """A watch that delivers how the group ends; it holds the completion already when the group has ended.

        Raises:
            GroupNotFoundError: unknown, or another session's.
        """
        ...

    def register_retain_turn_waiter(self, session: Identity) -> RetainTurnWaiter:
        """A waiter for the next group of the session to end that holds its owner's turn; all waiters are woken."""
        ...

    async def create_pending_patch(self, session: Identity, patch_id: str) -> TaskPatch:
        """The session's patch with this id: as it is, or new and pending. No event."""
        ...

    async def apply_patch(self, session: Identity, patch_id: str, action: PatchAction | str) -> bool:
        """True when this call decided the patch; False when it had been decided the same way before.

        Raises:
            PatchNotFoundError: unknown, or another session's.
            GroupInvalidTransitionError: it had been decided the other way.
        """
        ...

    def on_ended(self, listener: Callable[[Quadruple], None]) -> Callable[[], None]:
        """Call `listener` with the run of each task that this process ends from now on; returns what ends that.

        It is called synchronously once the task has ended, however it did, and must not raise.
        """
        ...

    async def aclose(self) -> None:
        """End the registry: watchers close without a value, those who wait for a task are turned away."""
        ...
