"""The event of each change, built from the values before and after it.

Pure. A task's events carry the task's own quadruple, those of groups and patches the session with an empty run.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, assert_never

import msgspec

from harborage.events import Event, EventType, Payload, Triple, unix_ns
from harborage.events.payloads import tasks as payloads
from harborage.tasks.model import GroupCompletion, GroupStatus, MemberOutcome, PatchStatus, Task, TaskGroup, TaskPatch
from harborage.tasks.rules import Move

if TYPE_CHECKING:
    from harborage.identity import Identity


def spawned(task: Task, at: datetime) -> Event:
    """A task was created."""
    body = payloads.TaskSpawnedPayload(task.id, task.kind, task.parent_task_id, task.priority, task.idempotency_key)
    return Event(EventType.TASK_SPAWNED, task.identity, body, at)


def started(task: Task, prior: Task, at: datetime) -> Event:
    """A pending or paused task began to run."""
    return Event(EventType.TASK_STARTED, task.identity, payloads.TaskStartedPayload(task.id, prior.status), at)


def paused(task: Task, at: datetime) -> Event:
    """A running task was paused."""
    return Event(EventType.TASK_PAUSED, task.identity, payloads.TaskPausedPayload(task.id), at)


def resumed(task: Task, at: datetime) -> Event:
    """A paused task was resumed explicitly."""
    return Event(EventType.TASK_RESUMED, task.identity, payloads.TaskResumedPayload(task.id), at)


def completed(task: Task, at: datetime) -> Event:
    """A task reached its end well."""
    return Event(EventType.TASK_COMPLETED, task.identity, payloads.TaskCompletedPayload(task.id), at)


def failed(task: Task, at: datetime) -> Event:
    """A task failed."""
    code = task.error.code if task.error is not None else ""
    return Event(EventType.TASK_FAILED, task.identity, payloads.TaskFailedPayload(task.id, code), at)


def cancelled(task: Task, reason: str, is_cascaded: bool, at: datetime) -> Event:
    """A task was cancelled, by name or along with something above it."""
    body = payloads.TaskCancelledPayload(task.id, reason, is_cascaded)
    return Event(EventType.TASK_CANCELLED, task.identity, body, at)


def moved(move: Move, task: Task, prior: Task, at: datetime) -> Event:
    """A task went from `prior` to what it is by `move`; for a cancellation `cancelled` knows more."""
    match move:
        case Move.START:
            return started(task, prior, at)
        case Move.PAUSE:
            return paused(task, at)
        case Move.RESUME:
            return resumed(task, at)
        case Move.COMPLETE:
            return completed(task, at)
        case Move.FAIL:
            return failed(task, at)
        case Move.CANCEL:
            return cancelled(task, "", False, at)
        case _:
            assert_never(move)


def prioritised(task: Task, prior: Task, at: datetime) -> Event:
    """A task's priority changed."""
    body = payloads.TaskPrioritisedPayload(task.id, prior.priority, task.priority)
    return Event(EventType.TASK_PRIORITISED, task.identity, body, at)


def acknowledged(task: Task, at: datetime) -> Event:
    """Somebody took note of an ended background task."""
    body = payloads.TaskBackgroundAcknowledgedPayload(task.id)
    return Event(EventType.TASK_BACKGROUND_ACKNOWLEDGED, task.identity, body, at)


def group_created(group: TaskGroup) -> Event:
    """A group was created."""
    body = payloads.TaskGroupCreatedPayload(
        group.id, group.owner_task_id, group.retain_turn, group.fail_fast, group.description
    )
    return _of_session(EventType.TASK_GROUP_CREATED, group.session, body, group.created_at)


def group_sealed(group: TaskGroup, at: datetime) -> Event:
    """A group takes no more members."""
    body = payloads.TaskGroupSealedPayload(group.id, group.members, unix_ns(at))
    return _of_session(EventType.TASK_GROUP_SEALED, group.session, body, at)


def group_ended(completion: GroupCompletion) -> Event:
    """A group ended, well or by cancellation."""
    body = payloads.TaskGroupCompletion(
        group_id=completion.group_id,
        session_id=Triple.of(completion.session),
        owner_task_id=completion.owner_task_id,
        final_status=completion.final_status,
        resolved_at=completion.resolved_at,
        members=tuple(_member(outcome) for outcome in completion.members),
        reason=completion.reason,
    )
    at = completion.resolved_at
    if completion.final_status is GroupStatus.COMPLETED:
        resolved = payloads.TaskGroupResolvedPayload(body)
        return _of_session(EventType.TASK_GROUP_RESOLVED, completion.session, resolved, at)
    return _of_session(EventType.TASK_GROUP_CANCELLED, completion.session, payloads.TaskGroupCancelledPayload(body), at)


def patch_decided(patch: TaskPatch, at: datetime) -> Event:
    """A patch was accepted or rejected."""
    if patch.status is PatchStatus.APPLIED:
        applied = payloads.TaskPatchAppliedPayload(patch.id)
        return _of_session(EventType.TASK_PATCH_APPLIED, patch.session, applied, at)
    return _of_session(EventType.TASK_PATCH_REJECTED, patch.session, payloads.TaskPatchRejectedPayload(patch.id), at)


def _of_session(kind: EventType, session: Identity, body: Payload, at: datetime) -> Event:
    return Event(kind, session.with_run(""), body, at)


def _member(outcome: MemberOutcome) -> payloads.TaskGroupMember:
    error = outcome.error
    return payloads.TaskGroupMember(
        outcome.task_id,
        outcome.status,
        msgspec.Raw(outcome.result) if outcome.result else None,
        payloads.TaskMemberFailure(error.code, error.message) if error is not None else None,
    )
