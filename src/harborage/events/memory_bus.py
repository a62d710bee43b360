"""The event bus of one process: it numbers events, keeps the last ones for replay and delivers them.

Publishing is synchronous inside and never waits for a subscriber. No background task belongs to this bus.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from msgspec.structs import replace

from harborage.clock import SYSTEM_CLOCK, Timers
from harborage.events.bus import EventBus
from harborage.events.errors import BusClosedError, CursorTooOldError, ReplayUnavailableError
from harborage.events.event import Event, validate_event
from harborage.events.event_redaction import redact_event
from harborage.events.fanout import BusConfig, FanOut, admin_scope_used
from harborage.events.filters import Cursor, Filter, matches, require_scope
from harborage.events.redaction import Redactor, default_redactor

if TYPE_CHECKING:
    from harborage.events.subscription import Subscription
    from harborage.identity import Identity, Quadruple


class MemoryEventBus(EventBus):
    """A bus for one process. Sequence numbers start at 1 and have no gaps; the last events can be replayed.

    It must be used from the thread of one event loop. Without a redactor it uses the default one.
    """

    def __init__(
        self,
        *,
        redactor: Redactor | None = None,
        config: BusConfig = BusConfig(),  # noqa: B008 - a frozen value
        clock: Timers = SYSTEM_CLOCK,
    ) -> None:
        self._redactor: Redactor = default_redactor() if redactor is None else redactor
        self._clock = clock
        self._buffer = ReplayBuffer(config.replay_buffer_size)
        self._subscribers = FanOut(config, clock, self._record)
        self._sequence = 0
        self._is_closed = False

    async def publish(self, event: Event) -> Event:
        return self.publish_nowait(event)

    def publish_nowait(self, event: Event) -> Event:
        if self._is_closed:
            raise BusClosedError()
        validate_event(event)
        event = redact_event(self._redactor, event, self._emit)
        return self._emit(event)

    def subscribe(self, filter: Filter) -> Subscription:
        if self._is_closed:
            raise BusClosedError()
        subscription = self._subscribers.subscribe(filter)
        if filter.admin:
            self._emit(admin_scope_used(filter, subscription.id))
        return subscription

    async def replay(self, cursor: Cursor, filter: Filter) -> list[Event]:
        if self._is_closed:
            raise BusClosedError()
        self._buffer.require_replay()
        require_scope(filter)
        if filter.admin:
            self._emit(admin_scope_used(filter, 0))
        return [event for event in self._buffer.after(cursor.sequence) if matches(filter, event)]

    def last_sequence(self, who: Identity | Quadruple) -> int:
        return self._sequence

    @property
    def events_per_second(self) -> float:
        """How many events were published a second, of late."""
        return self._subscribers.rate.per_second(self._clock.monotonic())

    async def aclose(self) -> None:
        self._is_closed = True
        self._subscribers.close()
        self._buffer.clear()

    def _emit(self, event: Event) -> Event:
        """Number `event`, keep it for replay, and deliver it."""
        subscribers = self._subscribers
        now = self._clock.monotonic()
        subscribers.rate.add(1, now)
        if subscribers.is_watching and now >= subscribers.next_sweep:
            subscribers.sweep(now)
        event = self._record(event)
        if subscribers.by_session or subscribers.admins:
            subscribers.deliver(event)
        return event

    def _record(self, event: Event) -> Event:
        self._sequence += 1
        if event.occurred_at is None:
            numbered = replace(event, sequence=self._sequence, occurred_at=self._clock.now())
        else:
            numbered = replace(event, sequence=self._sequence)
        self._buffer.append(numbered)
        return numbered


class ReplayBuffer:
    """The last `size` events, whose sequence numbers follow one another without a gap; size 0 keeps nothing."""

    __slots__ = ("_events", "append", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self._events: deque[Event] = deque(maxlen=size)
        self.append = self._events.append

    def __len__(self) -> int:
        return len(self._events)

    def require_replay(self) -> None:
        """Accept a buffer that keeps something.

        Raises:
            ReplayUnavailableError: the buffer has size 0.
        """
        if not self.size:
            raise ReplayUnavailableError()

    def after(self, sequence: int) -> Iterator[Event]:
        """Return the events newer than `sequence`, oldest first; 0 asks for all that are kept.

        Raises:
            CursorTooOldError: the event after a sequence above 0 is kept no longer.
        """
        if not self._events or sequence >= self._events[-1].sequence:
            return iter(())
        oldest = self._events[0].sequence
        if 0 < sequence < oldest - 1:
            raise CursorTooOldError(oldest, sequence)
        return islice(self._events, max(0, sequence + 1 - oldest), None)

    def clear(self) -> None:
        """Drop all events."""
        self._events.clear()
