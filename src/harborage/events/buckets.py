"""How many events of each type happened in each slice of a recent window: what a rate chart draws."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from harborage.clock import SYSTEM_CLOCK, Clock
from harborage.events.errors import AggregateBadWindowError
from harborage.events.filters import Cursor
from harborage.events.query import EventQuery, bus_filter, selects
from harborage.identity import Identity, IdentityRequiredError, Quadruple, effective_quadruple, held_scopes

if TYPE_CHECKING:
    from harborage.events.bus import EventBus
    from harborage.events.event import Event

__all__ = ["EventBucket", "aggregate", "count_buckets"]


class EventBucket(msgspec.Struct, frozen=True):
    """The events of one slice of time, `start` included and `end` not; a type that did not happen is not listed."""

    start: datetime
    end: datetime
    counts: dict[str, int] = msgspec.field(default_factory=dict)


async def aggregate(
    bus: EventBus,
    query: EventQuery,
    *,
    window: timedelta,
    bucket: timedelta,
    who: Identity | Quadruple | None = None,
    scopes: frozenset[str] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> list[EventBucket]:
    """The last `window` up to now as contiguous buckets, oldest first, counting what `query` selects.

    Without `who` and `scopes` the ambient ones count.

    Raises:
        AggregateBadWindowError, IdentityRequiredError, AdminScopeRequiredError, BusClosedError,
        ReplayUnavailableError: in this order.
    """
    _require_window(window, bucket)
    asker = effective_quadruple() if who is None else who
    if asker is None:
        raise IdentityRequiredError("events: aggregate: identity required, none given")
    allowed = bus_filter(query, asker, held_scopes(scopes))
    now = clock.now()
    events = await bus.replay(Cursor(allowed.session), allowed)
    return count_buckets((event for event in events if selects(query, asker, event)), now, window, bucket)


def count_buckets(events: Iterable[Event], now: datetime, window: timedelta, bucket: timedelta) -> list[EventBucket]:
    """`events` counted by type in the buckets of [now - window, now); what lies outside is left out.

    Raises:
        AggregateBadWindowError: window or bucket is not positive, or the window is not a whole number of buckets.
    """
    _require_window(window, bucket)
    start = now - window
    counts: list[Counter[str]] = [Counter() for _ in range(window // bucket)]
    for event in events:
        if event.occurred_at is not None and start <= event.occurred_at < now:
            counts[(event.occurred_at - start) // bucket][str(event.type)] += 1
    return [
        EventBucket(start + index * bucket, start + (index + 1) * bucket, dict(counted))
        for index, counted in enumerate(counts)
    ]


def _require_window(window: timedelta, bucket: timedelta) -> None:
    zero = timedelta(0)
    if window <= zero or bucket <= zero or window % bucket != zero:
        raise AggregateBadWindowError()
