"""One subscriber's queue: reading, ending, the report of lost events, and the idle timeout."""

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


async def test_a_waiting_subscriber_is_woken(bus: MemoryEventBus, make_event: MakeEvent) -> None:
    """Reading waits for the next event and returns it."""
    reader = bus.subscribe(MINE)
    waiting = asyncio.create_task(anext(aiter(reader)))
    await settle()
    assert not waiting.done()
    published = await bus.publish(make_event())
    assert await waiting == published


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


async def test_cancelling_ends_a_waiting_subscriber(bus: MemoryEventBus) -> None:
    """A subscriber that waits when its subscription is cancelled comes to an end."""
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
    """A subscriber that gives up waiting can come back and gets the next event."""
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
    """A publisher never waits: the newest events stay."""
    bus = make_bus(subscriber_buffer_size=4)
    reader = bus.subscribe(MINE)
    _fill(bus, 10)
    assert _sequences(reader.drain()[1:]) == [7, 8, 9, 10]


async def test_a_loss_is_reported_before_the_next_event(make_bus: MakeBus) -> None:
    """The next thing it reads says from where to where and how many, though no further event comes."""
    bus = make_bus(subscriber_buffer_size=4)
    reader = bus.subscribe(MINE)
    _fill(bus, 25)
    notice = await anext(reader)
    assert (notice.type, notice.identity, notice.sequence) == (EventType.BUS_DROPPED, WHO, 21)
    assert notice.payload == BusDroppedPayload(1, 21, 21, reader.id)
    assert notice.occurred_at is not None
    assert _sequences(reader.drain()) == [22, 23, 24, 25]


async def test_each_loss_is_reported_at_its_place(make_bus: MakeBus) -> None:
    """A subscriber that falls behind again gets another report; between two losses it reads the events that stayed."""
    bus = make_bus(subscriber_buffer_size=2)
    reader = bus.subscribe(MINE)
    for _ in range(3):
        _fill(bus, 3)
        seen = [await anext(reader) for _ in range(2)]
        assert [event.type for event in seen] == [EventType.BUS_DROPPED, EventType.TASK_PAUSED]
    assert _sequences(reader.drain()) == [9]


async def test_a_loss_is_reported_after_the_stream_was_cancelled(make_bus: MakeBus) -> None:
    """What is left to read after the end begins with what is not."""
    bus = make_bus(subscriber_buffer_size=2)
    reader = bus.subscribe(MINE)
    _fill(bus, 3)
    reader.cancel()
    assert [event.type async for event in reader] == ["bus.dropped", "task.paused", "task.paused"]


def test_nothing_lost_means_no_notice(make_bus: MakeBus, clock: FakeClock) -> None:
    """A subscriber that keeps up gets no report of losses."""
    bus = make_bus(subscriber_buffer_size=4)
    reader = bus.subscribe(MINE)
    for _ in range(5):
        _fill(bus, 4)
        clock.advance(2)
        assert all(event.type == EventType.TASK_PAUSED for event in reader.drain())


async def test_a_notice_is_for_its_subscriber_alone(make_bus: MakeBus) -> None:
    """Other subscribers do not see it, and no replay has it: it takes no place in the window."""
    bus = make_bus(subscriber_buffer_size=2)
    slow, quick, admin = bus.subscribe(MINE), bus.subscribe(MINE), bus.subscribe(Filter(admin=True))
    for _ in range(3):
        _fill(bus, 1)
        assert [event.type for event in quick.drain()] == ["task.paused"]
        admin.drain()
    assert EventType.BUS_DROPPED in [event.type for event in slow.drain()]
    assert admin.drain() == []
    assert {event.type for event in await bus.replay(Cursor(), MINE)} == {"task.paused"}


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
    """Whatever the pace of reading, each event was either read or is in a reported range."""
    clock = FakeClock()
    config = BusConfig(subscriber_buffer_size=capacity, idle_timeout_s=1e6)
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
    _check_account(bus, read)


def _read(reader: Subscription, amount: int) -> list[Event]:
    """Up to `amount` events, without a loop."""
    read: list[Event] = []
    while len(reader) and len(read) < amount:
        with pytest.raises(StopIteration) as one:
            reader.__anext__().send(None)
        read.append(one.value.value)
    return read


def _check_account(bus: MemoryEventBus, read: list[Event]) -> None:
    sequences = _sequences(read)
    assert sequences == sorted(set(sequences))
    published = [event.payload for event in read if isinstance(event.payload, BusDroppedPayload)]
    got = {event.sequence for event in read if event.type != EventType.BUS_DROPPED}
    missing = {event.sequence for event in bus._buffer.after(0) if event.identity == WHO} - got
    assert sum(notice.dropped_count for notice in published) == len(missing)
    for notice in published:
        between = {number for number in missing if notice.from_seq <= number <= notice.to_seq}
        assert len(between) == notice.dropped_count
        assert not got & set(range(notice.from_seq, notice.to_seq + 1))


# Idling.


def test_a_subscriber_that_does_not_read_is_closed(make_bus: MakeBus, clock: FakeClock) -> None:
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


async def test_an_idle_subscriber_reads_to_the_end(make_bus: MakeBus, clock: FakeClock) -> None:
    """A subscriber that wakes up late sees its last events, the notice, and the end."""
    bus = make_bus()
    reader = bus.subscribe(MINE)
    _fill(bus, 1)
    await clock.run_for(60)
    assert [event.type async for event in reader] == ["task.paused", "bus.subscription_idle_closed"]


def test_a_quiet_subscriber_is_never_closed(make_bus: MakeBus, clock: FakeClock) -> None:
    """Without unread events a subscription is not idle, and no timer is set for it."""
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
    """A subscriber that only ever loses events is closed while they keep coming, and gets a report of the loss."""
    bus = make_bus(subscriber_buffer_size=4)
    reader = bus.subscribe(MINE)
    _fill(bus, 4)
    for _ in range(12):
        clock.advance(5)
        _fill(bus, 1)
    assert reader.is_closed
    events = reader.drain()
    assert events[-1].type == EventType.BUS_SUBSCRIPTION_IDLE_CLOSED
    assert events[0].type == EventType.BUS_DROPPED
    assert len(events) == 5
    assert _sequences(events) == sorted(_sequences(events))


def test_an_idle_subscriber_frees_its_place(make_bus: MakeBus, clock: FakeClock) -> None:
    """A subscriber that was closed for idling no longer counts and gets nothing any more."""
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


def test_subscriptions_are_swept_four_times_an_idle_timeout(make_bus: MakeBus, clock: FakeClock) -> None:
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
def test_odd_times_delay_no_close(make_bus: MakeBus, clock: FakeClock, offset: float) -> None:
    """An idle subscriber is not closed late because of how floats round."""
    bus = make_bus(subscriber_buffer_size=1)
    clock.advance(offset)
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


def test_without_timers_publishing_looks_for_idle_subscriptions(make_event: MakeEvent) -> None:
    """Where no loop runs to wake the bus, the next event closes idle subscriptions before it is delivered."""

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
    """Closing the bus cancels the timer for idle subscriptions."""
    bus = make_bus()
    bus.subscribe(MINE)
    _fill(bus, 1)
    assert clock.armed == 1
    await bus.aclose()
    assert clock.armed == 0
