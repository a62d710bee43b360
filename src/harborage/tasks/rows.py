"""Tasks, groups and patches as rows of the store of record, and the way back. Pure.

A task is its run's row. The columns hold what lists show; the whole of what was asked, where that is more, and what
the task ended with are two small documents beside them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from harborage import codec
from harborage.store import GroupRow, NewRun, RunRow, Status
from harborage.store.commit import about
from harborage.store.rows import GroupStatus as RowGroupStatus
from harborage.store.rows import PatchRow
from harborage.store.tags import tags_of, text_of
from harborage.store.times import micros, moment
from harborage.tasks.errors import TaskCorruptError
from harborage.tasks.model import (
    GroupStatus,
    MemberOutcome,
    PatchAction,
    PatchStatus,
    Propagate,
    Task,
    TaskFailure,
    TaskGroup,
    TaskID,
    TaskKind,
    TaskPatch,
    TaskStatus,
)

if TYPE_CHECKING:
    from harborage.tasks.requests import TaskLimits

_T = TypeVar("_T")

_NS: Final = 1_000


_NOTHING: Final = msgspec.Raw(b"")


class _Asked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was asked of a task beside its row; a text that the row shows whole is None."""

    query: str | None = None
    description: str | None = None
    artifacts: tuple[str, ...] = ()
    run: str = ""


class _Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a task ended with."""

    result: msgspec.Raw = _NOTHING
    error: TaskFailure | None = None


_NOTHING_ASKED: Final = _Asked()
_NO_OUTCOME: Final = _Outcome()


def goal_of(task: Task) -> str:
    """What a run of the task works towards."""
    return task.query or task.description or task.id


def new_run(task: Task, mark: str, limits: TaskLimits) -> NewRun:
    """The row of a new task; `mark` is the fingerprint of its request."""
    goal = goal_of(task)
    asked = _Asked(
        query=None if task.query == about(goal) else task.query,
        description=None if task.description == about(task.description) else task.description,
        artifacts=task.input_artifact_ids,
        run=task.identity.run_id,
    )
    has_parent = task.parent_task_id is not None
    return NewRun(
        run_id=task.id,
        who=task.identity.identity,
        parent=task.parent_task_id or "",
        root=task.root_task_id,
        group=task.group_id,
        kind=str(task.kind),
        priority=task.priority,
        description=task.description,
        goal=goal,
        asked=b"" if asked == _NOTHING_ASKED else codec.encode(asked),
        deadline=micros(task.deadline),
        tags=text_of(task.tags),
        key=task.idempotency_key,
        fingerprint=mark,
        is_cascading=task.propagate_on_cancel is Propagate.CASCADE,
        notifies=task.notify_on_complete,
        retains_turn=task.retains_turn,
        max_children=limits.max_children if has_parent else 0,
        max_tree=limits.max_tree if has_parent else 0,
    )


def task_of(row: RunRow) -> Task:
    """The task of a whole row.

    Raises:
        TaskCorruptError: a document of it cannot be read.
    """
    asked = _decoded(row, row.asked, _Asked) if row.asked else _NOTHING_ASKED
    outcome = _decoded(row, row.outcome, _Outcome) if row.outcome else _NO_OUTCOME
    return Task(
        id=row.run_id,
        identity=row.who.with_run(asked.run),
        kind=TaskKind(row.kind or TaskKind.FOREGROUND),
        status=TaskStatus(row.status),
        priority=row.priority,
        parent_task_id=row.parent or None,
        group_id=row.group,
        description=row.description if asked.description is None else asked.description,
        query=row.about if asked.query is None else asked.query,
        result=bytes(outcome.result) or None,
        error=outcome.error,
        propagate_on_cancel=Propagate.CASCADE if row.is_cascading else Propagate.ISOLATE,
        notify_on_complete=row.notifies,
        idempotency_key=row.key,
        created_at=row.created_at * _NS,
        updated_at=row.updated_at * _NS,
        tool_count=row.tool_count,
        input_artifact_ids=asked.artifacts,
        background_acknowledged=row.is_acknowledged,
        root_task_id=row.root,
        deadline=None if row.deadline is None else moment(row.deadline),
        retains_turn=row.retains_turn,
        agent=row.agent,
        tags=tags_of(row.tags),
    )


def member_of(run_id: str, status: Status, outcome: bytes) -> MemberOutcome:
    """How a run ended as a member of its group, by what its row was ended with."""
    kept = codec.decode(outcome, _Outcome) if outcome else _NO_OUTCOME
    return MemberOutcome(run_id, TaskStatus(status), bytes(kept.result) or None, kept.error)


def outcome_of_result(result: bytes) -> bytes:
    """What is kept of a result that is JSON text, or of none."""
    return codec.encode(_Outcome(result=msgspec.Raw(result))) if result else b""


def outcome_of_failure(failure: TaskFailure) -> bytes:
    """What is kept of a failure."""
    return codec.encode(_Outcome(error=failure))


def group_of(row: GroupRow, members: Iterable[TaskID] = ()) -> TaskGroup:
    """A group as its row has it. One that is ending takes no members any more, like a sealed one."""
    is_ending = row.status is RowGroupStatus.ENDING
    return TaskGroup(
        id=row.group_id,
        session=row.who,
        owner_task_id=row.owner,
        status=GroupStatus.SEALED if is_ending else GroupStatus(row.status),
        retain_turn=row.retains_turn,
        fail_fast=row.fails_fast,
        description=row.description,
        members=tuple(members),
        created_at=moment(row.created_at),
        sealed_at=None if row.sealed_at is None else moment(row.sealed_at),
        resolved_at=None if row.ended_at is None else moment(row.ended_at),
        reason=row.reason,
    )


def members_document(members: Sequence[MemberOutcome]) -> bytes:
    """How the members of a group stood, for one that ended before all of them had."""
    return codec.encode(members)


def kept_members(row: GroupRow) -> tuple[MemberOutcome, ...]:
    """How the members of such a group stood when it ended.

    Raises:
        TaskCorruptError: it cannot be read.
    """
    try:
        return tuple(codec.decode(row.outcome, list[MemberOutcome]))
    except (msgspec.MsgspecError, ValueError) as error:
        raise TaskCorruptError("group", row.group_id, str(error)) from error


def patch_of(row: PatchRow) -> TaskPatch:
    """A patch as its row has it."""
    return TaskPatch(
        id=row.patch_id,
        session=row.who,
        status=_PATCH_STATUSES[row.decision],
        created_at=moment(row.created_at),
        decided_at=None if row.decided_at is None else moment(row.decided_at),
    )


_PATCH_STATUSES: Final = {
    "": PatchStatus.PENDING,
    PatchAction.ACCEPT: PatchStatus.APPLIED,
    PatchAction.REJECT: PatchStatus.REJECTED,
}


def _decoded(row: RunRow, document: bytes, type: type[_T]) -> _T:
    try:
        value: _T = codec.decode(document, type)
    except (msgspec.MsgspecError, ValueError) as error:
        raise TaskCorruptError("task", row.run_id, str(error)) from error
    return value
