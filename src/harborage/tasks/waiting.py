"""Who waits for whom, and that no wait is a circle.

A run waits for one task or group at a time. What it waits for is written down before it waits, and read again along
the chain: of two runs that close a circle at the same moment, in different processes even, at least one sees it.
A wait for what has ended is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from harborage.tasks.errors import GroupNotFoundError, NotFoundError, WaitCycleError
from harborage.tasks.ledger import GroupState, SessionKey, SessionLedger, key_of

if TYPE_CHECKING:
    from harborage.identity import Identity
    from harborage.tasks.model import Task, TaskGroupID, TaskID

__all__ = ["MemoryWaits", "Waits", "begin_wait"]


class Waits(Protocol):
    """What each run of a session waits for."""

    async def awaited(self, session: Identity, waiter: TaskID) -> TaskID | TaskGroupID:
        """The task or group that `waiter` waits for; "" for none."""
        ...

    async def keep_wait(self, session: Identity, waiter: TaskID, target: TaskID | TaskGroupID) -> None:
        """Note that `waiter` waits for `target`; "" for a run that waits no longer."""
        ...


class MemoryWaits:
    """`Waits` of this process."""

    def __init__(self) -> None:
        self._waits: dict[tuple[SessionKey, TaskID], TaskID | TaskGroupID] = {}

    async def awaited(self, session: Identity, waiter: TaskID) -> TaskID | TaskGroupID:
        return self._waits.get((key_of(session), waiter), "")

    async def keep_wait(self, session: Identity, waiter: TaskID, target: TaskID | TaskGroupID) -> None:
        if target:
            self._waits[key_of(session), waiter] = target
        else:
            self._waits.pop((key_of(session), waiter), None)


class Standings(Protocol):
    """Where tasks and groups of a session are read."""

    async def task(self, ledger: SessionLedger, task_id: TaskID) -> Task: ...

    async def group(self, ledger: SessionLedger, group_id: TaskGroupID, *, members: bool = True) -> GroupState: ...


async def begin_wait(
    waits: Waits, books: Standings, ledger: SessionLedger, waiter: TaskID, target: TaskID | TaskGroupID
) -> None:
    """Note that `waiter` waits for `target`.

    Raises:
        WaitCycleError: `target` waits for `waiter`, directly or through others; nothing is noted.
    """
    await waits.keep_wait(ledger.session, waiter, target)
    try:
        path = await _circle(waits, books, ledger, waiter, target)
    except BaseException:
        await waits.keep_wait(ledger.session, waiter, "")
        raise
    if path:
        await waits.keep_wait(ledger.session, waiter, "")
        raise WaitCycleError(path)


async def _circle(waits: Waits, books: Standings, ledger: SessionLedger, waiter: TaskID, target: str) -> list[str]:
    """The circle that the wait would close, from `waiter` to itself; empty for none."""
    came_from = {target: waiter}
    left = [target]
    while left:
        one = left.pop()
        if one == waiter:
            path = [waiter]
            while len(path) == 1 or path[-1] != waiter:
                path.append(came_from[path[-1]])
            return path[::-1]
        for following in await _followed(waits, books, ledger, one):
            if following not in came_from:
                came_from[following] = one
                left.append(following)
    return []


async def _followed(waits: Waits, books: Standings, ledger: SessionLedger, one: str) -> Sequence[str]:
    """What has to end before this task or group ends."""
    try:
        task = await books.task(ledger, one)
    except NotFoundError:
        return await _members(books, ledger, one)
    if task.status.is_terminal:
        return ()
    target = await waits.awaited(ledger.session, one)
    return (target,) if target else ()


async def _members(books: Standings, ledger: SessionLedger, group_id: TaskGroupID) -> Sequence[TaskID]:
    try:
        state = await books.group(ledger, group_id)
    except GroupNotFoundError:
        return ()
    return () if state.header.status.is_terminal else state.members
