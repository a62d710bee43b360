"""What the end of a run that a host has recorded is for its task: who waits for it wakes, and its group may end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from harborage.tasks.grouping import has_to_follow

if TYPE_CHECKING:
    from harborage.identity import Quadruple
    from harborage.store import GroupLeft
    from harborage.tasks.closing import Closing, EndedRun
    from harborage.tasks.grouping import Groups
    from harborage.tasks.model import Task


class EndedRuns:
    """The ends of runs as the tasks of one store see them; `read` gives the task of a run."""

    def __init__(self, groups: Groups, read: Callable[[Quadruple], Awaitable[Task]]) -> None:
        self._groups = groups
        self._ends = groups.ends
        self._read = read
        self.is_closed = False

    async def closing(self, end: EndedRun) -> Closing | None:
        """What ends the group of a run that ends so in the commit that ends the run; None where the group goes on."""
        return await self._groups.closing(end.who.identity, end.group, end.member)

    def sole_closing(self, end: EndedRun) -> Closing:
        """The same of a sealed group of the run's parent that never had another member, without a look at it."""
        return self._groups.sole_closing(end.who.identity, end.group, end.parent, end.member)

    def ended(
        self, end: EndedRun, left: GroupLeft | None = None, closing: Closing | None = None
    ) -> Coroutine[Any, Any, None] | None:
        """What follows from an end that was recorded, with the end of its group if that is `closing`; None where
        nothing does. `left` is the group as it then is, where that is known."""
        if self.is_closed:
            return None
        self._ends.run_ended(end.who)
        if closing is not None:
            self._ends.group_ended(closing.completion, retains_turn=left is not None and left.retains_turn)
        follows = bool(end.group) and closing is None and has_to_follow(left, end.status)
        return self._follow(end, follows=follows) if follows or self._ends.is_awaited(end.who.run_id) else None

    async def _follow(self, end: EndedRun, *, follows: bool) -> None:
        if self._ends.is_awaited(end.who.run_id):
            self._ends.wake(await self._read(end.who))
        if follows:
            await self._groups.member_ended(end.who.identity, end.group, end.member)
