"""Bodies of the events of tasks, groups and patches."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from harborage.events.event import SafePayload, Triple, wire_key


class TaskSpawnedPayload(SafePayload, frozen=True):
    """A task was created; an idempotent reuse creates none."""

    task_id: str
    kind: str
    parent_task_id: str | None = None
    priority: int = 0
    idempotency_key: str = ""


class TaskStartedPayload(SafePayload, frozen=True):
    """A task began to run, coming from `prior_state`."""

    task_id: str
    prior_state: str


class TaskPausedPayload(SafePayload, frozen=True):
    """A running task was paused."""

    task_id: str


class TaskResumedPayload(SafePayload, frozen=True):
    """A paused task was resumed explicitly."""

    task_id: str


class TaskCompletedPayload(SafePayload, frozen=True):
    """A task reached its goal."""

    task_id: str


class TaskFailedPayload(SafePayload, frozen=True):
    """A task ended without reaching its goal."""

    task_id: str
    error_code: str


class TaskCancelledPayload(SafePayload, frozen=True):
    """A task was cancelled; `cascaded` if the request named another task, above it."""

    task_id: str
    reason: str
    cascaded: bool = False


class TaskPrioritisedPayload(SafePayload, frozen=True):
    """A task's priority changed."""

    task_id: str
    prior_priority: int
    new_priority: int


class TaskGroupCreatedPayload(SafePayload, frozen=True):
    """A new group of tasks."""

    group_id: str
    owner_task_id: str
    retain_turn: bool = False
    fail_fast: bool = False
    description: str = ""


class TaskGroupSealedPayload(SafePayload, frozen=True):
    """A group takes no further members. `sealed_at` is in unix nanoseconds."""

    group_id: str
    members: tuple[str, ...]
    sealed_at: int


class TaskMemberFailure(msgspec.Struct, frozen=True, gc=False, rename=wire_key):
    """Why a member failed."""

    code: str
    message: str = ""


class TaskGroupMember(msgspec.Struct, frozen=True, gc=False, rename=wire_key):
    """How one member ended. `result` is JSON data; wrap stored JSON text in `msgspec.Raw`."""

    task_id: str
    status: str
    result: Any = None
    error: TaskMemberFailure | None = None


class TaskGroupCompletion(msgspec.Struct, frozen=True, gc=False, rename=wire_key):
    """How a group ended; `session_id` holds the whole triple."""

    group_id: str
    session_id: Triple
    owner_task_id: str
    final_status: str
    resolved_at: datetime
    members: tuple[TaskGroupMember, ...] = ()
    reason: str = ""


class TaskGroupResolvedPayload(SafePayload, frozen=True):
    """Every member of a sealed group has ended. Results were redacted when their tasks completed."""

    completion: TaskGroupCompletion


class TaskGroupCancelledPayload(SafePayload, frozen=True):
    """A group was cancelled, or failed fast."""

    completion: TaskGroupCompletion


class TaskPatchAppliedPayload(SafePayload, frozen=True):
    """A patch was accepted."""

    patch_id: str


class TaskPatchRejectedPayload(SafePayload, frozen=True):
    """A patch was rejected."""

    patch_id: str


class TaskBackgroundAcknowledgedPayload(SafePayload, frozen=True):
    """A caller acknowledged a finished background task."""

    task_id: str
