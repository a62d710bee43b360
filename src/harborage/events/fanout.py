"""Delivering events to subscribers: who may see what, and when an idle subscription is closed; and counting events.

Every bus has one `FanOut`. It keeps no events and numbers none. No background task: idle subscriptions are found when
events are delivered, and by one timer that is armed only while a subscription has events to read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from harborage.errors import InvalidOptionError
from harborage.events.errors import SubscriberLimitReachedError
from harborage.events.event import Event
from harborage.events.filters import Filter, require_scope
from harborage.events.payloads.runtime import AuditAdminScopeUsedPayload, BusSubscriptionIdleClosedPayload
from harborage.events.subscription import Subscription
from harborage.events.types import EventType
from harborage.identity import effective_quadruple

if TYPE_CHECKING:
    from harborage.clock import Timer, Timers

SessionKey: TypeAlias = tuple[str, str, str]

_MIN_TICK_S = 0.1
# Differences of clock readings are floats: 60.1 - 0.1 may fall short of 60.
_SLACK_S = 1e-6
_RATE_S: Final = 10


class BusConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of a bus. A replay buffer of 0 turns replay off; everything else must be positive."""

    max_subscribers_per_session: int = 16
    subscriber_buffer_size: int = 256
    idle_timeout_s: float = 60.0
    replay_buffer_size: int = 10_000

    def __post_init__(self) -> None:
        """Refuse bounds that make no sense.

        Raises:
            InvalidOptionError: names the first field that is out of bounds.
        """
        for field in ("max_subscribers_per_session", "subscriber_buffer_size", "idle_timeout_s"):
            if not getattr(self, field) > 0:
                raise InvalidOptionError(field, getattr(self, field), "a number above 0")
        if self.replay_buffer_size < 0:
            raise InvalidOptionError("replay_buffer_size", self.replay_buffer_size, "a number that is not negative")


class EventRate:
    """How many events a bus had in the last ten seconds, counted by the second: eleven numbers, whatever comes."""

    __slots__ = ("_counts", "_last", "_start")

    def __init__(self, now: float) -> None:
        self._start = now
        self._last = int(now)
        self._counts = [0] * (_RATE_S + 1)

    def add(self, count: int, now: float) -> None:
        """Count events that happen now, in monotonic seconds."""
        if int(now) != self._last:
            self._turn(now)
        self._counts[self._last % len(self._counts)] += count

    def per_second(self, now: float) -> float:
        """The events a second, over the last ten seconds, or since the bus was opened where that is less."""
        self._turn(now)
        passed = min(now - self._start, _RATE_S + now % 1)
        return sum(self._counts) / max(passed, 1.0)

    def _turn(self, now: float) -> None:
        """Forget what lies more than ten seconds back."""
        second = int(now)
        for passed in range(max(self._last + 1, second - _RATE_S), second + 1):
            self._counts[passed % len(self._counts)] = 0
        self._last = max(self._last, second)


