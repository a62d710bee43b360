"""Counting events in slices of time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage.events import (
    AdminScopeRequiredError,
    AggregateBadWindowError,
    BusClosedError,
    Event,
    EventBucket,
    EventQuery,
    EventType,
    MemoryEventBus,
    ReplayUnavailableError,
    TaskPausedPayload,
    TaskStartedPayload,
    aggregate,
    count_buckets,
)
from harborage.identity import Identity, IdentityRequiredError, Quadruple, bound
from harborage.testing.clock import FakeClock

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")
WHO = Quadruple("t", "u", "s", "r")
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
START = FakeClock().now()


def _paused(at: datetime | None = None, who: Quadruple = WHO) -> Event:
    return Event(EventType.TASK_PAUSED, who, TaskPausedPayload("task"), at)


def _started() -> Event:
    return Event(EventType.TASK_STARTED, WHO, TaskStartedPayload("task", "pending"))


def _counts(buckets: list[EventBucket]) -> list[dict[str, int]]:
    return [bucket.counts for bucket in buckets]


async def test_buckets_are_contiguous_and_count_by_type(bus: MemoryEventBus, clock: FakeClock) -> None:
    """The oldest bucket comes first; a bucket in which nothing happened is empty."""
    bus.publish_nowait(_paused())
    bus.publish_nowait(_started())
    bus.publish_nowait(_paused())
    clock.advance(120)
    bus.publish_nowait(_started())
    clock.advance(30)
    buckets = await aggregate(bus, EventQuery(), window=3 * MINUTE, bucket=MINUTE, who=ME, clock=clock)
    assert _counts(buckets) == [{"task.paused": 2, "task.started": 1}, {}, {"task.started": 1}]
    assert [bucket.end for bucket in buckets[:-1]] == [bucket.start for bucket in buckets[1:]]
    assert (buckets[0].start, buckets[-1].end) == (clock.now() - 3 * MINUTE, clock.now())


async def test_the_window_ends_just_before_now(bus: MemoryEventBus, clock: FakeClock) -> None:
    """An event stamped exactly now is left out, one stamped exactly a window ago is counted."""
    bus.publish_nowait(_paused())
    clock.advance(60)
    bus.publish_nowait(_started())
    buckets = await aggregate(bus, EventQuery(), window=MINUTE, bucket=MINUTE, who=ME, clock=clock)
    assert _counts(buckets) == [{"task.paused": 1}]


async def test_since_and_until_narrow_the_window(bus: MemoryEventBus, clock: FakeClock) -> None:
    """What counts lies in the window and in the asked-for time."""
    for _ in range(4):
        bus.publish_nowait(_paused())
        clock.advance(60)
    query = EventQuery(since=START + MINUTE, until=START + 2 * MINUTE)
    buckets = await aggregate(bus, query, window=4 * MINUTE, bucket=MINUTE, who=ME, clock=clock)
    assert _counts(buckets) == [{}, {"task.paused": 1}, {}, {}]


async def test_only_the_caller_s_own_events_count(bus: MemoryEventBus, clock: FakeClock) -> None:
    """Without lists another session's events are not counted."""
    bus.publish_nowait(_paused(who=Quadruple("t", "u", "other")))
    clock.advance(1)
    buckets = await aggregate(bus, EventQuery(), window=MINUTE, bucket=MINUTE, who=ME, clock=clock)
    assert _counts(buckets) == [{}]


async def test_another_tenant_needs_a_scope_and_then_only_it_counts(bus: MemoryEventBus, clock: FakeClock) -> None:
    """An admin's count holds the tenants that were named, not everything, and not its own audit."""
    bus.publish_nowait(_paused(who=Quadruple("x", "u", "s")))
    bus.publish_nowait(_paused())
    clock.advance(1)
    query = EventQuery(tenant_ids=("x",))
    with pytest.raises(AdminScopeRequiredError):
        await aggregate(bus, query, window=MINUTE, bucket=MINUTE, who=ME, clock=clock)
    with bound(ME, scopes=frozenset({"console:fleet"})):
        buckets = await aggregate(bus, query, window=MINUTE, bucket=MINUTE, clock=clock)
    assert _counts(buckets) == [{"task.paused": 1}]


@pytest.mark.parametrize(
    ("window", "bucket"),
    [(HOUR, timedelta(minutes=7)), (timedelta(0), MINUTE), (HOUR, timedelta(0)), (-HOUR, MINUTE), (HOUR, -MINUTE),
     (MINUTE, HOUR)],
)  # fmt: skip
async def test_a_window_is_a_whole_number_of_buckets(bus: MemoryEventBus, window: timedelta, bucket: timedelta) -> None:
    """Anything else is refused, before anybody asks who is asking."""
    with pytest.raises(AggregateBadWindowError):
        await aggregate(bus, EventQuery(), window=window, bucket=bucket)
    with pytest.raises(AggregateBadWindowError):
        count_buckets([], START, window, bucket)


async def test_somebody_must_be_asking(bus: MemoryEventBus) -> None:
    """Neither given nor bound: refused."""
    with pytest.raises(IdentityRequiredError):
        await aggregate(bus, EventQuery(), window=HOUR, bucket=HOUR)


async def test_counting_needs_a_window_to_replay(make_bus: Callable[..., MemoryEventBus]) -> None:
    """A bus that keeps nothing cannot count, and a closed one does nothing."""
    bus = make_bus(replay_buffer_size=0)
    with pytest.raises(ReplayUnavailableError):
        await aggregate(bus, EventQuery(), window=HOUR, bucket=HOUR, who=ME)
    await bus.aclose()
    with pytest.raises(BusClosedError):
        await aggregate(bus, EventQuery(), window=HOUR, bucket=HOUR, who=ME)


@given(st.lists(st.integers(-200, 200)), st.integers(1, 10), st.integers(1, 30))
def test_every_event_of_the_window_is_counted_once(offsets: list[int], count: int, width: int) -> None:
    """The counts add up to the events in [now - window, now), each in the bucket that holds its time."""
    bucket = timedelta(seconds=width)
    events = [_paused(START + timedelta(seconds=offset)) for offset in offsets]
    buckets = count_buckets(events, START, count * bucket, bucket)
    assert len(buckets) == count
    for one in buckets:
        inside = [event for event in events if event.occurred_at and one.start <= event.occurred_at < one.end]
        assert one.counts.get("task.paused", 0) == len(inside)


def test_events_without_a_time_are_not_counted() -> None:
    """An event that was never published happened at no time."""
    assert _counts(count_buckets([_paused()], START, HOUR, HOUR)) == [{}]
