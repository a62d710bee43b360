"""Counting events for a client: which scope its filter needs, which bus filter it becomes, and the buckets."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage.events import (
    AggregateBadWindowError,
    BusClosedError,
    ClientFilter,
    Event,
    EventBucket,
    EventType,
    Filter,
    MemoryEventBus,
    ReplayUnavailableError,
    TaskPausedPayload,
    TaskStartedPayload,
    aggregate,
    bus_filter,
    count_buckets,
    needs_admin,
    selects,
)
from harborage.identity import AdminScopeRequiredError, Identity, IdentityRequiredError, Quadruple, bound
from harborage.testing.clock import FakeClock
from tests.kit.tables import each_row

ME = Identity("t", "u", "s")
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
NONE: frozenset[str] = frozenset()
WHO = Quadruple("t", "u", "s", "r")
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
START = FakeClock().now()


@each_row(
    "wanted, is_admin",
    [
        (ClientFilter(), False),
        (ClientFilter(tenant_ids=("t",), user_ids=("u",), session_ids=("s",)), False),
        (ClientFilter(tenant_ids=("", "t")), False),
        (ClientFilter(session_ids=("elsewhere",)), False),
        (ClientFilter(user_ids=("other",), session_ids=("elsewhere",)), True),
        (ClientFilter(user_ids=("other",)), True),
        (ClientFilter(run_ids=("a", "b")), False),
        (ClientFilter(tenant_ids=("x",)), True),
        (ClientFilter(tenant_ids=("t", "x")), True),
        (ClientFilter(user_ids=("u", "v")), True),
        (ClientFilter(session_ids=("s", "z")), True),
    ],
)
def test_reaching_beyond_one_session_needs_a_scope(wanted: ClientFilter, is_admin: bool) -> None:
    """Another tenant, another user, or more than one session; a single other session of one's own does not."""
    assert needs_admin(wanted, ME) is is_admin


def test_an_empty_filter_is_the_caller_s_own_session() -> None:
    """Empty lists and blanks mean the caller's own; blank types are skipped."""
    wanted = ClientFilter(tenant_ids=("",), event_types=("", "task.paused"))
    assert bus_filter(wanted, ME, NONE) == Filter("t", "u", "s", types=("task.paused",))


def test_one_run_narrows_and_several_do_not() -> None:
    """A run becomes part of the filter only when it is the only one."""
    assert bus_filter(ClientFilter(run_ids=("r",)), ME, NONE).run == "r"
    assert bus_filter(ClientFilter(run_ids=("r", "q")), ME, NONE).run == ""


@pytest.mark.parametrize("scope", ["admin", "console:fleet"])
def test_either_scope_opens_other_tenants(scope: str) -> None:
    """With one of the two scopes the filter is an admin's, and says what was asked for."""
    wanted = ClientFilter(tenant_ids=("x",))
    with pytest.raises(AdminScopeRequiredError):
        bus_filter(wanted, ME, frozenset({"tools"}))
    assert bus_filter(wanted, ME, frozenset({scope})) == Filter("x", "u", "s", admin=True)


def _event(who: Quadruple, at: datetime | None = NOW) -> Event:
    return Event(EventType.TASK_PAUSED, who, TaskPausedPayload("task"), at)


@each_row(
    "wanted, who, is_selected",
    [
        (ClientFilter(tenant_ids=("x", "y")), Quadruple("y", "u", "s"), True),
        (ClientFilter(tenant_ids=("x", "y")), Quadruple("t", "u", "s"), False),
        (ClientFilter(tenant_ids=("x",)), Quadruple("x", "other", "s"), False),
        (ClientFilter(session_ids=("a", "b")), Quadruple("t", "u", "b"), True),
        (ClientFilter(session_ids=("a", "b")), Quadruple("t", "u", "s"), False),
        (ClientFilter(run_ids=("r",), tenant_ids=("x",)), Quadruple("x", "u", "s", "q"), False),
        (ClientFilter(run_ids=("r", "q"), tenant_ids=("x",)), Quadruple("x", "u", "s", "z"), True),
        (ClientFilter(event_types=("task.failed",)), Quadruple("t", "u", "s"), False),
        (ClientFilter(event_types=("",)), Quadruple("t", "u", "s"), True),
    ],
)
def test_an_answer_holds_only_what_was_listed(wanted: ClientFilter, who: Quadruple, is_selected: bool) -> None:
    """What an admin filter lets through too much is left out again."""
    assert selects(wanted, ME, _event(who)) is is_selected


def test_since_is_included_and_until_is_not() -> None:
    """A time range is closed at its start and open at its end; an event without a time is in no range."""
    who, second = ME.with_run(""), timedelta(seconds=1)
    wanted = ClientFilter(since=NOW, until=NOW + second)
    assert selects(wanted, ME, _event(who, NOW))
    assert not selects(wanted, ME, _event(who, NOW - second))
    assert not selects(wanted, ME, _event(who, NOW + second))
    assert not selects(wanted, ME, _event(who, None))


def _paused(at: datetime | None = None, who: Quadruple = WHO) -> Event:
    return Event(EventType.TASK_PAUSED, who, TaskPausedPayload("task"), at)


