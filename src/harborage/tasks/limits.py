"""How large a tree of tasks may grow, and the deadline that a task gets from its parent. Pure rules over values."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec

from harborage.tasks.errors import InvalidRequestError

if TYPE_CHECKING:
    from harborage.tasks.model import Task, TaskID

__all__ = ["DEFAULT_MAX_CHILDREN", "DEFAULT_MAX_TREE", "TaskLimits", "capped", "root_of"]

DEFAULT_MAX_CHILDREN: Final = 256
"""How many tasks one task may spawn in its life."""

DEFAULT_MAX_TREE: Final = 1024
"""How many tasks may stand below one root in its life."""


class TaskLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How many tasks one task may spawn (`max_children`), and how many may be spawned below one root (`max_tree`).

    Tasks that have ended count, too.

    Raises:
        InvalidRequestError: a limit is not positive; `field` names it.
    """

    max_children: int = DEFAULT_MAX_CHILDREN
    max_tree: int = DEFAULT_MAX_TREE

    def __post_init__(self) -> None:
        for field in ("max_children", "max_tree"):
            if getattr(self, field) <= 0:
                raise InvalidRequestError(f"tasks.{field}", "must be greater than 0")


def root_of(parent: Task | None, parent_id: TaskID | None) -> TaskID:
    """The root of a task's tree; "" for a task without a parent. A parent without a task is a root."""
    if parent is None:
        return parent_id or ""
    return parent.root_task_id or parent.id


def capped(deadline: datetime | None, parent: Task | None) -> datetime | None:
    """The deadline of a task that asks for `deadline`: the parent's, where that comes first."""
    most = None if parent is None else parent.deadline
    if most is None:
        return deadline
    return most if deadline is None else min(deadline, most)
