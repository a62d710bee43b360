"""The messages of `events.aggregate`; those of the stream are events themselves."""

from __future__ import annotations

from datetime import datetime

import msgspec

from harborage.protocol.wire.common import Answer, Request


class EventFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which events to count. Blank names are skipped; no tenants, users or sessions are the caller's own.

    `since` is included, `until` is not.
    """

    event_types: tuple[str, ...] = ()
    tenant_ids: tuple[str, ...] = ()
    user_ids: tuple[str, ...] = ()
    session_ids: tuple[str, ...] = ()
    run_ids: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None


class AggregateEvents(Request, frozen=True, kw_only=True):
    """Asks for the counts of the last `window` in slices of `bucket`, both in nanoseconds."""

    filter: EventFilter = EventFilter()
    window: int = 0
    bucket: int = 0


class CountedBucket(msgspec.Struct, frozen=True, kw_only=True):
    """The events of one slice by type; `bucket_end` is not included."""

    bucket_start: str
    bucket_end: str
    counts: dict[str, int]


class EventsAggregated(Answer, frozen=True, kw_only=True):
    """The buckets, oldest first, empty ones included."""

    buckets: tuple[CountedBucket, ...]