def _started() -> Event:
    return Event(EventType.TASK_STARTED, WHO, TaskStartedPayload("task", "pending"))


def _counts(buckets: list[EventBucket]) -> list[dict[str, int]]:
    return [bucket.counts for bucket in buckets]


@pytest.mark.anyio
async def test_buckets_are_contiguous_and_count_by_type(bus: MemoryEventBus, clock: FakeClock) -> None:
    """The oldest bucket comes first; a bucket in which nothing happened is empty."""
    bus.publish_nowait(_paused())
    bus.publish_nowait(_started())
    bus.publish_nowait(_paused())
    clock.advance(120)
    bus.publish_nowait(_started())
    clock.advance(30)
    buckets = await aggregate(bus, ClientFilter(), window=3 * MINUTE, bucket=MINUTE, who=ME, clock=clock)
    assert _counts(buckets) == [{"task.paused": 2, "task.started": 1}, {}, {"task.started": 1}]
    assert [bucket.end for bucket in buckets[:-1]] == [bucket.start for bucket in buckets[1:]]
    assert (buckets[0].start, buckets[-1].end) == (clock.now() - 3 * MINUTE, clock.now())


@pytest.mark.anyio
async def test_the_window_ends_just_before_now(bus: MemoryEventBus, clock: FakeClock) -> None:
    """An event stamped exactly now is left out, one stamped exactly a window ago is counted."""
    bus.publish_nowait(_paused())
    clock.advance(60)
    bus.publish_nowait(_started())
    buckets = await aggregate(bus, ClientFilter(), window=MINUTE, bucket=MINUTE, who=ME, clock=clock)
    assert _counts(buckets) == [{"task.paused": 1}]


@pytest.mark.anyio
async def test_since_and_until_narrow_the_window(bus: MemoryEventBus, clock: FakeClock) -> None:
    """What counts lies in the window and in the asked-for time."""
    for _ in range(4):
        bus.publish_nowait(_paused())
        clock.advance(60)
    wanted = ClientFilter(since=START + MINUTE, until=START + 2 * MINUTE)
    buckets = await aggregate(bus, wanted, window=4 * MINUTE, bucket=MINUTE, who=ME, clock=clock)
    assert _counts(buckets) == [{}, {"task.paused": 1}, {}, {}]


@pytest.mark.anyio
async def test_only_the_caller_s_own_events_count(bus: MemoryEventBus, clock: FakeClock) -> None:
    """Without lists another session's events are not counted."""
    bus.publish_nowait(_paused(who=Quadruple("t", "u", "other")))
    clock.advance(1)
    buckets = await aggregate(bus, ClientFilter(), window=MINUTE, bucket=MINUTE, who=ME, clock=clock)
    assert _counts(buckets) == [{}]


@pytest.mark.anyio
async def test_another_tenant_needs_a_scope_and_then_only_it_counts(bus: MemoryEventBus, clock: FakeClock) -> None:
    """An admin's count holds the tenants that were named, not everything, and not its own audit."""
    bus.publish_nowait(_paused(who=Quadruple("x", "u", "s")))
    bus.publish_nowait(_paused())
    clock.advance(1)
    wanted = ClientFilter(tenant_ids=("x",))
    with pytest.raises(AdminScopeRequiredError):
        await aggregate(bus, wanted, window=MINUTE, bucket=MINUTE, who=ME, clock=clock)
    with bound(ME, scopes=frozenset({"console:fleet"})):
        buckets = await aggregate(bus, wanted, window=MINUTE, bucket=MINUTE, clock=clock)
    assert _counts(buckets) == [{"task.paused": 1}]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("window", "bucket"),
    [(HOUR, timedelta(minutes=7)), (timedelta(0), MINUTE), (HOUR, timedelta(0)), (-HOUR, MINUTE), (HOUR, -MINUTE),
     (MINUTE, HOUR)],
)  # fmt: skip
async def test_a_window_is_a_whole_number_of_buckets(bus: MemoryEventBus, window: timedelta, bucket: timedelta) -> None:
    """Anything else is refused, before the caller is looked at."""
    with pytest.raises(AggregateBadWindowError):
        await aggregate(bus, ClientFilter(), window=window, bucket=bucket)
    with pytest.raises(AggregateBadWindowError):
        count_buckets([], START, window, bucket)


@pytest.mark.anyio
async def test_the_caller_must_be_known(bus: MemoryEventBus) -> None:
    """Neither given nor bound: refused."""
    with pytest.raises(IdentityRequiredError):
        await aggregate(bus, ClientFilter(), window=HOUR, bucket=HOUR)


@pytest.mark.anyio
async def test_counting_needs_a_window_to_replay(make_bus: Callable[..., MemoryEventBus]) -> None:
    """A bus without a replay buffer cannot count, and a closed one does nothing."""
    bus = make_bus(replay_buffer_size=0)
    with pytest.raises(ReplayUnavailableError):
        await aggregate(bus, ClientFilter(), window=HOUR, bucket=HOUR, who=ME)
    await bus.aclose()
    with pytest.raises(BusClosedError):
        await aggregate(bus, ClientFilter(), window=HOUR, bucket=HOUR, who=ME)


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
