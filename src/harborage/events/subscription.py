"""One reader's end of the bus: a bounded queue that forgets its oldest event, and remembers what it forgot.

A publisher never waits for a reader. This file keeps the queue and its bookkeeping, and says at its place what is
missing; deciding when a reader is idle is the bus's business.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Self

import msgspec

from harborage.events.event import Event
from harborage.events.payloads.runtime import BusDroppedPayload
from harborage.events.types import EventType
from harborage.identity import Quadruple

if TYPE_CHECKING:
    from harborage.events.filters import Filter

__all__ = ["Lost", "Subscription"]


class Lost(msgspec.Struct, frozen=True):
    """What a reader missed: `count` events, those with a number between two sequence numbers (inclusive).

    `who` is whose the last of them was. Where none had a number, `to_seq` is how far the reader got, and `from_seq` one
    more.
    """

    from_seq: int
    to_seq: int
    count: int
    who: Quadruple


class Subscription:
    """The events one filter asked for, in order: `async for event in subscription`.

    Ends after `cancel` or after the bus closed, once the queued events are read. Several tasks may read one
    subscription; each event goes to one of them. As a context manager it cancels itself.

    Never: slows a publisher. A reader that falls behind loses its oldest events. Before it reads on it gets a
    `bus.dropped` notice in their place, whose sequence is that of the last one it lost.
    """

    __slots__ = ("_capacity", "_now", "_on_close", "_queue", "_reached", "_ready", "_run", "_types", "clean_at",
                 "filter", "id", "is_closed", "lost")  # fmt: skip

    def __init__(
        self,
        id: int,
        filter: Filter,
        *,
        capacity: int,
        at: float,
        now: Callable[[], datetime],
        on_close: Callable[[Subscription], None],
    ) -> None:
        self.id = id
        self.filter = filter
        self.is_closed = False
        self.lost: Lost | None = None
        self.clean_at = at
        self._now = now
        # The number of the last event that left the queue, read or lost.
        self._reached = 0
        self._types = frozenset(filter.types)
        self._run = "" if filter.admin else filter.run
        self._capacity = capacity
        self._queue: deque[Event] = deque()
        self._ready = asyncio.Event()
        self._on_close = on_close

    def __len__(self) -> int:
        """How many events wait to be read."""
        return len(self._queue)

    def events(self) -> AsyncIterator[Event]:
        """The stream of events; the same as iterating over the subscription itself."""
        return self

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        queue = self._queue
        while not queue:
            if self.is_closed:
                raise StopAsyncIteration
            self._ready.clear()
            await self._ready.wait()
        if self.lost is not None:
            return self._notice(self.lost)
        event = queue.popleft()
        if event.sequence:
            self._reached = event.sequence
        return event

    def drain(self) -> list[Event]:
        """Everything that there is to read right now; never waits."""
        events = [] if self.lost is None else [self._notice(self.lost)]
        events += self._queue
        self._queue.clear()
        self._reached = max([self._reached, *(event.sequence for event in events)])
        return events

    def cancel(self) -> None:
        """End the stream; what is queued can still be read. Cancelling twice does nothing."""
        if not self.is_closed:
            self.close()
            self._on_close(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()

    # What follows is for the bus.

    def wants(self, event: Event) -> bool:
        """Whether `event`, whose session is known to fit, also fits the run and the types asked for."""
        if self._types and event.type not in self._types:
            return False
        return not self._run or event.identity.run_id == self._run

    def offer(self, event: Event, at: float) -> None:
        """Queue `event`; a full queue loses its oldest one for it."""
        queue = self._queue
        if len(queue) < self._capacity:
            self.clean_at = at
        else:
            self._lose(queue.popleft())
        queue.append(event)
        self._ready.set()

    def close(self) -> None:
        """End the stream without telling the bus."""
        self.is_closed = True
        self._ready.set()

    def _lose(self, event: Event) -> None:
        lost = Lost(self._reached + 1, self._reached, 0, event.identity) if self.lost is None else self.lost
        first, last = lost.from_seq, lost.to_seq
        if number := event.sequence:
            first = min(number, first) if first <= last else number
            last = max(number, last)
            self._reached = number
        self.lost = Lost(first, last, lost.count + 1, event.identity)

    def _notice(self, lost: Lost) -> Event:
        """Tell the reader what it lost; from here on it is counted anew."""
        self.lost = None
        payload = BusDroppedPayload(lost.from_seq, lost.to_seq, lost.count, self.id)
        return Event(EventType.BUS_DROPPED, lost.who, payload, self._now(), lost.to_seq)
