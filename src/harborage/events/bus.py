"""The event bus: the port, and the in-memory driver that numbers events, keeps a window of them and fans them out.

Publishing is synchronous inside and never waits for a reader. No background task belongs to a bus: idle readers are
found when events are published and by one timer that is armed only while some reader has events to read.
"""

from __future__ import annotations

from itertools import chain
from typing import Protocol, runtime_checkable

import msgspec

from harborage.clock import SYSTEM_CLOCK, Timer, Timers
from harborage.events.errors import (
    BusClosedError,
    BusConfigError,
    RedactionFailedError,
    SubscriberLimitReachedError,
)
from harborage.events.event import Event, RedactedMap, SafePayload, validate_event
from harborage.events.filters import Cursor, Filter, matches, require_scope
from harborage.events.payloads.runtime import (
    AuditAdminScopeUsedPayload,
    AuditRedactionFailedPayload,
    BusDroppedPayload,
    BusSubscriptionIdleClosedPayload,
)
from harborage.events.redaction import PatternRedactor, Redactor
from harborage.events.ring import Ring
from harborage.events.subscription import Lost, Subscription
from harborage.events.types import EventType
from harborage.identity import effective_quadruple

__all__ = ["BusConfig", "EventBus", "MemoryEventBus"]

_MIN_TICK_S = 0.1
# Differences of clock readings are floats: 60.1 - 0.1 may fall short of 60.
_SLACK_S = 1e-6


class BusConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of a bus. A replay buffer of 0 turns replay off; everything else must be positive."""

    max_subscribers_per_session: int = 16
    subscriber_buffer_size: int = 256
    idle_timeout_s: float = 60.0
    drop_window_s: float = 1.0
    replay_buffer_size: int = 10_000

    def __post_init__(self) -> None:
        """Refuse bounds that make no sense.

        Raises:
            BusConfigError: names the first field that is out of bounds.
        """
        for field in ("max_subscribers_per_session", "subscriber_buffer_size", "idle_timeout_s", "drop_window_s"):
            if not getattr(self, field) > 0:
                raise BusConfigError(field)
        if self.replay_buffer_size < 0:
            raise BusConfigError("replay_buffer_size", "must not be negative")


@runtime_checkable
class EventBus(Protocol):
    """Where everything that happens is told, in one order, to whoever may know."""

    async def publish(self, event: Event) -> Event:
        """The event as it was published: redacted, stamped and numbered.

        Raises:
            BusClosedError, UnknownEventTypeError, IdentityRequiredError, SequenceProvidedError, InvalidEventError,
            RedactionFailedError: in this order; nothing was published (a failed redaction is itself an event).
        """
        ...

    def publish_nowait(self, event: Event) -> Event:
        """The same without an await, for code that must not lose its turn."""
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

    async def aclose(self) -> None:
        """End every stream. Closing twice does nothing."""
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
        self._redactor: Redactor = PatternRedactor() if redactor is None else redactor
        self._config = config
        self._clock = clock
        self._ring = Ring(config.replay_buffer_size)
        self._sequence = 0
        self._is_closed = False
        # Readers by the triple they may see, and the admins who see everything: publishing looks at no others.
        # The tuples are replaced, never changed, so that a reader may cancel while an event is handed out.
        self._readers: dict[tuple[str, str, str], tuple[Subscription, ...]] = {}
        self._admins: tuple[Subscription, ...] = ()
        self._last_subscriber = 0
        self._tick_s = max(_MIN_TICK_S, config.idle_timeout_s / 4)
        # Watching for idle readers goes on as long as some reader may have something to read.
        self._is_watching = False
        self._next_sweep = 0.0
        self._timer: Timer | None = None

    async def publish(self, event: Event) -> Event:
        return self.publish_nowait(event)

    def publish_nowait(self, event: Event) -> Event:
        if self._is_closed:
            raise BusClosedError()
        validate_event(event)
        if not isinstance(event.payload, SafePayload):
            event = self._redacted(event)
        return self._tell(event)

    def subscribe(self, filter: Filter) -> Subscription:
        if self._is_closed:
            raise BusClosedError()
        require_scope(filter)
        key = (filter.tenant, filter.user, filter.session)
        limit = self._config.max_subscribers_per_session
        if not filter.admin and len(self._readers.get(key, ())) >= limit:
            raise SubscriberLimitReachedError(limit)
        self._last_subscriber += 1
        subscription = Subscription(
            self._last_subscriber,
            filter,
            capacity=self._config.subscriber_buffer_size,
            now=self._clock.monotonic(),
            on_close=self._forget,
        )
        if filter.admin:
            self._admins = (*self._admins, subscription)
            self._audit_admin(filter, subscription.id)
        else:
            self._readers[key] = (*self._readers.get(key, ()), subscription)
        return subscription

    async def replay(self, cursor: Cursor, filter: Filter) -> list[Event]:
        if self._is_closed:
            raise BusClosedError()
        self._ring.require_replay()
        require_scope(filter)
        if filter.admin:
            self._audit_admin(filter, 0)
        return [event for event in self._ring.after(cursor.sequence) if matches(filter, event)]

    async def aclose(self) -> None:
        self._is_closed = True
        self._disarm()
        for subscription in self._all_readers():
            subscription.close()
        self._readers.clear()
        self._admins = ()
        self._ring.clear()

    def _redacted(self, event: Event) -> Event:
        try:
            out = self._redactor.redact(event.payload)
        except Exception as error:
            reason = str(error) if isinstance(error, RedactionFailedError) else type(error).__name__
            failed = AuditRedactionFailedPayload(event.type, reason)
            self._tell(Event(EventType.AUDIT_REDACTION_FAILED, event.identity, failed, extra=event.extra))
            raise RedactionFailedError(f"events: publish redaction failed: {event.type}: {reason}") from error
        payload = out if isinstance(out, SafePayload) else RedactedMap(out if isinstance(out, dict) else {"value": out})
        return Event(event.type, event.identity, payload, event.occurred_at, extra=event.extra)

    def _audit_admin(self, filter: Filter, subscriber_id: int) -> None:
        """Tell that somebody looks across sessions. The envelope may lack an identity, so this is not validated."""
        payload = AuditAdminScopeUsedPayload(
            filter.tenant, filter.user, filter.session, subscriber_id, filter.types, effective_quadruple()
        )
        self._tell(Event(EventType.AUDIT_ADMIN_SCOPE_USED, filter.identity, payload))

    def _tell(self, event: Event) -> Event:
        """Number `event`, keep it, and hand it to every reader it is for."""
        if self._is_watching and (now := self._clock.monotonic()) >= self._next_sweep:
            self._sweep(now)
        event = self._record(event)
        if self._readers or self._admins:
            who = event.identity
            readers = self._readers.get((who.tenant_id, who.user_id, who.session_id), ())
            if readers or self._admins:
                self._fan_out(event, readers)
        return event

    def _record(self, event: Event) -> Event:
        self._sequence += 1
        at = event.occurred_at or self._clock.now()
        numbered = Event(event.type, event.identity, event.payload, at, self._sequence, event.extra)
        self._ring.append(numbered)
        return numbered

    def _fan_out(self, event: Event, readers: tuple[Subscription, ...]) -> None:
        now = self._clock.monotonic()
        for reader in chain(readers, self._admins):
            if reader.wants(event):
                self._enqueue(reader, event, now)

    def _enqueue(self, reader: Subscription, event: Event, now: float) -> None:
        reader.offer(event, now)
        if (lost := reader.lost) is not None and _has_passed(self._config.drop_window_s, reader.told_at, now):
            self._tell_lost(reader, lost, event, now)
        if not self._is_watching:
            self._watch(now)

    def _tell_lost(self, reader: Subscription, lost: Lost, trigger: Event, now: float) -> None:
        """Tell this reader alone what it lost; the notice may itself push out an event, which counts anew."""
        reader.mark_told(now)
        payload = BusDroppedPayload(lost.from_seq, lost.to_seq, lost.count, reader.id)
        reader.offer(self._record(Event(EventType.BUS_DROPPED, trigger.identity, payload)), now)

    # Idle readers.

    def _all_readers(self) -> list[Subscription]:
        return [*chain.from_iterable(self._readers.values()), *self._admins]

    def _watch(self, now: float) -> None:
        """Look at the readers again one tick from now."""
        self._is_watching = True
        self._next_sweep = now + self._tick_s
        try:
            self._timer = self._clock.call_later(self._tick_s, self._on_tick)
        except RuntimeError:
            # No loop runs here, so nobody can be waiting either; the next publish looks instead.
            self._timer = None

    def _disarm(self) -> None:
        self._is_watching = False
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _on_tick(self) -> None:
        self._sweep(self._clock.monotonic())

    def _sweep(self, now: float) -> None:
        """Close the readers that have had something to read, and nothing new to read cleanly, for too long."""
        self._disarm()
        for reader in self._all_readers():
            if len(reader) and _has_passed(self._config.idle_timeout_s, reader.clean_at, now):
                self._close_idle(reader, now)
        if any(len(reader) for reader in self._all_readers()):
            self._watch(now)

    def _close_idle(self, reader: Subscription, now: float) -> None:
        payload = BusSubscriptionIdleClosedPayload(reader.id, now - reader.clean_at)
        closing = Event(EventType.BUS_SUBSCRIPTION_IDLE_CLOSED, reader.filter.identity, payload)
        if (lost := reader.lost) is not None:
            self._tell_lost(reader, lost, closing, now)
        reader.offer(self._record(closing), now)
        reader.cancel()

    def _forget(self, subscription: Subscription) -> None:
        wanted = subscription.filter
        if wanted.admin:
            self._admins = tuple(other for other in self._admins if other is not subscription)
            return
        key = (wanted.tenant, wanted.user, wanted.session)
        left = tuple(other for other in self._readers.get(key, ()) if other is not subscription)
        if left:
            self._readers[key] = left
        else:
            self._readers.pop(key, None)


def _has_passed(duration_s: float, since: float, now: float) -> bool:
    return now - since >= duration_s - _SLACK_S
