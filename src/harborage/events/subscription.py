"""One subscriber's end of the bus: a bounded queue that drops its oldest event, and reports what it dropped.

A publisher never waits for a subscriber. The bus decides when a subscription is idle.
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


class Lost(msgspec.Struct, frozen=True):
    """The `count` events that a subscriber missed; numbered ones lie between the two sequence numbers (inclusive).

    `who` is the identity of the last of them. If none had a number, `to_seq` is the last sequence that the subscriber
    got, and `from_seq` one more.
    """

    from_seq: int
    to_seq: int
    count: int
    who: Quadruple


class Subscription:
    """The events that match one filter, in order: `async for event in subscription`.

    Ends after `cancel` or after the bus closed, once the queued events are read. Several tasks may read one
    subscription; each event goes to one of them. As a context manager it cancels itself.

    Never: slows a publisher. A subscriber that falls behind loses its oldest events. In their place it gets one
    `bus.dropped` event, whose sequence is that of the last one it lost.
    """

    __slots__ = ("_capacity", "_ended", "_now", "_on_close", "_queue", "_reached", "_ready", "_run", "_take", "_types",
                 "filter", "id", "is_closed", "last_fit_at", "lost")  # fmt: skip

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
        # When an event was last queued without the loss of another; in monotonic seconds.
        self.last_fit_at = at
        self._now = now
        # The number of the last event that left the queue, read or dropped.
        self._reached = 0
        self._types = frozenset(filter.types)
        self._run = "" if filter.admin else filter.run
        self._capacity = capacity
        self._queue: deque[Event] = deque()
        self._ready = asyncio.Event()
        self._on_close = on_close
        self._take: Callable[[Event], None] | None = None
        self._ended: Callable[[], None] | None = None

    def __len__(self) -> int:
        """Return the number of unread events."""
        return len(self._queue)

    def events(self) -> AsyncIterator[Event]:
        """Return the stream of events; the same as iterating over the subscription itself."""
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
            return self._report_loss(self.lost)
        event = queue.popleft()
        if event.sequence:
            self._reached = event.sequence
        return event

    def drain(self) -> list[Event]:
        """Return all unread events; never waits."""
        events = [] if self.lost is None else [self._report_loss(self.lost)]
        events += self._queue
        self._queue.clear()
        self._reached = max([self._reached, *(event.sequence for event in events)])
        return events

    def divert(self, take: Callable[[Event], None], ended: Callable[[], None]) -> None:
        """Give each event to `take` from now on, the unread ones first, in place of the queue; so none is dropped.

        `ended` is called once the stream has ended. Neither may wait or raise.
        """
        for event in self.drain():
            take(event)
        self._take, self._ended = take, ended
        if self.is_closed:
            ended()

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

    # The methods below are for the bus.

    def wants(self, event: Event) -> bool:
        """Return whether `event`, which is of the right session, is of the run and a type that the filter names."""
        if self._types and event.type not in self._types:
            return False
        return not self._run or event.identity.run_id == self._run

    def offer(self, event: Event, at: float) -> None:
        """Queue `event`; a full queue drops its oldest one."""
        if self._take is not None:
            self.last_fit_at = at
            self._take(event)
            return
        queue = self._queue
        if len(queue) < self._capacity:
            self.last_fit_at = at
        else:
            self._drop(queue.popleft())
        queue.append(event)
        self._ready.set()

    def close(self) -> None:
        """End the stream without a call of `on_close`."""
        self.is_closed = True
        self._ready.set()
        if self._ended is not None:
            self._ended()

    def _drop(self, event: Event) -> None:
        lost = Lost(self._reached + 1, self._reached, 0, event.identity) if self.lost is None else self.lost
        first, last = lost.from_seq, lost.to_seq
        if number := event.sequence:
            first = min(number, first) if first <= last else number
            last = max(number, last)
            self._reached = number
        self.lost = Lost(first, last, lost.count + 1, event.identity)

    def _report_loss(self, lost: Lost) -> Event:
        """Return the event that reports the loss, and start counting anew."""
        self.lost = None
        payload = BusDroppedPayload(lost.from_seq, lost.to_seq, lost.count, self.id)
        return Event(EventType.BUS_DROPPED, lost.who, payload, self._now(), lost.to_seq)
