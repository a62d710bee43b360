"""`events.aggregate`: how many events of which type happened when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice, product
from typing import TYPE_CHECKING, Final

from harborage.events import (
    ClientFilter,
    Cursor,
    Event,
    Filter,
    RecordBus,
    ReplayUnavailableError,
    needs_admin,
    unix_ns,
)
from harborage.events.rows import task_head
from harborage.protocol.errors import Code, ProtocolError
from harborage.protocol.methods import TokenScope
from harborage.protocol.wire.events import AggregateEvents, CountedBucket, EventsAggregated
from harborage.server.services import Endpoint
from harborage.store import EventCount, EventCountQuery

if TYPE_CHECKING:
    from harborage.events import EventBus
    from harborage.identity import Identity
    from harborage.server.services import Call

MAX_BUCKETS: Final = 2_000
LONGEST_NS: Final = 100 * 366 * 86_400 * 10**9
"""The longest window, a hundred years: every moment in it has a date."""

_MICRO: Final = 1_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


async def aggregate_events(call: Call, asked: AggregateEvents) -> EventsAggregated:
    """Return the counts of a window that ends now, in buckets."""
    wanted = asked.filter
    reach = ClientFilter(tenant_ids=wanted.tenant_ids, user_ids=wanted.user_ids, session_ids=wanted.session_ids)
    is_wide = needs_admin(reach, call.who)
    if is_wide:
        call.require(TokenScope.ADMIN, TokenScope.CONSOLE_FLEET, code=Code.IDENTITY_SCOPE_REQUIRED)
    _check_window(asked)
    if is_wide:
        await call.audit()
    query = _query(asked, call.who, unix_ns(call.services.clock.now()))
    bus = call.parts.bus
    counted = await bus.store.count_events(query) if isinstance(bus, RecordBus) else await _retained(bus, query)
    return EventsAggregated(buckets=tuple(_buckets(query, asked.window // asked.bucket, counted)))


def _check_window(asked: AggregateEvents) -> None:
    """Accept a window of whole buckets.

    Raises:
        ProtocolError: `invalid_request`: it is not, or has too many.
    """
    window, bucket = asked.window, asked.bucket
    if window <= 0 or bucket <= 0 or window % bucket:
        raise _invalid("window and bucket must be above 0, and the window a whole number of buckets")
    if window // bucket > MAX_BUCKETS:
        raise _invalid(f"window / bucket is more than {MAX_BUCKETS} buckets; take a longer bucket")
    if window > LONGEST_NS:
        raise _invalid("window is longer than a hundred years")
    if any(moment is not None and moment.tzinfo is None for moment in (asked.filter.since, asked.filter.until)):
        raise _invalid("filter.since and filter.until need a zone, such as 2026-01-02T03:04:05Z")


def _invalid(why: str) -> ProtocolError:
    return ProtocolError(Code.INVALID_REQUEST, f"events.aggregate: {why}")


def _query(asked: AggregateEvents, who: Identity, now: int) -> EventCountQuery:
    """What is counted: the intersection of the window before `now`, in nanoseconds, with since and until."""
    wanted, start = asked.filter, now - asked.window
    since, until = -(-start // _MICRO), -(-now // _MICRO)
    if wanted.since is not None:
        since = max(since, unix_ns(wanted.since) // _MICRO)
    if wanted.until is not None:
        until = min(until, unix_ns(wanted.until) // _MICRO)
    run_ids = _named(wanted.run_ids)
    return EventCountQuery(
        tenants=_named(wanted.tenant_ids) or (who.tenant_id,),
        users=_named(wanted.user_ids) or (who.user_id,),
        sessions=_named(wanted.session_ids) or (who.session_id,),
        run_ids=run_ids,
        task_heads=tuple(map(task_head, run_ids)),
        types=_named(wanted.event_types),
        since=since,
        until=until,
        start=start,
        bucket=asked.bucket,
    )


def _named(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in names if name))


async def _retained(bus: EventBus, query: EventCountQuery) -> list[EventCount]:
    """Count what a bus without a store still has in memory, in all sessions that are asked for.

    Raises:
        ProtocolError: `runtime_error`: it keeps nothing.
    """
    triples = list(islice(product(query.tenants, query.users, query.sessions), 2))
    try:
        found = await bus.replay(Cursor(), Filter(*triples[0]) if len(triples) == 1 else Filter(admin=True))
    except ReplayUnavailableError as error:
        raise ProtocolError(Code.RUNTIME_ERROR, "this server keeps no events that could be counted") from error
    return [EventCount(slot, kind, events) for (slot, kind), events in Counter(_slots(found, query)).items()]


def _slots(found: Iterable[Event], query: EventCountQuery) -> Iterable[tuple[int, str]]:
    for event in found:
        who = event.identity
        if event.occurred_at is None or (query.run_ids and not _is_of(event, query.run_ids)):
            continue
        if not (who.tenant_id in query.tenants and who.user_id in query.users and who.session_id in query.sessions):
            continue
        at = unix_ns(event.occurred_at)
        if query.since <= at // _MICRO < query.until and (not query.types or event.type in query.types):
            yield (at - query.start) // query.bucket, str(event.type)


def _is_of(event: Event, run_ids: tuple[str, ...]) -> bool:
    """Return whether an event is of one of these runs; that of a task may name its run in the payload alone."""
    return event.identity.run_id in run_ids or getattr(event.payload, "task_id", "") in run_ids


def _buckets(query: EventCountQuery, count: int, counted: Iterable[EventCount]) -> Iterable[CountedBucket]:
    by_slot: dict[int, dict[str, int]] = {}
    for slot, kind, events in counted:
        by_slot.setdefault(slot, {})[kind] = events
    edges = [_time(query.start + slot * query.bucket) for slot in range(count + 1)]
    for slot in range(count):
        yield CountedBucket(bucket_start=edges[slot], bucket_end=edges[slot + 1], counts=by_slot.get(slot, {}))


def _time(ns: int) -> str:
    """A moment in RFC 3339, to the nanosecond."""
    seconds, rest = divmod(ns, 10**9)
    return f"{(_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat()}.{rest:09d}Z"


ENDPOINTS: Final[Mapping[str, Endpoint]] = {
    "events.aggregate": Endpoint(AggregateEvents, EventsAggregated, aggregate_events),
}
