"""Waiting without polling: a value that arrives once, and the futures of those who wait for a task's end.

Nothing here costs a task or a timer; a waiter that gives up leaves no trace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Generic, TypeVar

from harborage.tasks.errors import RegistryClosedError
from harborage.tasks.model import GroupCompletion, Task, TaskGroupID, TaskID

__all__ = ["EndWaiters", "GroupWatch", "RetainTurnWaiter", "Watch"]

T = TypeVar("T")


class Watch(Generic[T]):
    """One value that will arrive once, or never: read it without waiting, wait for it, or give up.

    Any number of callers may wait on one watch. It ends by its value, by `cancel`, or when the registry closes; only
    the first of the three counts.
    """

    __slots__ = ("_arrived", "_forget", "_is_closed", "_value")

    def __init__(self, forget: Callable[[Watch[T]], None] | None = None) -> None:
        self._value: T | None = None
        self._is_closed = False
        self._arrived: asyncio.Event | None = None
        self._forget = forget

    @property
    def is_closed(self) -> bool:
        """Whether nothing more will come: the value is there, or never will be."""
        return self._is_closed

    def peek(self) -> T | None:
        """The value if it is there already, else None. Never: waits."""
        return self._value

    async def wait(self) -> T | None:
        """The value once it is there; None when the watch was cancelled or the registry closed without one."""
        if not self._is_closed:
            if self._arrived is None:
                self._arrived = asyncio.Event()
            await self._arrived.wait()
        return self._value

    def cancel(self) -> None:
        """Give up: waiters get None. After the value arrived, and a second time, this does nothing."""
        if not self._is_closed and self._forget is not None:
            self._forget(self)
        self.close()

    def close(self) -> None:
        """End the watch without a value; the registry calls this."""
        self._end(None)

    def deliver(self, value: T) -> None:
        """End the watch with its value; the registry calls this."""
        self._end(value)

    def _end(self, value: T | None) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._value = value
        self._forget = None
        if self._arrived is not None:
            self._arrived.set()


class GroupWatch(Watch[GroupCompletion]):
    """Delivers how a group ended, exactly once."""

    __slots__ = ()

    async def completion(self) -> GroupCompletion | None:
        """How the group ended, once it has; None when the watch was cancelled or the registry closed first."""
        return await self.wait()


class RetainTurnWaiter(Watch[TaskGroupID]):
    """Delivers the id of the next group of a session to end among those that hold their owner's turn.

    `since` is when it began to wait, where groups are read back that ended before; None otherwise.
    """

    __slots__ = ("since",)
    since: datetime | None

    async def group_id(self) -> TaskGroupID | None:
        """The group's id, once one has ended; None when the waiter was cancelled or the registry closed first."""
        return await self.wait()


class EndWaiters:
    """Those who wait for the end of tasks of one session."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[TaskID, list[asyncio.Future[Task]]] = {}

    def __len__(self) -> int:
        return sum(len(waiting) for waiting in self._waiting.values())

    def __contains__(self, task_id: object) -> bool:
        return task_id in self._waiting

    def awaited(self) -> list[TaskID]:
        """The tasks that somebody waits for."""
        return list(self._waiting)

    async def wait(self, task_id: TaskID) -> Task:
        """The task as it ended.

        Raises:
            RegistryClosedError: the registry closed first.
        """
        future: asyncio.Future[Task] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(task_id, []).append(future)
        try:
            return await future
        finally:
            self._leave(task_id, future)

    def ended(self, task: Task) -> None:
        """Wake everybody who waits for this task."""
        for future in self._waiting.pop(task.id, ()):
            if not future.done():
                future.set_result(task)

    def close(self) -> None:
        """Turn everybody away."""
        waiting, self._waiting = self._waiting, {}
        for futures in waiting.values():
            for future in futures:
                if not future.done():
                    future.set_exception(RegistryClosedError())

    def _leave(self, task_id: TaskID, future: asyncio.Future[Task]) -> None:
        waiting = self._waiting.get(task_id)
        if waiting is None or future not in waiting:
            return
        waiting.remove(future)
        if not waiting:
            del self._waiting[task_id]
