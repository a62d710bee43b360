"""How tasks, groups and patches look in a state store.

Each has a slot of its own: the run part of the slot is the task's, group's or patch's id. Membership is written with
the member, not with the group, so a group's record does not grow with its members until it ends.
"""

from __future__ import annotations

from typing import Final

import msgspec

from harborage import codec
from harborage.identity import Quadruple
from harborage.ids import new_id
from harborage.state import StateRecord
from harborage.tasks.model import GroupCompletion, Task, TaskGroup, TaskID, TaskPatch, TaskStatus

__all__ = [
    "GROUP_KIND",
    "PATCH_KIND",
    "TASK_KIND",
    "StoredGroup",
    "StoredTask",
    "Write",
    "decode_group",
    "decode_patch",
    "decode_task",
    "group_write",
    "patch_write",
    "task_write",
]

TASK_KIND: Final = "task.lifecycle"
GROUP_KIND: Final = "task.group"
PATCH_KIND: Final = "task.patch"


class StoredTask(msgspec.Struct, frozen=True, omit_defaults=True):
    """A task as it is stored; `fingerprint` is that of the request which its idempotency key stands for."""

    task: Task
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    fingerprint: str = ""


class StoredGroup(msgspec.Struct, frozen=True, omit_defaults=True):
    """A group as it is stored; `outcomes` is how its members stood when it ended, and empty before."""

    group: TaskGroup
    outcomes: tuple[tuple[TaskID, TaskStatus], ...] = ()


class Write(msgspec.Struct, frozen=True):
    """A record to save, and the one to put back when the change does not happen; None empties the slot again."""

    record: StateRecord
    prior: StateRecord | None = None


def task_write(task: Task, prior: Task | None, fingerprint: str) -> Write:
    """The change of a task from `prior`, or from nothing."""
    before = None if prior is None else _task_record(prior, fingerprint)
    return Write(_task_record(task, fingerprint), before)


def group_write(group: TaskGroup, prior: TaskGroup | None, completion: GroupCompletion | None = None) -> Write:
    """The change of a group from `prior`, or from nothing."""
    before = None if prior is None else _group_record(prior, None)
    return Write(_group_record(group, completion), before)


def patch_write(patch: TaskPatch, prior: TaskPatch | None) -> Write:
    """The change of a patch from `prior`, or from nothing."""
    return Write(_patch_record(patch), None if prior is None else _patch_record(prior))


def decode_task(data: bytes) -> tuple[Task, str]:
    """A stored task, and the fingerprint of its request."""
    stored = codec.decode(data, StoredTask)
    task: Task = stored.task
    if not isinstance(stored.result, msgspec.UnsetType):
        task = msgspec.structs.replace(task, result=bytes(stored.result))
    elif task.status is TaskStatus.COMPLETE:
        task = msgspec.structs.replace(task, result=b"")
    return task, stored.fingerprint


def decode_group(data: bytes) -> StoredGroup:
    """A stored group; its members are found by their own records while it lives."""
    stored: StoredGroup = codec.decode(data, StoredGroup)
    return stored


def decode_patch(data: bytes) -> TaskPatch:
    """A stored patch."""
    stored: TaskPatch = codec.decode(data, TaskPatch)
    return stored


def _task_record(task: Task, fingerprint: str) -> StateRecord:
    result = msgspec.Raw(task.result) if task.result else msgspec.UNSET
    bare = msgspec.structs.replace(task, result=None)
    data = codec.encode(StoredTask(bare, result, fingerprint), "task")
    who = task.identity
    return StateRecord(new_id(), Quadruple(who.tenant_id, who.user_id, who.session_id, task.id), TASK_KIND, data)


def _group_record(group: TaskGroup, completion: GroupCompletion | None) -> StateRecord:
    bare = msgspec.structs.replace(group, members=())
    outcomes = () if completion is None else tuple((member.task_id, member.status) for member in completion.members)
    data = codec.encode(StoredGroup(bare, outcomes), "group")
    return StateRecord(new_id(), group.session.with_run(group.id), GROUP_KIND, data)


def _patch_record(patch: TaskPatch) -> StateRecord:
    return StateRecord(new_id(), patch.session.with_run(patch.id), PATCH_KIND, codec.encode(patch, "patch"))
