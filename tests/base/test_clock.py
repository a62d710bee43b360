"""The system clock tells UTC and wakes on the running loop; sleeping is a matter of the clock that is given."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from harborage.clock import SYSTEM_CLOCK, Clock, SystemClock, Timers, sleep, timers_of
from harborage.testing.clock import FakeClock


class WallOnly:
    """A clock that only tells the time."""

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)


def test_the_system_clock_is_in_utc() -> None:
    """Its time is aware, in UTC, and the machine's."""
    now = SYSTEM_CLOCK.now()
    assert now.utcoffset() == timedelta(0)
    assert abs(datetime.now(UTC) - now) < timedelta(minutes=1)


def test_monotonic_time_never_goes_back() -> None:
    """Differences are durations."""
    readings = [SYSTEM_CLOCK.monotonic() for _ in range(100)]
    assert readings == sorted(readings)


def test_a_clock_with_timers_differs_from_one_without() -> None:
    """Code that needs timers gets the clock's own, or the system's for a clock that only tells the time."""
    wall, fake = WallOnly(), FakeClock()
    assert isinstance(wall, Clock)
    assert not isinstance(wall, Timers)
    assert timers_of(wall) is SYSTEM_CLOCK
    assert timers_of(fake) is fake
    assert isinstance(SystemClock(), Timers)


@pytest.mark.parametrize("delay", [0, -5])
async def test_a_timer_without_delay_fires_at_once(delay: float) -> None:
    """A delay that is not positive means the next turn of the loop."""
    fired = asyncio.Event()
    SYSTEM_CLOCK.call_later(delay, fired.set)
    assert not fired.is_set()
    await fired.wait()


async def test_a_cancelled_timer_does_not_fire() -> None:
    """Calling it off before its turn is enough; afterwards it does nothing."""
    fired: list[str] = []
    cancelled = SYSTEM_CLOCK.call_later(0, lambda: fired.append("cancelled"))
    kept = SYSTEM_CLOCK.call_later(0, lambda: fired.append("kept"))
    cancelled.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    kept.cancel()
    assert fired == ["kept"]


async def test_sleeping_nothing_takes_one_turn() -> None:
    """Others run once; no timer is armed."""
    clock, order = FakeClock(), []

    async def other() -> None:
        order.append("other")

    task = asyncio.create_task(other())
    await sleep(clock, 0)
    order.append("slept")
    await sleep(clock, -1)
    assert order == ["other", "slept"]
    assert clock.armed == 0
    await task


async def test_a_cancelled_sleep_leaves_no_timer() -> None:
    """Whoever is cancelled while sleeping takes the timer along."""
    clock = FakeClock()
    sleeping = asyncio.create_task(sleep(clock, 10))
    await asyncio.sleep(0)
    assert clock.armed == 1
    sleeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sleeping
    assert clock.armed == 0


async def test_a_timer_that_fires_with_the_cancellation_does_no_harm() -> None:
    """When time is up in the very turn the sleeper is cancelled, the cancellation wins and nothing breaks."""
    clock = FakeClock()
    sleeping = asyncio.create_task(sleep(clock, 10))
    await asyncio.sleep(0)
    sleeping.cancel()
    clock.advance(10)
    with pytest.raises(asyncio.CancelledError):
        await sleeping
