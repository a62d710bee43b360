"""One reader's queue: reading, ending, losing events and being told so, and being closed for idling."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage.events import (
    BusConfig,
    BusDroppedPayload,
    BusSubscriptionIdleClosedPayload,
    Cursor,
    Event,
    EventType,
    Filter,
    Lost,
    MemoryEventBus,
    Subscription,
    TaskPausedPayload,
)
from harborage.identity import Quadruple
from harborage.testing.clock import FakeClock, FakeTimer, settle

pytestmark = pytest.mark.anyio

WHO = Quadruple("t", "u", "s", "r")
MINE = Filter("t", "u", "s")
MakeBus = Callable[..., MemoryEventBus]
MakeEvent = Callable[..., Event]


def _fill(bus: MemoryEventBus, count: int, who: Quadruple = WHO) -> None:
    for _ in range(count):
        bus.publish_nowait(Event(EventType.TASK_PAUSED, who, TaskPausedPayload("task")))


def _sequences(events: list[Event]) -> list[int]:
    return [event.sequence for event in events]


# Reading and ending.


async def test_a_waiting_reader_is_woken(bus: MemoryEventBus, make_event: MakeEvent) -> None:
    """Reading waits for the next event and returns it."""
    reader = bus.subscribe(MINE)
    waiting = asyncio.create_task(anext(aiter(reader)))
    await settle()
    assert not waiting.done()
    told = await bus.publish(make_event())
    assert await waiting == told


async def test_two_tasks_share_a_subscription(bus: MemoryEventBus) -> None:
    """Each event goes to one of the tasks that wait."""
    reader = bus.subscribe(MINE)
    waiting = [asyncio.create_task(anext(aiter(reader))) for _ in range(2)]
    await settle()
    _fill(bus, 1)
    await settle()
    assert [task.done() for task in waiting].count(True) == 1
    _fill(bus, 1)
    assert sorted(_sequences(await asyncio.gather(*waiting))) == [1, 2]


async def test_cancelling_ends_a_waiting_reader(bus: MemoryEventBus) -> None:
    """A reader that waits when its subscription is cancelled comes to an end."""
    reader = bus.subscribe(MINE)

    async def read() -> list[Event]:
        return [event async for event in reader.events()]

    waiting = asyncio.create_task(read())
    await settle()
    reader.cancel()
    assert await waiting == []


async def test_what_is_queued_can_be_read_after_cancelling(bus: MemoryEventBus) -> None:
    """The stream ends behind the events that were already there."""
    reader = bus.subscribe(MINE)
    _fill(bus, 3)
    reader.cancel()
    reader.cancel()
    assert [event.sequence async for event in reader] == [1, 2, 3]
    assert [event async for event in reader] == []


async def test_a_cancelled_wait_loses_nothing(bus: MemoryEventBus) -> None:
    """A reader that gives up waiting can come back and gets the next event."""
    reader = bus.subscribe(MINE)
    waiting = asyncio.create_task(anext(aiter(reader)))
    await settle()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    _fill(bus, 1)
    assert (await anext(aiter(reader))).sequence == 1


async def test_a_subscription_cancels_itself_at_the_end_of_a_block(bus: MemoryEventBus) -> None:
    """As a context manager it frees its place even when the block fails."""
    with pytest.raises(ZeroDivisionError), bus.subscribe(MINE) as reader:
        raise ZeroDivisionError
    assert reader.is_closed


async def test_draining_takes_everything_at_once(bus: MemoryEventBus) -> None:
    """Draining never waits and leaves the queue empty."""
    reader = bus.subscribe(MINE)
    assert reader.drain() == []
    _fill(bus, 2)
    assert _sequences(reader.drain()) == [1, 2]
    assert len(reader) == 0


# Losing events.


def test_a_full_queue_loses_its_oldest_event(make_bus: MakeBus) -> None:
    """A publisher never waits: the newest events are kept."""
    bus = make_bus(subscriber_buffer_size=4)
    reader = bus.subscribe(MINE)
    _fill(bus, 10)
    assert _sequences(reader.drain()) == [7, 8, 9, 10]


def test_a_reader_is_told_what_it_lost(make_bus: MakeBus, clock: FakeClock) -> None:
    """After the window the next event brings a notice with the range and the number of lost events."""
    bus = make_bus(subscriber_buffer_size=4)
    reader = bus.subscribe(MINE)
    _fill(bus, 24)
    clock.advance(2)
    _fill(bus, 1)
    *kept, notice = reader.drain()
    assert _sequences(kept) == [23, 24, 25]
    assert notice.type == EventType.BUS_DROPPED
    assert notice.identity == WHO
    assert notice.sequence == 26
    assert notice.payload == BusDroppedPayload(1, 25, 21, reader.id)


def test_a_notice_may_push_out_an_event_which_counts_later(make_bus: MakeBus, clock: FakeClock) -> None:
    """The event that makes room for a notice is told of in the next one."""
    bus = make_bus(subscriber_buffer_size=4)
    reader = bus.subscribe(MINE)
    _fill(bus, 5)
    clock.advance(1)
    _fill(bus, 1)
    assert _sequences(reader.drain()) == [4, 5, 6, 7]
    clock.advance(1)
    _fill(bus, 1)
    event, notice = reader.drain()
    assert event.sequence == 8
    assert notice.payload == BusDroppedPayload(3, 7, 1, reader.id)


async def test_a_notice_comes_at_most_once_a_window(make_bus: MakeBus, clock: FakeClock) -> None:
    """The first notice comes no earlier than one window after subscribing, the others one window apart."""
    bus = make_bus(subscriber_buffer_size=4, drop_window_s=1.0)
    start = clock.now()
    bus.subscribe(MINE)
    for _ in range(14):
        _fill(bus, 9)
        clock.advance(0.25)
    notices = [event for event in await bus.replay(Cursor(), MINE) if event.type == EventType.BUS_DROPPED]
    times = [event.occurred_at for event in notices if event.occurred_at is not None]
    assert [(at - start).total_seconds() for at in times] == [1.0, 2.0, 3.0]


def test_nothing_lost_means_no_notice(make_bus: MakeBus, clock: FakeClock) -> None:
    """A reader that keeps up is never told of losses."""
    bus = make_bus(subscriber_buffer_size=4)
    reader = bus.subscribe(MINE)
    for _ in range(5):
        _fill(bus, 4)
        clock.advance(2)
        assert all(event.type == EventType.TASK_PAUSED for event in reader.drain())


async def test_a_notice_is_for_its_reader_alone_but_can_be_replayed(make_bus: MakeBus, clock: FakeClock) -> None:
    """Other readers do not see it; it has a number of its own in the window."""
    bus = make_bus(subscriber_buffer_size=2)
    slow, quick, admin = bus.subscribe(MINE), bus.subscribe(MINE), bus.subscribe(Filter(admin=True))
    for _ in range(3):
        _fill(bus, 1)
        quick.drain()
        admin.drain()
    clock.advance(1)
    _fill(bus, 1)
    assert [event.type for event in quick.drain()] == ["task.paused"]
    assert EventType.BUS_DROPPED in [event.type for event in slow.drain()]
    told = [event.payload for event in await bus.replay(Cursor(), MINE) if event.type == EventType.BUS_DROPPED]
    assert [payload.subscriber_id for payload in told if isinstance(payload, BusDroppedPayload)] == [slow.id]


def test_a_notice_that_is_lost_is_told_of_by_the_next(make_bus: MakeBus, clock: FakeClock) -> None:
    """A notice that is pushed out unread hands on what it would have told."""
    bus = make_bus(subscriber_buffer_size=1)
    reader = bus.subscribe(MINE)
    _fill(bus, 3)
    clock.advance(1)
    _fill(bus, 1)
    clock.advance(1)
    _fill(bus, 1)
    (notice,) = reader.drain()
    assert isinstance(notice.payload, BusDroppedPayload)
    assert notice.payload.from_seq == 1
    assert notice.payload.dropped_count == 5
    assert reader.lost is not None
    assert reader.lost.count == 1


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 6)),
        st.tuples(st.just("elsewhere"), st.integers(1, 3)),
        st.tuples(st.just("read"), st.integers(1, 6)),
        st.tuples(st.just("wait"), st.integers(1, 5)),
    ),
    max_size=40,
)


@given(capacity=st.integers(1, 6), steps=STEPS)
def test_the_stream_and_its_notices_account_for_every_event(capacity: int, steps: list[tuple[str, int]]) -> None:
    """Whatever the pace of reading, each event was either read or lies in a range that the reader was told of."""
    clock = FakeClock()
    config = BusConfig(subscriber_buffer_size=capacity, drop_window_s=1.0, idle_timeout_s=1e6)
    bus = MemoryEventBus(config=config, clock=clock)
    reader = bus.subscribe(MINE)
    read: list[Event] = []
    for verb, amount in steps:
        if verb == "publish":
            _fill(bus, amount)
        elif verb == "elsewhere":
            _fill(bus, amount, Quadruple("x", "y", "z"))
        elif verb == "wait":
            clock.advance(amount / 3)
        else:
            read += _read(reader, amount)
    read += reader.drain()
    _check_account(bus, reader.lost, read)


def _read(reader: Subscription, amount: int) -> list[Event]:
    """Up to `amount` events, without a loop."""
    return [reader._queue.popleft() for _ in range(min(amount, len(reader)))]


def _check_account(bus: MemoryEventBus, lost: Lost | None, read: list[Event]) -> None:
    sequences = _sequences(read)
    assert sequences == sorted(set(sequences))
    told = [event.payload for event in read if isinstance(event.payload, BusDroppedPayload)]
    ranges = [(notice.from_seq, notice.to_seq, notice.dropped_count) for notice in told]
    if lost is not None:
        ranges.append((lost.from_seq, lost.to_seq, lost.count))
    everything = [event.sequence for event in bus._ring.after(0) if event.identity == WHO]
    missing = set(everything) - set(sequences)
    assert sum(count for _, _, count in ranges) == len(missing)
    assert all(any(low <= sequence <= high for low, high, _ in ranges) for sequence in missing)


# Idling.


def test_a_reader_that_does_not_read_is_closed(make_bus: MakeBus, clock: FakeClock) -> None:
    """After the idle time the stream ends with a notice; what was queued before can still be read."""
    bus = make_bus()
    reader = bus.subscribe(Filter("t", "u", "s", "r"))
    _fill(bus, 2)
    clock.advance(59.9)
    assert not reader.is_closed
    clock.advance(0.1)
    assert reader.is_closed
    first, second, notice = reader.drain()
    assert _sequences([first, second]) == [1, 2]
    assert notice.type == EventType.BUS_SUBSCRIPTION_IDLE_CLOSED
    assert notice.identity == Quadruple("t", "u", "s")
    assert notice.payload == BusSubscriptionIdleClosedPayload(reader.id, 60.0)
    assert notice.sequence == 3


async def test_an_idle_reader_reads_to_the_end(make_bus: MakeBus, clock: FakeClock) -> None:
    """A reader that wakes up late sees its last events, the notice, and the end."""
    bus = make_bus()
    reader = bus.subscribe(MINE)
    _fill(bus, 1)
    await clock.run_for(60)
    assert [event.type async for event in reader] == ["task.paused", "bus.subscription_idle_closed"]


def test_a_quiet_reader_is_never_closed(make_bus: MakeBus, clock: FakeClock) -> None:
    """With nothing to read there is nothing to reproach a reader with, and no timer to wake for it."""
    bus = make_bus()
    reader = bus.subscribe(MINE)
    clock.advance(600)
    assert not reader.is_closed
    _fill(bus, 1)
    assert clock.armed == 1
    assert len(reader.drain()) == 1
    clock.advance(600)
    assert not reader.is_closed
    assert clock.armed == 0


def test_room_in_the_queue_counts_as_life(make_bus: MakeBus, clock: FakeClock) -> None:
    """Each event that fits without pushing another out starts the idle time anew."""
    bus = make_bus(subscriber_buffer_size=8)
    reader = bus.subscribe(MINE)
    for _ in range(4):
        _fill(bus, 1)
        clock.advance(40)
    assert not reader.is_closed
    clock.advance(35)
    assert reader.is_closed


def test_a_queue_that_stays_full_is_no_sign_of_life(make_bus: MakeBus, clock: FakeClock) -> None:
    """A reader that only ever loses events is closed while they keep coming, and learns what it lost."""
    bus = make_bus(subscriber_buffer_size=4)
    reader = bus.subscribe(MINE)
    _fill(bus, 4)
    for _ in range(12):
        clock.advance(5)
        _fill(bus, 1)
    assert reader.is_closed
    events = reader.drain()
    assert events[-1].type == EventType.BUS_SUBSCRIPTION_IDLE_CLOSED
    assert events[-2].type == EventType.BUS_DROPPED
    assert len(events) == 4
    assert _sequences(events) == sorted(_sequences(events))


def test_an_idle_reader_frees_its_place(make_bus: MakeBus, clock: FakeClock) -> None:
    """A reader that was closed for idling no longer counts and gets nothing any more."""
    bus = make_bus(max_subscribers_per_session=1)
    reader = bus.subscribe(MINE)
    _fill(bus, 1)
    clock.advance(60)
    assert len(reader.drain()) == 2
    _fill(bus, 1)
    assert len(reader) == 0
    bus.subscribe(MINE)


def test_an_idle_admin_is_closed_under_its_filter(make_bus: MakeBus, clock: FakeClock) -> None:
    """An admin that does not read its own audit is closed too; the notice has the empty identity of its filter."""
    bus = make_bus()
    admin = bus.subscribe(Filter(admin=True))
    clock.advance(60)
    audit, notice = admin.drain()
    assert audit.type == EventType.AUDIT_ADMIN_SCOPE_USED
    assert (notice.type, notice.identity) == (EventType.BUS_SUBSCRIPTION_IDLE_CLOSED, Quadruple())


def test_readers_are_looked_at_four_times_an_idle_time(make_bus: MakeBus, clock: FakeClock) -> None:
    """An idle time that ends between two looks is noticed at the next one."""
    bus = make_bus(idle_timeout_s=8.0)
    reader = bus.subscribe(MINE)
    clock.advance(1.5)
    _fill(bus, 1)
    clock.advance(1)
    _fill(bus, 1)
    clock.advance(8.9)
    assert not reader.is_closed
    clock.advance(0.1)
    assert reader.is_closed
    assert reader.drain()[-1].payload == BusSubscriptionIdleClosedPayload(reader.id, 9.0)


def test_looking_never_happens_more_often_than_ten_times_a_second(make_bus: MakeBus, clock: FakeClock) -> None:
    """A tiny idle time is still only checked every 100 ms."""
    bus = make_bus(idle_timeout_s=0.01)
    reader = bus.subscribe(MINE)
    _fill(bus, 1)
    clock.advance(0.09)
    assert not reader.is_closed
    clock.advance(0.01)
    assert reader.is_closed


@pytest.mark.parametrize("offset", [0.1, 0.3, 0.7, 1.1, 2.2, 1e6 + 0.1])
def test_odd_times_make_nobody_wait_longer(make_bus: MakeBus, clock: FakeClock, offset: float) -> None:
    """Neither an idle reader nor a notice is late because of how floats round."""
    bus = make_bus(subscriber_buffer_size=1)
    clock.advance(offset)
    slow = bus.subscribe(MINE)
    _fill(bus, 2)
    clock.advance(1)
    _fill(bus, 1)
    assert slow.drain()[-1].type == EventType.BUS_DROPPED
    clock.advance(120)
    idle = bus.subscribe(MINE)
    _fill(bus, 1)
    clock.advance(60)
    assert idle.is_closed


def test_a_timer_that_fires_early_still_looks(make_event: MakeEvent) -> None:
    """A look that comes a little too soon finds nothing and is followed by the next one."""

    class Hasty(FakeClock):
        def call_later(self, delay_s: float, wake: Callable[[], None]) -> FakeTimer:
            return super().call_later(delay_s - 0.001, wake)

    clock = Hasty()
    bus = MemoryEventBus(clock=clock)
    reader = bus.subscribe(MINE)
    bus.publish_nowait(make_event())
    clock.advance(80)
    assert reader.is_closed


def test_without_timers_publishing_looks_for_idle_readers(make_event: MakeEvent) -> None:
    """Where no loop runs to wake the bus, the next event closes who idled, before it is told."""

    class Timeless(FakeClock):
        def call_later(self, delay_s: float, wake: Callable[[], None]) -> FakeTimer:
            raise RuntimeError("no running event loop")

    clock = Timeless()
    bus = MemoryEventBus(clock=clock)
    reader = bus.subscribe(MINE)
    bus.publish_nowait(make_event())
    clock.advance(61)
    bus.publish_nowait(make_event())
    assert [event.type for event in reader.drain()] == ["task.paused", "bus.subscription_idle_closed"]


async def test_a_closed_bus_leaves_no_timer(make_bus: MakeBus, clock: FakeClock) -> None:
    """Closing calls off the look at idle readers."""
    bus = make_bus()
    bus.subscribe(MINE)
    _fill(bus, 1)
    assert clock.armed == 1
    await bus.aclose()
    assert clock.armed == 0
