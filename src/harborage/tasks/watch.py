"""Waiting without polling: a value that arrives once.

A watch costs no task and no timer; one that is given up leaves no trace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from harborage.tasks.model import GroupCompletion, TaskGroupID

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
    """Delivers the id of the next group of a session to end among those that hold their owner's turn."""

    __slots__ = ("since",)
    since: int
    """When it began to wait, in microseconds: a group that ended before is not the next one."""

    async def group_id(self) -> TaskGroupID | None:
        """The group's id, once one has ended; None when the waiter was cancelled or the registry closed first."""
        return await self.wait()
