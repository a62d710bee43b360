"""The state machine of a task, as one table, and the order in which a host should start what is pending.

Pure: no clock, no I/O. Everything that moves a task asks here first; the documentation prints the same table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from harborage.tasks.errors import InvalidTransitionError
from harborage.tasks.model import Task, TaskStatus

_S = TaskStatus

ALLOWED: Final[Mapping[TaskStatus, frozenset[TaskStatus]]] = MappingProxyType(
    {
        _S.PENDING: frozenset({_S.RUNNING, _S.CANCELLED}),
        _S.RUNNING: frozenset({_S.PAUSED, _S.COMPLETE, _S.FAILED, _S.CANCELLED}),
        _S.PAUSED: frozenset({_S.RUNNING, _S.CANCELLED}),
        _S.COMPLETE: frozenset(),
        _S.FAILED: frozenset(),
        _S.CANCELLED: frozenset(),
    }
)
"""Where a task may go from each status. Staying where it is is no transition either."""


class Move(StrEnum):
    """What can be done to a task's status; two of them lead to `running`."""

    START = "start"
    PAUSE = "pause"
    RESUME = "resume"
    COMPLETE = "complete"
    FAIL = "fail"
    CANCEL = "cancel"


MOVES: Final[Mapping[Move, tuple[frozenset[TaskStatus], TaskStatus]]] = MappingProxyType(
    {
        Move.START: (frozenset({_S.PENDING, _S.PAUSED}), _S.RUNNING),
        Move.PAUSE: (frozenset({_S.RUNNING}), _S.PAUSED),
        Move.RESUME: (frozenset({_S.PAUSED}), _S.RUNNING),
        Move.COMPLETE: (frozenset({_S.RUNNING}), _S.COMPLETE),
        Move.FAIL: (frozenset({_S.RUNNING}), _S.FAILED),
        Move.CANCEL: (frozenset({_S.PENDING, _S.RUNNING, _S.PAUSED}), _S.CANCELLED),
    }
)
"""From where each move is possible, and where it leads."""


def can_go(prior: TaskStatus, target: TaskStatus) -> bool:
    """Whether the table allows this step."""
    return target in ALLOWED[prior]


def target_of(move: Move, prior: TaskStatus, task_id: str = "") -> TaskStatus:
    """The status that `move` leads to from `prior`.

    Raises:
        InvalidTransitionError: not from there.
    """
    sources, target = MOVES[move]
    if prior not in sources:
        raise InvalidTransitionError(prior, target, task_id)
    return target


def pending_order(tasks: Iterable[Task]) -> list[Task]:
    """The pending ones among `tasks` in the order to start them: highest priority first, then the oldest.

    Tasks of one priority made in the same instant keep the order in which they were given.
    """
    return sorted((task for task in tasks if task.status is _S.PENDING), key=_urgency)


def _urgency(task: Task) -> tuple[int, int]:
    return (-task.priority, task.created_at)
