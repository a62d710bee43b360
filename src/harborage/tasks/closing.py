"""The end of a group with its last member: one change, so that no process dies between the two."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from harborage.tasks.rows import member_of

if TYPE_CHECKING:
    from harborage.events import Event
    from harborage.identity import Quadruple
    from harborage.store import Change, ChangeGroup, GroupLeft, Status
    from harborage.tasks.model import GroupCompletion, MemberOutcome


class EndedRun(NamedTuple):
    """A run that ends so: `parent` is the run that started it, `outcome` what its row is ended with."""

    who: Quadruple
    group: str
    parent: str
    status: Status
    outcome: bytes

    @classmethod
    def of(cls, who: Quadruple, change: Change, *, group: str, parent: str) -> EndedRun:
        """The run whose row is ended with this change."""
        assert change.status is not None
        return cls(who, group, parent, change.status, change.outcome or b"")

    @property
    def member(self) -> MemberOutcome:
        """How it ended as a member of its group."""
        return member_of(self.who.run_id, self.status, self.outcome)


class Closing(NamedTuple):
    """What ends a group with its last member: the change, the event that says so, and how the group has ended then."""

    change: ChangeGroup
    event: Event
    completion: GroupCompletion


class RunEnds(Protocol):
    """What a host asks of the tasks of its runs when one ends."""

    async def closing(self, end: EndedRun, *, is_refused: bool) -> Closing | None:
        """What ends the run's group in the commit that ends the run; None where the group goes on.

        It may be a guess: the store refuses one that is wrong, and then it is asked for once more, as `is_refused`.

        Raises:
            HarborageError: the group cannot be looked at; it is ended after the run.
        """
        ...

    def ended(self, end: EndedRun, left: GroupLeft | None, closing: Closing | None) -> Coroutine[Any, Any, None] | None:
        """What follows from the end, which has been recorded with that; None where nothing does."""
        ...
