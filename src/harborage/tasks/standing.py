"""How what a store has stands to what is in memory. Pure: values and ledgers in, answers out."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec.structs import replace

from harborage.tasks.groups import completion_of

if TYPE_CHECKING:
    from harborage.tasks.ledger import GroupState, Mark, SessionLedger
    from harborage.tasks.model import GroupCompletion, Task, TaskID
    from harborage.tasks.records import KeptTask, StoredGroup

__all__ = ["counted", "drop", "is_needed", "is_older", "is_uncounted", "is_watched", "members_of", "told_completion"]


def counted(task: Task, known: Task | None) -> Task:
    """The task with the tool calls that this process has counted; the counter moves without any lock."""
    if known is None or known.tool_count <= task.tool_count:
        return task
    return replace(task, tool_count=known.tool_count)


def is_older(kept: KeptTask, known: Task, mark: Mark) -> bool:
    """Whether what was read is behind what is known; an end is ahead of everything but what follows it."""
    has_ended, was_ended = kept.task.status.is_terminal, known.status.is_terminal
    return kept.revision < mark.revision if has_ended is was_ended else was_ended


def is_uncounted(ledger: SessionLedger, task_id: TaskID) -> bool:
    """Whether tool calls of the task were counted that its record does not know of."""
    task, mark = ledger.tasks.get(task_id), ledger.marks.get(task_id)
    return task is not None and mark is not None and task.tool_count != mark.counted


def is_watched(ledger: SessionLedger) -> bool:
    """Whether anybody waits for the end of a task or of a group of the session."""
    return bool(ledger.end_waiters or ledger.turn_waiters) or any(state.watchers for state in ledger.groups.values())


def is_needed(ledger: SessionLedger) -> bool:
    """Whether anything of the session must stay in memory."""
    return bool(ledger.tasks or ledger.owed or ledger.turn_waiters or ledger.users or is_watched(ledger))


def members_of(ledger: SessionLedger, state: GroupState) -> Iterable[Task]:
    """The group's members that are in memory."""
    return (ledger.tasks[task_id] for task_id in state.members if task_id in ledger.tasks)


def drop(ledger: SessionLedger, tasks: Iterable[Task]) -> None:
    """Let go of tasks that the store has no more."""
    for task in tasks:
        ledger.tasks.pop(task.id, None)
        ledger.marks.pop(task.id, None)


def told_completion(stored: StoredGroup, tasks: Iterable[Task], now: datetime) -> GroupCompletion:
    """How a group ended, as it was told then: a member that was left running has neither result nor error."""
    by_id = {task.id: task for task in tasks}
    members = [
        task if task.status is status else replace(task, status=status, result=None, error=None)
        for task_id, status in stored.outcomes
        if (task := by_id.get(task_id)) is not None
    ]
    header = stored.group
    return completion_of(header, members, header.status, header.reason, header.resolved_at or now)
