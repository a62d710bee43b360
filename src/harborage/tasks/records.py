"""How tasks, groups and patches look in a state store.

Each has slots of its own: the run part of the slot is the task's, group's or patch's id. Every write has an event id
that any other writer's next write of the same thing would have too, and names its writer, so that of two processes that
change it at once one is refused, even when both would write the same. An end has a slot to itself, which is written
once and counts before all others: no writer that comes late can undo it. The little that may change of an ended task
lies beside its end.
Membership is written with the member, not with the group, so a group's record does not grow until it is sealed.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final, TypeVar

import msgspec

from harborage import codec
from harborage.identity import Identity, Quadruple
from harborage.ids import new_id
from harborage.state import StateRecord
from harborage.tasks.errors import TaskCorruptError
from harborage.tasks.ledger import FollowUp
from harborage.tasks.model import GroupCompletion, PatchStatus, Task, TaskGroup, TaskID, TaskPatch, TaskStatus

__all__ = [
    "AFTER_KIND",
    "ENDED_KIND",
    "GROUP_ENDED_KIND",
    "GROUP_KIND",
    "KEY_KIND",
    "OWED_KIND",
    "OWNER_KIND",
    "PATCH_KIND",
    "TASK_KIND",
    "WAIT_KIND",
    "HeldKey",
    "KeptTask",
    "StoredGroup",
    "StoredTask",
    "Write",
    "after_end",
    "decode_after",
    "decode_group",
    "decode_key",
    "decode_owed",
    "decode_owner",
    "decode_patch",
    "decode_task",
    "decode_wait",
    "group_write",
    "key_record",
    "owed_record",
    "owner_record",
    "patch_write",
    "task_write",
    "wait_record",
]

TASK_KIND: Final = "task.lifecycle"
ENDED_KIND: Final = "task.ended"
AFTER_KIND: Final = "task.after_end"
GROUP_KIND: Final = "task.group"
GROUP_ENDED_KIND: Final = "task.group_ended"
PATCH_KIND: Final = "task.patch"
KEY_KIND: Final = "task.key"
OWNER_KIND: Final = "task.group_owner"
OWED_KIND: Final = "task.owed"
WAIT_KIND: Final = "task.wait"

T = TypeVar("T")


class StoredTask(msgspec.Struct, frozen=True, omit_defaults=True):
    """A task as it is stored; `fingerprint` is that of the request which its idempotency key stands for.

    `revision` counts how often it was written, `by` is the process that wrote it last.
    """

    task: Task
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    fingerprint: str = ""
    revision: int = 0
    by: str = ""


class StoredAfter(msgspec.Struct, frozen=True, omit_defaults=True):
    """What has changed of a task since it ended."""

    priority: int = 0
    background_acknowledged: bool = False
    tool_count: int = 0
    updated_at: int = 0
    revision: int = 0
    by: str = ""


class KeptTask(msgspec.Struct, frozen=True):
    """A task as a store has it."""

    task: Task
    fingerprint: str = ""
    revision: int = 0


class StoredGroup(msgspec.Struct, frozen=True, omit_defaults=True):
    """A group as it is stored. `members` are there once it is sealed, `outcomes` once it has ended."""

    group: TaskGroup
    outcomes: tuple[tuple[TaskID, TaskStatus], ...] = ()
    by: str = ""


class StoredPatch(msgspec.Struct, frozen=True, omit_defaults=True):
    """A patch as it is stored."""

    patch: TaskPatch
    by: str = ""


class HeldKey(msgspec.Struct, frozen=True):
    """What an idempotency key stands for: a request, by its fingerprint, and the task that it made."""

    fingerprint: str
    task_id: TaskID


class Write(msgspec.Struct, frozen=True):
    """A record to save, and the one to put back when the change does not happen; None empties the slot again."""

    record: StateRecord
    prior: StateRecord | None = None


def task_write(task: Task, prior: Task | None, fingerprint: str, revision: int = 0, *, by: str = "") -> Write:
    """The change of a task from `prior` at this revision, or from nothing."""
    if prior is None:
        return Write(_task_record(task, fingerprint, 0, by))
    if prior.status.is_terminal:
        restored = msgspec.structs.replace(_after_record(prior, revision, by), event_id=new_id())
        return Write(_after_record(task, revision + 1, by), restored)
    before = None if task.status.is_terminal else _task_record(prior, fingerprint, revision, by)
    return Write(_task_record(task, fingerprint, revision + 1, by), before)


def group_write(
    group: TaskGroup, prior: TaskGroup | None, completion: GroupCompletion | None = None, *, by: str = ""
) -> Write:
    """The change of a group from `prior`, or from nothing."""
    before = None if prior is None or group.status.is_terminal else _group_record(prior, None, by)
    return Write(_group_record(group, completion, by), before)


def patch_write(patch: TaskPatch, prior: TaskPatch | None, *, by: str = "") -> Write:
    """The change of a patch from `prior`, or from nothing."""
    return Write(_patch_record(patch, by), None if prior is None else _patch_record(prior, by))


def key_record(session: Identity, key: str, held: HeldKey | None = None) -> StateRecord:
    """The record of an idempotency key; it is written once."""
    kind = f"{KEY_KIND}:{sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()}"
    return StateRecord(kind, session.with_run(""), kind, b"" if held is None else codec.encode(held))


def owner_record(place: Quadruple, group_id: str, session: Identity | None = None) -> StateRecord:
    """The record that says whose a group id is; it is written once."""
    kind = f"{OWNER_KIND}:{group_id}"
    return StateRecord(kind, place, kind, b"" if session is None else codec.encode(session))


def owed_record(session: Identity, steps: tuple[FollowUp, ...]) -> StateRecord:
    """The record of what follows from a change and still has to be carried out."""
    return StateRecord(new_id(), session.with_run(""), OWED_KIND, codec.encode(steps))


def wait_record(session: Identity, waiter: TaskID, target: str) -> StateRecord:
    """The record of what a run waits for."""
    return StateRecord(new_id(), session.with_run(waiter), WAIT_KIND, codec.encode(target))


def decode_wait(data: bytes) -> str:
    """What a run waits for."""
    return _decoded(data, str, WAIT_KIND)


def decode_task(data: bytes) -> KeptTask:
    """A stored task.

    Raises:
        TaskCorruptError: it cannot be read; so for each of these.
    """
    stored = _decoded(data, StoredTask, TASK_KIND)
    task: Task = stored.task
    if not isinstance(stored.result, msgspec.UnsetType):
        task = msgspec.structs.replace(task, result=bytes(stored.result))
    elif task.status is TaskStatus.COMPLETE:
        task = msgspec.structs.replace(task, result=b"")
    return KeptTask(task, stored.fingerprint, stored.revision)


def decode_after(data: bytes) -> StoredAfter:
    """What has changed of a task since it ended."""
    return _decoded(data, StoredAfter, AFTER_KIND)


def after_end(ended: KeptTask, after: StoredAfter) -> KeptTask:
    """The ended task with what has changed since."""
    task = msgspec.structs.replace(
        ended.task,
        priority=after.priority,
        background_acknowledged=after.background_acknowledged,
        tool_count=after.tool_count,
        updated_at=after.updated_at,
    )
    return KeptTask(task, ended.fingerprint, after.revision)


def decode_group(data: bytes) -> StoredGroup:
    """A stored group; while it is open its members are found by their own records."""
    return _decoded(data, StoredGroup, GROUP_KIND)


def decode_patch(data: bytes) -> TaskPatch:
    """A stored patch."""
    return _decoded(data, StoredPatch, PATCH_KIND).patch


def decode_key(data: bytes) -> HeldKey:
    """What a key stands for."""
    return _decoded(data, HeldKey, KEY_KIND)


def decode_owner(data: bytes) -> Identity:
    """Whose a group id is."""
    return _decoded(data, Identity, OWNER_KIND)


def decode_owed(data: bytes) -> tuple[FollowUp, ...]:
    """What is owed, in order."""
    return _decoded(data, tuple[FollowUp, ...], OWED_KIND)


def _decoded(data: bytes, kind: type[T], name: str) -> T:
    try:
        found: T = codec.decode(data, kind)
    except msgspec.DecodeError as error:
        raise TaskCorruptError(name, "", str(error)) from error
    return found


def _task_record(task: Task, fingerprint: str, revision: int, by: str) -> StateRecord:
    result = msgspec.Raw(task.result) if task.result else msgspec.UNSET
    bare = msgspec.structs.replace(task, result=None)
    data = codec.encode(StoredTask(bare, result, fingerprint, revision, by), "task")
    who = task.identity
    slot = Quadruple(who.tenant_id, who.user_id, who.session_id, task.id)
    if task.status.is_terminal:
        return StateRecord(f"task/{task.id}/ended", slot, ENDED_KIND, data)
    return StateRecord(f"task/{task.id}/{revision}", slot, TASK_KIND, data)


def _after_record(task: Task, revision: int, by: str) -> StateRecord:
    after = StoredAfter(task.priority, task.background_acknowledged, task.tool_count, task.updated_at, revision, by)
    who = task.identity
    slot = Quadruple(who.tenant_id, who.user_id, who.session_id, task.id)
    return StateRecord(f"task/{task.id}/after/{revision}", slot, AFTER_KIND, codec.encode(after))


def _group_record(group: TaskGroup, completion: GroupCompletion | None, by: str) -> StateRecord:
    outcomes = () if completion is None else tuple((member.task_id, member.status) for member in completion.members)
    if completion is not None:
        group = msgspec.structs.replace(group, members=())
    data = codec.encode(StoredGroup(group, outcomes, by), "group")
    slot = group.session.with_run(group.id)
    if group.status.is_terminal:
        return StateRecord(f"group/{group.id}/ended", slot, GROUP_ENDED_KIND, data)
    return StateRecord(f"group/{group.id}/{group.status}", slot, GROUP_KIND, data)


def _patch_record(patch: TaskPatch, by: str) -> StateRecord:
    stand = "pending" if patch.status is PatchStatus.PENDING else "decided"
    slot = patch.session.with_run(patch.id)
    return StateRecord(f"patch/{patch.id}/{stand}", slot, PATCH_KIND, codec.encode(StoredPatch(patch, by), "patch"))
