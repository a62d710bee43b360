"""How many events a bus had of late is counted by the second, in a few numbers."""

from __future__ import annotations

import pytest

from harborage.events import Event, EventType, MemoryEventBus, RuntimeWarningPayload
from harborage.events.fanout import EventRate
from harborage.identity import Quadruple
from harborage.testing.clock import FakeClock


def test_a_rate_is_of_the_last_ten_seconds() -> None:
    """Events count for ten seconds, and then no longer; a gap of any length leaves nothing."""
    rate = EventRate(100.0)
    for at in (100.0, 100.5, 101.0, 104.9):
        rate.add(10, at)
    assert rate.per_second(105.0) == 8
    assert rate.per_second(109.0) == pytest.approx(40 / 9)
    assert rate.per_second(110.0) == 4
    assert rate.per_second(111.0) == 2
    assert rate.per_second(112.5) == pytest.approx(10 / 10.5)
    assert rate.per_second(115.0) == 0
    rate.add(5, 100_000.25)
    assert rate.per_second(100_001.0) == 0.5


def test_a_rate_of_a_moment_is_not_inflated() -> None:
    """What happened in the first second counts as one second's."""
    rate = EventRate(7.9)
    rate.add(3, 7.95)
    assert rate.per_second(7.95) == 3


@pytest.mark.anyio
async def test_a_bus_says_how_many_events_it_had() -> None:
    """Each published event is counted once, whether somebody subscribes or not."""
    clock = FakeClock()
    bus = MemoryEventBus(clock=clock)
    clock.advance(5)
    for _ in range(10):
        await bus.publish(Event(EventType.RUNTIME_WARNING, Quadruple("t", "u", "s"), RuntimeWarningPayload("hm")))
    clock.advance(5)
    assert bus.events_per_second == 1
    clock.advance(60)
    assert bus.events_per_second == 0
