"""One reader's end of the bus: a bounded queue that forgets its oldest event, and remembers what it forgot.

A publisher never waits for a reader. This file keeps the queue and its bookkeeping; numbering notices and deciding
when a reader is idle is the bus's business.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from types import TracebackType
from typing import Self

import msgspec

from harborage.events.event import Event
from harborage.events.filters import Filter
from harborage.events.payloads.runtime import BusDroppedPayload

__all__ = ["Lost", "Subscription"]


class Lost(msgspec.Struct, frozen=True):
    """What a reader missed: `count` events, all of them between two sequence numbers (inclusive)."""

    from_seq: int
    to_seq: int
    count: int


class Subscription:
    """The events one filter asked for, in order: `async for event in subscription`.

    Ends after `cancel` or after the bus closed, once the queued events are read. Several tasks may read one
    subscription; each event goes to one of them. As a context manager it cancels itself.

    Never: slows a publisher. A reader that falls behind loses its oldest events and is told so (`bus.dropped`).
    """

    __slots__ = ("_capacity", "_on_close", "_queue", "_ready", "_run", "_types", "clean_at", "filter", "id",
                 "is_closed", "lost", "told_at")  # fmt: skip

    def __init__(
        self, id: int, filter: Filter, *, capacity: int, now: float, on_close: Callable[[Subscription], None]
    ) -> None:
        self.id = id
        self.filter = filter
        self.is_closed = False
        self.lost: Lost | None = None
        self.clean_at = now
        self.told_at = now
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
        return queue.popleft()

    def drain(self) -> list[Event]:
        """Everything that is queued right now; never waits."""
        events = list(self._queue)
        self._queue.clear()
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

    def offer(self, event: Event, now: float) -> None:
        """Queue `event`; a full queue loses its oldest one for it."""
        queue = self._queue
        if len(queue) < self._capacity:
            self.clean_at = now
        else:
            self.lost = _with_loss(self.lost, queue.popleft(), event.sequence or _last_number(queue))
        queue.append(event)
        self._ready.set()

    def mark_told(self, now: float) -> None:
        """The reader is being told what it lost so far: count anew."""
        self.lost = None
        self.told_at = now

    def close(self) -> None:
        """End the stream without telling the bus."""
        self.is_closed = True
        self._ready.set()


def _last_number(queue: Iterable[Event]) -> int:
    """The highest number in the queue: where the reader got to, when an event without a number comes."""
    return max((event.sequence for event in queue), default=0)


def _with_loss(lost: Lost | None, event: Event, at: int) -> Lost:
    """`lost` and one more: `event`, pushed out by the event numbered `at`. One without a number counts where it was."""
    first, count = event.sequence or at, 1
    # A notice that is itself pushed out hands on what it would have told, so that no loss goes untold.
    if isinstance(event.payload, BusDroppedPayload):
        first, count = event.payload.from_seq, 1 + event.payload.dropped_count
    if lost is None:
        return Lost(first, at, count)
    return Lost(min(first, lost.from_seq), at, lost.count + count)
