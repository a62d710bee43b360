"""What was worked out from a history, kept beside it, so that no step works through the whole history again.

Everything here can be made again from the trajectory at any time; losing it costs time and nothing else. It lives and
dies with the trajectory, so that planners and prompt builders stay free of their runs' state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from harborage.planner.trajectory import Step, Trajectory

__all__ = ["StepCursor", "kept_with"]

T = TypeVar("T")


def kept_with(trajectory: Trajectory | None, name: str, make: Callable[[], T]) -> T:
    """The object that lives beside `trajectory` under `name`, made when it is not there yet; without one, a new one.

    It is no part of the trajectory's value: it is not compared, copied or serialised with it.
    """
    if trajectory is None:
        return make()
    beside = vars(trajectory)
    found: T | None = beside.get(name)
    if found is None:
        found = beside[name] = make()
    return found


class StepCursor:
    """How far an append-only list of steps has been read, from `first` on."""

    __slots__ = ("_last", "_steps", "count", "first")

    def __init__(self) -> None:
        self._steps: list[Step] | None = None
        self._last: Step | None = None
        self.first = 0
        self.count = 0

    def follows(self, steps: list[Step], first: int = 0) -> bool:
        """Whether this is the list that was read so far, and nothing that was read has gone."""
        if self._steps is not steps or self.first != first or self.count > len(steps):
            return False
        return self.count <= first or steps[self.count - 1] is self._last

    def restart(self, steps: list[Step], first: int = 0) -> None:
        """Begin to read `steps` at index `first`."""
        self._steps, self._last = steps, None
        self.first = self.count = min(first, len(steps))

    def advance(self) -> None:
        """The next step has been read."""
        assert self._steps is not None
        self._last = self._steps[self.count]
        self.count += 1
