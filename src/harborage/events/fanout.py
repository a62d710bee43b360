"""Handing events to readers: who may read what, what a slow reader loses, and when an idle one is let go.

Every bus has one of these. It keeps no events and numbers none: what becomes of the notice that an idle reader was let
go is the bus's business. No background task: idle readers are found when events are handed out, and by one timer that
is armed only while some reader has events to read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from harborage.events.errors import BusConfigError, SubscriberLimitReachedError
from harborage.events.event import Event
from harborage.events.filters import Filter, require_scope
from harborage.events.payloads.runtime import BusSubscriptionIdleClosedPayload
from harborage.events.subscription import Subscription
from harborage.events.types import EventType

if TYPE_CHECKING:
    from harborage.clock import Timer, Timers

__all__ = ["BusConfig", "FanOut", "SessionKey"]

SessionKey: TypeAlias = tuple[str, str, str]

_MIN_TICK_S = 0.1
# Differences of clock readings are floats: 60.1 - 0.1 may fall short of 60.
_SLACK_S = 1e-6


class BusConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of a bus. A replay buffer of 0 turns replay off; everything else must be positive."""

    max_subscribers_per_session: int = 16
    subscriber_buffer_size: int = 256
    idle_timeout_s: float = 60.0
    replay_buffer_size: int = 10_000

    def __post_init__(self) -> None:
        """Refuse bounds that make no sense.

        Raises:
            BusConfigError: names the first field that is out of bounds.
        """
        for field in ("max_subscribers_per_session", "subscriber_buffer_size", "idle_timeout_s"):
            if not getattr(self, field) > 0:
                raise BusConfigError(field)
        if self.replay_buffer_size < 0:
            raise BusConfigError("replay_buffer_size", "must not be negative")


class FanOut:
    """The readers of one bus. `finish` makes of the notice to an idle reader the event that is handed out.

    Readers are kept by the triple they may see, beside the admins who see everything: handing out looks at no others.
    With `reaps_idle` a reader that leaves its events unread for too long is let go.
    """

    __slots__ = (
        "_clock",
        "_config",
        "_finish",
        "_last_id",
        "_reaps_idle",
        "_tick_s",
        "_timer",
        "admins",
        "is_watching",
        "next_sweep",
        "readers",
    )

    def __init__(
        self, config: BusConfig, clock: Timers, finish: Callable[[Event], Event], *, reaps_idle: bool = True
    ) -> None:
        self._config = config
        self._clock = clock
        self._finish = finish
        self._reaps_idle = reaps_idle
        # The tuples are replaced, never changed, so that a reader may cancel while an event is handed out.
        self.readers: dict[SessionKey, tuple[Subscription, ...]] = {}
        self.admins: tuple[Subscription, ...] = ()
        self._last_id = 0
        self._tick_s = max(_MIN_TICK_S, config.idle_timeout_s / 4)
        # Watching for idle readers goes on as long as some reader may have something to read.
        self.is_watching = False
        self.next_sweep = 0.0
        self._timer: Timer | None = None

    def subscribe(self, filter: Filter) -> Subscription:
        """A new reader of what `filter` asks for.

        Raises:
            IdentityScopeRequiredError, SubscriberLimitReachedError: in this order.
        """
        require_scope(filter)
        key = (filter.tenant, filter.user, filter.session)
        limit = self._config.max_subscribers_per_session
        if not filter.admin and len(self.readers.get(key, ())) >= limit:
            raise SubscriberLimitReachedError(limit)
        self._last_id += 1
        subscription = Subscription(
            self._last_id,
            filter,
            capacity=self._config.subscriber_buffer_size,
            at=self._clock.monotonic(),
            now=self._clock.now,
            on_close=self._forget,
        )
        if filter.admin:
            self.admins = (*self.admins, subscription)
        else:
            self.readers[key] = (*self.readers.get(key, ()), subscription)
        return subscription

    def hand_out(self, event: Event) -> None:
        """Queue `event` for every reader it is for. Never: waits."""
        self.to_session(event)
        self.to_admins(event)

    def to_session(self, event: Event) -> None:
        """Queue `event` for the readers of its session alone."""
        who = event.identity
        self._to(self.readers.get((who.tenant_id, who.user_id, who.session_id), ()), event)

    def to_admins(self, event: Event) -> None:
        """Queue `event` for the readers of all sessions alone."""
        self._to(self.admins, event)

    def _to(self, readers: Sequence[Subscription], event: Event) -> None:
        if not readers:
            return
        now = self._clock.monotonic()
        for reader in readers:
            if reader.wants(event):
                self._enqueue(reader, event, now)

    def close(self) -> None:
        """End every stream."""
        self._disarm()
        for subscription in self._all():
            subscription.close()
        self.readers.clear()
        self.admins = ()

    def sweep(self, now: float) -> None:
        """Let go of the readers that have had something to read, and nothing new to read cleanly, for too long."""
        self._disarm()
        for reader in self._all():
            if len(reader) and _has_passed(self._config.idle_timeout_s, reader.clean_at, now):
                self._close_idle(reader, now)
        if any(len(reader) for reader in self._all()):
            self._watch(now)

    def _enqueue(self, reader: Subscription, event: Event, now: float) -> None:
        reader.offer(event, now)
        if not self.is_watching and self._reaps_idle:
            self._watch(now)

    def _all(self) -> list[Subscription]:
        return [*chain.from_iterable(self.readers.values()), *self.admins]

    def _watch(self, now: float) -> None:
        """Look at the readers again one tick from now."""
        self.is_watching = True
        self.next_sweep = now + self._tick_s
        try:
            self._timer = self._clock.call_later(self._tick_s, self._on_tick)
        except RuntimeError:
            # No loop runs here, so nobody can be waiting either; the next publish looks instead.
            self._timer = None

    def _disarm(self) -> None:
        self.is_watching = False
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _on_tick(self) -> None:
        self.sweep(self._clock.monotonic())

    def _close_idle(self, reader: Subscription, now: float) -> None:
        payload = BusSubscriptionIdleClosedPayload(reader.id, now - reader.clean_at)
        closing = Event(EventType.BUS_SUBSCRIPTION_IDLE_CLOSED, reader.filter.identity, payload)
        reader.offer(self._finish(closing), now)
        reader.cancel()

    def _forget(self, subscription: Subscription) -> None:
        wanted = subscription.filter
        if wanted.admin:
            self.admins = tuple(other for other in self.admins if other is not subscription)
            return
        key = (wanted.tenant, wanted.user, wanted.session)
        left = tuple(other for other in self.readers.get(key, ()) if other is not subscription)
        if left:
            self.readers[key] = left
        else:
            self.readers.pop(key, None)


def _has_passed(duration_s: float, since: float, now: float) -> bool:
    return now - since >= duration_s - _SLACK_S
