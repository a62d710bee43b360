"""The event bus: the port, and the in-memory driver that numbers events, keeps a window of them and fans them out.

Publishing is synchronous inside and never waits for a reader. No background task belongs to this bus.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from harborage.clock import SYSTEM_CLOCK, Timers
from harborage.events.errors import BusClosedError
from harborage.events.event import Event, validate_event
from harborage.events.fanout import BusConfig, FanOut
from harborage.events.filters import Cursor, Filter, matches, require_scope
from harborage.events.intake import admin_audit, redacted
from harborage.events.redaction import Redactor, default_redactor
from harborage.events.ring import Ring

if TYPE_CHECKING:
    from harborage.events.subscription import Subscription
    from harborage.identity import Identity, Quadruple
    from harborage.store import Committed, NewEvent, Store

__all__ = ["BusConfig", "CarriedRun", "EventBus", "MemoryEventBus", "RecordBus"]


@runtime_checkable
class EventBus(Protocol):
    """Where everything that happens is told, in one order, to whoever may know.

    A bus numbers at least the events of one session in one line, without gaps. What has no number (0) is told beside
    the record, and comes in no replay.
    """

    async def publish(self, event: Event) -> Event:
        """The event as it was published: redacted, stamped and numbered. On a bus that keeps events, it is kept then.

        Raises:
            BusClosedError, UnknownEventTypeError, IdentityRequiredError, SequenceProvidedError, InvalidEventError,
            RedactionFailedError: in this order; nothing was published (a failed redaction is itself an event).
        """
        ...

    def publish_nowait(self, event: Event) -> Event:
        """The same without an await, for code that must not lose its turn.

        On a bus that keeps events the number is still 0: it is given when the event is kept.

        Raises:
            BusStalledError, BusBacklogError: beside those of `publish`, by a bus whose log does not keep up.
        """
        ...

    def subscribe(self, filter: Filter) -> Subscription:
        """A live stream of what `filter` asks for; it starts now.

        Raises:
            BusClosedError, IdentityScopeRequiredError, SubscriberLimitReachedError: in this order.
        """
        ...

    async def replay(self, cursor: Cursor, filter: Filter) -> list[Event]:
        """The retained events after `cursor` that `filter` asks for, oldest first.

        To reconnect without a gap: subscribe first, replay from the last sequence seen, skip what comes twice.

        Raises:
            BusClosedError, ReplayUnavailableError, IdentityScopeRequiredError, CursorTooOldError: in this order.
        """
        ...

    def place(self, who: Identity | Quadruple) -> int:
        """The number of a recent event of the session, 0 where none is known: what is published next is above it."""
        return 0

    async def aclose(self) -> None:
        """End every stream. Closing twice does nothing."""
        ...


class CarriedRun(Protocol):
    """A run that this process carries, as a bus over the same store knows it."""

    def take(self, event: Event, data: NewEvent) -> None:
        """Take what the run published, to be kept with what it records next. Never: waits or raises."""
        ...

    def hurry(self) -> None:
        """Keep what was taken now: something that others publish about the run is to come behind it."""
        ...


@runtime_checkable
class RecordBus(EventBus, Protocol):
    """A bus over a store of record, which keeps what a run publishes together with what the run records."""

    @property
    def store(self) -> Store:
        """The store in which it keeps events."""
        ...

    def carry(self, who: Quadruple, run: CarriedRun) -> Callable[[], None]:
        """Hand what the run `who` publishes itself to `run` from now on; returns what ends that.

        Then `publish` returns at once, with the number still 0. What others publish about the run is kept as ever.
        """
        ...

    def keep(self, events: Iterable[tuple[Event, NewEvent]]) -> None:
        """Keep what a run published that is carried no more, as if it was published now."""
        ...

    def kept(self, events: Sequence[Event], done: Committed) -> None:
        """Tell the readers events of one session that were kept, in this order, by a commit that was answered so."""
        ...


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
        self._ring = Ring(config.replay_buffer_size)
        self._readers = FanOut(config, clock, self._record)
        self._sequence = 0
        self._is_closed = False

    async def publish(self, event: Event) -> Event:
        return self.publish_nowait(event)

    def publish_nowait(self, event: Event) -> Event:
        if self._is_closed:
            raise BusClosedError()
        validate_event(event)
        event = redacted(self._redactor, event, self._tell)
        return self._tell(event)

    def subscribe(self, filter: Filter) -> Subscription:
        if self._is_closed:
            raise BusClosedError()
        subscription = self._readers.subscribe(filter)
        if filter.admin:
            self._tell(admin_audit(filter, subscription.id))
        return subscription

    async def replay(self, cursor: Cursor, filter: Filter) -> list[Event]:
        if self._is_closed:
            raise BusClosedError()
        self._ring.require_replay()
        require_scope(filter)
        if filter.admin:
            self._tell(admin_audit(filter, 0))
        return [event for event in self._ring.after(cursor.sequence) if matches(filter, event)]

    def place(self, who: Identity | Quadruple) -> int:
        return self._sequence

    async def aclose(self) -> None:
        self._is_closed = True
        self._readers.close()
        self._ring.clear()

    def _tell(self, event: Event) -> Event:
        """Number `event`, keep it, and hand it to every reader it is for."""
        readers = self._readers
        if readers.is_watching and (now := self._clock.monotonic()) >= readers.next_sweep:
            readers.sweep(now)
        event = self._record(event)
        if readers.readers or readers.admins:
            readers.hand_out(event)
        return event

    def _record(self, event: Event) -> Event:
        self._sequence += 1
        at = event.occurred_at
        if at is None:
            at = self._clock.now()
        numbered = Event(event.type, event.identity, event.payload, at, self._sequence, event.extra)
        self._ring.append(numbered)
        return numbered
