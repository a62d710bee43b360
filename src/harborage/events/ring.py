"""The window of recent events that an in-memory bus can replay. Pure: no clock, no bus, no identity."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from harborage.events.errors import CursorTooOldError, ReplayUnavailableError

if TYPE_CHECKING:
    from harborage.events.event import Event

__all__ = ["Ring"]


class Ring:
    """The last `size` events, whose sequence numbers follow one another without a gap; size 0 keeps nothing."""

    __slots__ = ("_events", "append", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self._events: deque[Event] = deque(maxlen=size)
        self.append = self._events.append

    def __len__(self) -> int:
        return len(self._events)

    def require_replay(self) -> None:
        """Accept a ring that keeps something.

        Raises:
            ReplayUnavailableError: the ring has size 0.
        """
        if not self.size:
            raise ReplayUnavailableError()

    def after(self, sequence: int) -> Iterator[Event]:
        """The events newer than `sequence`, oldest first; 0 asks for the whole window.

        Raises:
            CursorTooOldError: the window no longer reaches back to the event after a sequence above 0.
        """
        if not self._events or sequence >= self._events[-1].sequence:
            return iter(())
        oldest = self._events[0].sequence
        if 0 < sequence < oldest - 1:
            raise CursorTooOldError(oldest, sequence)
        return islice(self._events, max(0, sequence + 1 - oldest), None)

    def clear(self) -> None:
        """Forget everything."""
        self._events.clear()
