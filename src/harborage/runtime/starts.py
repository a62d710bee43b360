"""The runs that are about to start: what was asked of each besides what its task says, and the tasks that wait for one.

A run that a person starts begins with its caller; that of a spawned task, or of a start that was cut short, is for
whoever takes `next`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from harborage.ids import new_id

if TYPE_CHECKING:
    from harborage.runtime.context import Context
    from harborage.runtime.history.forking import Fork
    from harborage.runtime.limits import Limits
    from harborage.tasks import Task

__all__ = ["StartWishes", "Starts"]


class StartWishes(NamedTuple):
    """What a caller of `start` wants of the run besides what its task says."""

    max_steps: int = 0
    context: Context | None = None
    fork: Fork | None = None
    limits: Limits | None = None


_NOTHING = StartWishes()


class Starts:
    """The starts of one runtime while it is open. A start is known by the idempotency key of its task."""

    def __init__(self) -> None:
        self._asked: dict[str, StartWishes] = {}
        self._begun: dict[str, Task] = {}
        self._waiting: dict[str, Task] = {}
        self._is_waited_for = asyncio.Event()

    def asked(self, key: str) -> StartWishes:
        """What was asked of this start; nothing where nobody asked for it."""
        return self._asked.get(key, _NOTHING)

    def is_asked(self, key: str) -> bool:
        """Whether a person asked for this start."""
        return key in self._asked

    @contextmanager
    def begin(self, asked: StartWishes) -> Iterator[str]:
        """The key of a start that the block sees through, or that fails in it.

        One that is cut short when its task is there already is left to `next`, with what was asked of it.
        """
        key = new_id()
        self._asked[key] = asked
        try:
            yield key
        except Exception:
            self._begun.pop(key, None)
            raise
        else:
            self._begun.pop(key, None)
        finally:
            if (left := self._begun.pop(key, None)) is None:
                del self._asked[key]
            else:
                self._wait_for(left)

    def note(self, task: Task) -> None:
        """Take a task that was spawned: it waits for its run, but for one that a start sees through."""
        if task.idempotency_key in self._asked:
            self._begun[task.idempotency_key] = task
        else:
            self._wait_for(task)

    async def next(self) -> Task:
        """The first task that waits for its run, once there is one; say `done` when it has begun."""
        while not self._waiting:
            self._is_waited_for.clear()
            await self._is_waited_for.wait()
        return self._waiting.pop(next(iter(self._waiting)))

    def done(self, task: Task) -> None:
        """Forget what was asked of a start that was cut short."""
        self._asked.pop(task.idempotency_key, None)

    def _wait_for(self, task: Task) -> None:
        self._waiting[task.id] = task
        self._is_waited_for.set()
