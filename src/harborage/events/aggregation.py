"""Counting events for a client: its filter, the bus filter that this allows it, and the buckets of a rate chart.

A client lists tenants, users, sessions and runs, and may bound the time. A filter that reaches beyond the caller's own
tenant, user or session needs a scope; the bus then answers as for an admin, and `selects` narrows the answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import force_setattr

from harborage.clock import SYSTEM_CLOCK, Clock
from harborage.errors import names_of
from harborage.events.errors import AggregateBadWindowError
from harborage.events.filters import Cursor, Filter
from harborage.identity import AdminScopeRequiredError, IdentityRequiredError, effective_quadruple, held_scopes

if TYPE_CHECKING:
    from harborage.events.bus import EventBus
    from harborage.events.event import Event
    from harborage.identity import Identity, Quadruple

ADMIN_SCOPES = frozenset({"admin", "console:fleet"})


class ClientFilter(msgspec.Struct, frozen=True, kw_only=True):
    """The events that a client asks for. An empty list means the caller's own; blanks are skipped.

    `since` is included, `until` is not. A run narrows only when it is the only one named.
    """

    event_types: tuple[str, ...] = ()
    tenant_ids: tuple[str, ...] = ()
    user_ids: tuple[str, ...] = ()
    session_ids: tuple[str, ...] = ()
    run_ids: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None

    def __post_init__(self) -> None:
        for names in ("event_types", "tenant_ids", "user_ids", "session_ids", "run_ids"):
            force_setattr(self, names, names_of(getattr(self, names), names))


def needs_admin(wanted: ClientFilter, who: Identity | Quadruple) -> bool:
    """Return whether `wanted` reaches beyond one session of the caller's own."""
    tenants, users, sessions = _axes(wanted, who)
    return tenants != {who.tenant_id} or users != {who.user_id} or len(sessions) > 1


def bus_filter(wanted: ClientFilter, who: Identity | Quadruple, scopes: frozenset[str]) -> Filter:
    """Return the bus filter that matches at least the events of `wanted`; `selects` does the rest.

    Raises:
        AdminScopeRequiredError: `wanted` needs `admin` or `console:fleet`, and `scopes` has neither.
    """
    is_admin = needs_admin(wanted, who)
    if is_admin and not scopes & ADMIN_SCOPES:
        raise AdminScopeRequiredError("events: a query beyond the caller's own tenant, user or session", ADMIN_SCOPES)
    tenant, user, session = (_only(axis) for axis in _axes(wanted, who))
    types = tuple(name for name in wanted.event_types if name)
    return Filter(tenant, user, session, _only(_named(wanted.run_ids)), types, is_admin)


def selects(wanted: ClientFilter, who: Identity | Quadruple, event: Event) -> bool:
    """Return whether `event` is on the lists of `wanted` and within its time."""
    tenants, users, sessions = _axes(wanted, who)
    run = _only(_named(wanted.run_ids))
    types = _named(wanted.event_types)
    at = event.occurred_at
    return (
        event.identity.tenant_id in tenants
        and event.identity.user_id in users
        and event.identity.session_id in sessions
        and (not run or event.identity.run_id == run)
        and (not types or event.type in types)
        and (wanted.since is None or (at is not None and at >= wanted.since))
        and (wanted.until is None or (at is not None and at < wanted.until))
    )


def _axes(wanted: ClientFilter, who: Identity | Quadruple) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    return (
        _named(wanted.tenant_ids) or frozenset({who.tenant_id}),
        _named(wanted.user_ids) or frozenset({who.user_id}),
        _named(wanted.session_ids) or frozenset({who.session_id}),
    )


def _named(names: tuple[str, ...]) -> frozenset[str]:
    return frozenset(name for name in names if name)


def _only(names: frozenset[str]) -> str:
    """Return the name if there is exactly one, else ""."""
    return next(iter(names)) if len(names) == 1 else ""


class EventBucket(msgspec.Struct, frozen=True):
    """The number of events of each type in one slice of time, `start` included and `end` not; zeros are left out."""

    start: datetime
    end: datetime
    counts: dict[str, int] = msgspec.field(default_factory=dict)


async def aggregate(
    bus: EventBus,
    wanted: ClientFilter,
    *,
    window: timedelta,
    bucket: timedelta,
    who: Identity | Quadruple | None = None,
    scopes: frozenset[str] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> list[EventBucket]:
    """Count the events that `wanted` selects of the last `window`, in contiguous buckets, oldest first.

    `who` and `scopes` are the caller's; left out, the ambient ones.

    Raises:
        AggregateBadWindowError, IdentityRequiredError, AdminScopeRequiredError, BusClosedError,
        ReplayUnavailableError: in this order.
    """
    _require_window(window, bucket)
    caller = effective_quadruple() if who is None else who
    if caller is None:
        raise IdentityRequiredError("events: aggregate: identity required, none given")
    allowed = bus_filter(wanted, caller, held_scopes(scopes))
    now = clock.now()
    events = await bus.replay(Cursor(allowed.session), allowed)
    return count_buckets((event for event in events if selects(wanted, caller, event)), now, window, bucket)


def count_buckets(events: Iterable[Event], now: datetime, window: timedelta, bucket: timedelta) -> list[EventBucket]:
    """Count `events` by type in the buckets of [now - window, now); others are left out.

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
