"""The values of tasks: a task, a group of tasks, a patch, and the requests that create them.

Values only; the rules that move them live in `rules`. Times named `*_at` on a task are unix
nanoseconds; on a group, and in its completion, they are datetimes in UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import force_setattr

from harborage.errors import one_of
from harborage.identity import Identity, Quadruple

TaskID: TypeAlias = str
TaskGroupID: TypeAlias = str


class TaskKind(StrEnum):
    """Whether a user is waiting in the conversation (`foreground`) or not (`background`)."""

    FOREGROUND = "foreground"
    BACKGROUND = "background"


class TaskStatus(StrEnum):
    """The status of a task; `complete`, `failed` and `cancelled` are final."""

    PENDING = "pending"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETE = "complete"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        """Whether nothing can follow."""
        return self in _TERMINAL


_TERMINAL: Final = frozenset({TaskStatus.COMPLETE, TaskStatus.FAILED, TaskStatus.CANCELLED})


class GroupStatus(StrEnum):
    """The status of a group: `open` takes members, `sealed` takes none, the other two are final."""

    OPEN = "open"
    SEALED = "sealed"
    COMPLETED = "completed"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        """Whether nothing can follow."""
        return self is GroupStatus.COMPLETED or self is GroupStatus.CANCELLED


class GroupAction(StrEnum):
    """What `apply_group` can do to a group."""

    SEAL = "seal"
    CANCEL = "cancel"
    RESOLVE = "resolve"


class PatchStatus(StrEnum):
    """The status of a patch; a decision is final."""

    PENDING = "pending"
    APPLIED = "applied"
    REJECTED = "rejected"


class PatchAction(StrEnum):
    """What can be decided about a pending patch."""

    ACCEPT = "accept"
    REJECT = "reject"


class Propagate(StrEnum):
    """What cancelling a task does to the tasks below it: cancel them too, or leave them alone."""

    CASCADE = "cascade"
    ISOLATE = "isolate"


class TaskFailure(msgspec.Struct, frozen=True):
    """Why a task failed: a stable code for machines, a redacted message for people."""

    code: str = ""
    message: str = ""


class Task(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One piece of work and its status.

    `result` is JSON text, present once the task is complete; `error` once it has failed. `created_at` and `updated_at`
    are unix nanoseconds. `tool_count` counts the tool calls made for the task. `root_task_id` is the task at the top of
    its tree, "" for that task itself. `deadline` is never later than the parent's. `retains_turn` says that the parent
    waits for it and has no use for it afterwards. `agent` names the agent whose run it is. `output` is the form of its
    answer, while its run is started.
    """

    id: TaskID
    identity: Quadruple
    kind: TaskKind
    status: TaskStatus = TaskStatus.PENDING
    priority: int = 0
    parent_task_id: TaskID | None = None
    group_id: TaskGroupID = ""
    description: str = ""
    query: str = ""
    result: bytes | None = None
    error: TaskFailure | None = None
    propagate_on_cancel: Propagate = Propagate.CASCADE
    notify_on_complete: bool = False
    idempotency_key: str = ""
    created_at: int = 0
    updated_at: int = 0
    tool_count: int = 0
    input_artifact_ids: tuple[str, ...] = ()
    background_acknowledged: bool = False
    root_task_id: TaskID = ""
    deadline: datetime | None = None
    retains_turn: bool = False
    agent: str = ""
    tags: Mapping[str, str] = {}
    output: Any = None


class TaskSummary(msgspec.Struct, frozen=True):
    """The short form of a task that `list` gives. `updated_at` is unix nanoseconds."""

    id: TaskID
    status: TaskStatus
    kind: TaskKind
    priority: int
    updated_at: int
    retains_turn: bool = False


class TaskFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which tasks to list; None leaves a field open.

    Raises:
        InvalidOptionError: there is no such status or kind.
    """

    status: TaskStatus | str | None = None
    kind: TaskKind | str | None = None
    parent: TaskID | None = None

    def __post_init__(self) -> None:
        if self.status is not None:
            force_setattr(self, "status", one_of(TaskStatus, self.status, "status"))
        if self.kind is not None:
            force_setattr(self, "kind", one_of(TaskKind, self.kind, "kind"))


class SpawnRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to spawn, for whom. The run of `identity` may be empty.

    `kind` has no default on purpose: an empty one is refused. An empty `propagate_on_cancel` means `cascade`, an empty
    `idempotency_key` means that every request makes a new task. A `deadline` after the parent's becomes the parent's.
    `mark` tells two requests apart that are the same otherwise; it is not kept. `output` is the form of the answer that
    the run is asked for, which the run keeps.
    """

    identity: Quadruple
    kind: TaskKind | str = ""
    priority: int = 0
    parent_task_id: TaskID | None = None
    group_id: TaskGroupID = ""
    description: str = ""
    query: str = ""
    propagate_on_cancel: Propagate | str = ""
    notify_on_complete: bool = False
    idempotency_key: str = ""
    input_artifact_ids: tuple[str, ...] = ()
    deadline: datetime | None = None
    retains_turn: bool = False
    agent: str = ""
    tags: Mapping[str, str] = {}
    mark: str = ""
    output: Any = None


class SpawnToolRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call to be kept as a task; `args` is JSON text. The default description is `tool: <name>`."""

    identity: Quadruple
    tool_name: str = ""
    args: bytes = b"{}"
    description: str = ""
    priority: int = 0
    parent_task_id: TaskID | None = None
    group_id: TaskGroupID = ""
    propagate_on_cancel: Propagate | str = ""
    notify_on_complete: bool = False
    idempotency_key: str = ""


class TaskHandle(msgspec.Struct, frozen=True):
    """The answer to a spawn: the task's id, and whether an earlier request with the same key had made it."""

    id: TaskID
    reused: bool = False


class GroupRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which group to find or create; an empty `id` asks for a new group under a fresh id.

    `retain_turn` says that the owner's turn waits for the group; `fail_fast` ends the group when one member fails.
    """

    session: Identity
    id: TaskGroupID = ""
    owner_task_id: TaskID = ""
    retain_turn: bool = False
    fail_fast: bool = False
    description: str = ""


class TaskGroup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A group of tasks as it stood when it was read; `members` are in the order they joined."""

    id: TaskGroupID
    session: Identity
    owner_task_id: TaskID = ""
    status: GroupStatus = GroupStatus.OPEN
    retain_turn: bool = False
    fail_fast: bool = False
    description: str = ""
    members: tuple[TaskID, ...] = ()
    created_at: datetime
    sealed_at: datetime | None = None
    resolved_at: datetime | None = None
    reason: str = ""


class MemberOutcome(msgspec.Struct, frozen=True):
    """How one member stood when its group ended. `result` is JSON text; a member left running has neither part."""

    task_id: TaskID
    status: TaskStatus
    result: bytes | None = None
    error: TaskFailure | None = None


class GroupCompletion(msgspec.Struct, frozen=True, kw_only=True):
    """How a group ended; there is exactly one for each group that ends. `members` are in the order they joined."""

    group_id: TaskGroupID
    session: Identity
    owner_task_id: TaskID = ""
    final_status: GroupStatus
    resolved_at: datetime
    members: tuple[MemberOutcome, ...] = ()
    reason: str = ""


class TaskPatch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A change that waits for a person's decision, known by an id that is unique in its session."""

    id: str
    session: Identity
    status: PatchStatus = PatchStatus.PENDING
    created_at: datetime
    decided_at: datetime | None = None