class FanOut:
    """The subscriptions of one bus, by the session that they may see; those of admins see every session.

    With `reaps_idle` a subscription whose events stay unread for too long is closed; `stamp` then completes the notice
    that it gets.
    """

    __slots__ = (
        "_clock",
        "_config",
        "_last_id",
        "_reaps_idle",
        "_stamp",
        "_tick_s",
        "_timer",
        "admins",
        "by_session",
        "is_watching",
        "next_sweep",
        "rate",
    )

    def __init__(
        self, config: BusConfig, clock: Timers, stamp: Callable[[Event], Event], *, reaps_idle: bool = True
    ) -> None:
        self._config = config
        self._clock = clock
        self._stamp = stamp
        self._reaps_idle = reaps_idle
        # The tuples are replaced, never changed, so that a subscriber may cancel while an event is delivered.
        self.by_session: dict[SessionKey, tuple[Subscription, ...]] = {}
        self.admins: tuple[Subscription, ...] = ()
        self._last_id = 0
        self._tick_s = max(_MIN_TICK_S, config.idle_timeout_s / 4)
        # Looking for idle subscriptions goes on while one may have events to read.
        self.is_watching = False
        self.next_sweep = 0.0
        self._timer: Timer | None = None
        self.rate = EventRate(clock.monotonic())

    def subscribe(self, filter: Filter) -> Subscription:
        """Return a new subscription to the events that match `filter`.

        Raises:
            IdentityScopeRequiredError, SubscriberLimitReachedError: in this order.
        """
        require_scope(filter)
        key = (filter.tenant, filter.user, filter.session)
        limit = self._config.max_subscribers_per_session
        if not filter.admin and len(self.by_session.get(key, ())) >= limit:
            raise SubscriberLimitReachedError(limit)
        self._last_id += 1
        subscription = Subscription(
            self._last_id,
            filter,
            capacity=self._config.subscriber_buffer_size,
            at=self._clock.monotonic(),
            now=self._clock.now,
            on_close=self._remove,
        )
        if filter.admin:
            self.admins = (*self.admins, subscription)
        else:
            self.by_session[key] = (*self.by_session.get(key, ()), subscription)
        return subscription

    def deliver(self, event: Event) -> None:
        """Queue `event` for every subscription that matches it. Never: waits."""
        self.deliver_to_session(event)
        self.deliver_to_admins(event)

    def deliver_to_session(self, event: Event) -> None:
        """Queue `event` for the subscriptions of its session alone."""
        who = event.identity
        self._deliver(self.by_session.get((who.tenant_id, who.user_id, who.session_id), ()), event)

    def deliver_to_admins(self, event: Event) -> None:
        """Queue `event` for the subscriptions of admins alone."""
        self._deliver(self.admins, event)

    def _deliver(self, subscriptions: Sequence[Subscription], event: Event) -> None:
        if not subscriptions:
            return
        now = self._clock.monotonic()
        for subscription in subscriptions:
            if subscription.wants(event):
                self._enqueue(subscription, event, now)

    def close(self) -> None:
        """End every stream."""
        self._disarm()
        for subscription in self._all():
            subscription.close()
        self.by_session.clear()
        self.admins = ()

    def sweep(self, now: float) -> None:
        """Close the subscriptions with unread events that took no further one without loss for the idle timeout."""
        self._disarm()
        for subscription in self._all():
            if len(subscription) and _has_passed(self._config.idle_timeout_s, subscription.last_fit_at, now):
                self._close_idle(subscription, now)
        if any(len(subscription) for subscription in self._all()):
            self._watch(now)

    def _enqueue(self, subscription: Subscription, event: Event, now: float) -> None:
        subscription.offer(event, now)
        if not self.is_watching and self._reaps_idle:
            self._watch(now)

    def _all(self) -> list[Subscription]:
        return [*chain.from_iterable(self.by_session.values()), *self.admins]

    def _watch(self, now: float) -> None:
        """Sweep again one tick from now."""
        self.is_watching = True
        self.next_sweep = now + self._tick_s
        try:
            self._timer = self._clock.call_later(self._tick_s, self._on_tick)
        except RuntimeError:
            # No loop runs here, so no subscriber can be waiting either; the next publish sweeps instead.
            self._timer = None

    def _disarm(self) -> None:
        self.is_watching = False
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _on_tick(self) -> None:
        self.sweep(self._clock.monotonic())

    def _close_idle(self, subscription: Subscription, now: float) -> None:
        payload = BusSubscriptionIdleClosedPayload(subscription.id, now - subscription.last_fit_at)
        closing = Event(EventType.BUS_SUBSCRIPTION_IDLE_CLOSED, subscription.filter.identity, payload)
        subscription.offer(self._stamp(closing), now)
        subscription.cancel()

    def _remove(self, subscription: Subscription) -> None:
        wanted = subscription.filter
        if wanted.admin:
            self.admins = tuple(other for other in self.admins if other is not subscription)
            return
        key = (wanted.tenant, wanted.user, wanted.session)
        left = tuple(other for other in self.by_session.get(key, ()) if other is not subscription)
        if left:
            self.by_session[key] = left
        else:
            self.by_session.pop(key, None)


def _has_passed(duration_s: float, since: float, now: float) -> bool:
    return now - since >= duration_s - _SLACK_S


def admin_scope_used(filter: Filter, subscriber_id: int) -> Event:
    """Return the audit event of a read across sessions; its envelope may lack an identity, so it is not validated."""
    payload = AuditAdminScopeUsedPayload(
        filter.tenant, filter.user, filter.session, subscriber_id, filter.types, effective_quadruple()
    )
    return Event(EventType.AUDIT_ADMIN_SCOPE_USED, filter.identity, payload)
