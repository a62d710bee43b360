"""The fake clock moves by hand, fires timers in order and lets tasks run between them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage.clock import Timers, sleep, timers_of
from harborage.testing.clock import FakeClock, settle

START = datetime(2026, 1, 1, tzinfo=UTC)


def test_it_stands_still_until_it_is_moved() -> None:
    """The clock shows its start until somebody advances it, and then exactly that much more."""
    clock = FakeClock()
    assert (clock.now(), clock.monotonic()) == (START, 0.0)
    clock.advance(90.5)
    assert (clock.now(), clock.monotonic()) == (START + timedelta(seconds=90.5), 90.5)


def test_it_is_a_clock_with_timers() -> None:
    """Code that asks whether a clock can also wake somebody gets the fake clock itself."""
    clock = FakeClock()
    assert isinstance(clock, Timers)
    assert timers_of(clock) is clock


def test_a_start_in_another_zone_is_shown_in_utc() -> None:
    """The time is always UTC, whatever zone the start was written in."""
    start = datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    assert FakeClock(start).now().utcoffset() == timedelta(0)
    assert FakeClock(start).now() == START


def test_a_naive_start_is_refused() -> None:
    """A start without a zone is an error that says how to write it."""
    with pytest.raises(ValueError, match="tzinfo=UTC"):
        FakeClock(datetime(2026, 1, 1))


def test_timers_fire_in_order_of_time_and_ties_in_order_of_arming() -> None:
    """Whatever order they were armed in, timers fire by due time, and equals by arming."""
    clock = FakeClock()
    fired: list[str] = []
    for delay, name in ((3, "late"), (1, "early"), (2, "tie one"), (2, "tie two")):
        clock.call_later(delay, lambda name=name: fired.append(name))
    clock.advance(3)
    assert fired == ["early", "tie one", "tie two", "late"]


def test_each_timer_sees_its_own_time() -> None:
    """During one long advance the clock stands at each timer's time when that fires, and at the end afterwards."""
    clock = FakeClock()
    seen: list[datetime] = []
    clock.call_later(1, lambda: seen.append(clock.now()))
    clock.call_later(5, lambda: seen.append(clock.now()))
    clock.advance(10)
    assert seen == [START + timedelta(seconds=1), START + timedelta(seconds=5)]
    assert clock.now() == START + timedelta(seconds=10)


def test_a_timer_is_due_exactly_at_its_time_and_not_before() -> None:
    """A nanosecond short it waits; at the very moment it fires, once."""
    clock = FakeClock()
    fired: list[int] = []
    clock.call_later(1, lambda: fired.append(1))
    clock.advance(0.999999999)
    assert fired == []
    clock.advance(0.000000001)
    clock.advance(100)
    assert fired == [1]


def test_ten_tenths_are_one_second() -> None:
    """Steps that binary fractions cannot hold still add up exactly."""
    clock = FakeClock()
    fired: list[int] = []
    clock.call_later(0.8, lambda: fired.append(1))
    clock.advance(0.7)
    clock.advance(0.1)
    assert fired == [1]
    clock.advance(0.2)
    assert clock.now() == START + timedelta(seconds=1)


def test_a_cancelled_timer_never_fires() -> None:
    """Cancelling calls the wake-up off, even from a timer that fires just before it."""
    clock = FakeClock()
    fired: list[str] = []
    victim = clock.call_later(2, lambda: fired.append("victim"))
    clock.call_later(2, lambda: fired.append("other"))
    clock.call_later(1, victim.cancel)
    clock.advance(5)
    assert fired == ["other"]
    assert not victim.is_armed


def test_cancelling_after_it_fired_does_nothing() -> None:
    """A timer may be cancelled late without harm."""
    clock = FakeClock()
    fired: list[int] = []
    timer = clock.call_later(1, lambda: fired.append(1))
    clock.advance(1)
    timer.cancel()
    assert fired == [1]


def test_timers_armed_by_timers_fire_in_the_same_advance() -> None:
    """A chain of one-second timers runs as far as the advance reaches."""
    clock = FakeClock()
    ticks: list[float] = []

    def tick() -> None:
        ticks.append(clock.monotonic())
        clock.call_later(1, tick)

    clock.call_later(1, tick)
    clock.advance(3.5)
    assert ticks == [1.0, 2.0, 3.0]


def test_what_a_timer_raises_comes_out_and_the_others_stay_armed() -> None:
    """A failing timer stops the advance at its time; the next advance goes on from there."""
    clock = FakeClock()
    fired: list[str] = []

    def fail() -> None:
        raise RuntimeError("boom")

    clock.call_later(1, fail)
    clock.call_later(1, lambda: fired.append("twin"))
    clock.call_later(2, lambda: fired.append("later"))
    with pytest.raises(RuntimeError, match="boom"):
        clock.advance(10)
    assert (clock.monotonic(), fired) == (1.0, [])
    clock.advance(9)
    assert (clock.monotonic(), fired) == (10.0, ["twin", "later"])


def test_time_never_goes_back() -> None:
    """A negative advance is refused and a timer that advances the clock itself cannot be undone."""
    clock = FakeClock()
    with pytest.raises(ValueError, match="forward"):
        clock.advance(-1)
    clock.call_later(1, lambda: clock.advance(10))
    clock.advance(2)
    assert clock.monotonic() == 11.0


def test_it_lists_what_is_still_armed() -> None:
    """A test can see how many timers are left."""
    clock = FakeClock()
    assert clock.armed == 0
    first = clock.call_later(2, lambda: None)
    clock.call_later(5, lambda: None)
    assert clock.armed == 2
    first.cancel()
    assert clock.armed == 1
    clock.advance(5)
    assert clock.armed == 0


def test_without_a_loop_a_timer_with_no_delay_waits_for_the_next_advance() -> None:
    """Where no loop runs there is no next turn, so moving by nothing fires what is due."""
    clock = FakeClock()
    fired: list[int] = []
    clock.call_later(-1, lambda: fired.append(1))
    assert fired == []
    clock.advance(0)
    assert fired == [1]


async def test_a_timer_with_no_delay_fires_at_the_next_turn_of_the_loop() -> None:
    """On a running loop a non-positive delay needs no advance, and never fires inside the call that armed it."""
    clock = FakeClock()
    fired: list[str] = []
    clock.call_later(0, lambda: fired.append("now"))
    cancelled = clock.call_later(-5, lambda: fired.append("never"))
    cancelled.cancel()
    assert fired == []
    await asyncio.sleep(0)
    assert fired == ["now"]


async def test_sleepers_wake_when_the_clock_reaches_them() -> None:
    """`harborage.clock.sleep` on a fake clock ends when run_for passes its time and not before."""
    clock = FakeClock()
    sleeper = asyncio.create_task(sleep(clock, 10))
    await clock.run_for(9.9)
    assert not sleeper.done()
    await clock.run_for(0.1)
    assert sleeper.done()


async def test_run_for_lets_tasks_run_between_timers() -> None:
    """A task that sleeps again and again gets every one of its turns at the right time."""
    clock = FakeClock()
    seen: list[float] = []

    async def beat() -> None:
        for _ in range(3):
            await sleep(clock, 1)
            await asyncio.sleep(0)
            seen.append(clock.monotonic())

    beating = asyncio.create_task(beat())
    await clock.run_for(10)
    assert seen == [1.0, 2.0, 3.0]
    assert beating.done()
    assert clock.monotonic() == 10.0


async def test_run_for_starts_tasks_before_it_moves() -> None:
    """A task created just before run_for arms its timer at the old time."""
    clock = FakeClock()
    done: list[float] = []

    async def work() -> None:
        await sleep(clock, 5)
        done.append(clock.monotonic())

    working = asyncio.create_task(work())
    await clock.run_for(5)
    assert done == [5.0]
    assert working.done()


async def test_tasks_see_the_end_before_run_for_returns() -> None:
    """A task that watches the time, without a timer, notices that it has come."""
    clock = FakeClock()

    async def watch() -> None:
        while clock.monotonic() < 5:
            await settle(1)

    watching = asyncio.create_task(watch())
    await clock.run_for(5)
    assert watching.done()


async def test_run_for_does_not_spin_on_a_timer_that_rearms_itself_at_once() -> None:
    """Tasks still run when a timer keeps asking for the same moment."""
    clock = FakeClock()
    left = 5
    seen: list[int] = []

    def again() -> None:
        nonlocal left
        left -= 1
        if left:
            clock.call_later(0, again)

    async def watch() -> None:
        while left:
            seen.append(left)
            await asyncio.sleep(0)

    clock.call_later(1, again)
    watching = asyncio.create_task(watch())
    await clock.run_for(1)
    assert watching.done()
    assert 4 in seen


async def test_settle_runs_what_is_ready_and_moves_no_clock() -> None:
    """Settling takes a chain of ready awaits to its end."""
    steps: list[int] = []

    async def work() -> None:
        for step in range(10):
            await asyncio.sleep(0)
            steps.append(step)

    working = asyncio.create_task(work())
    await settle()
    assert working.done()
    assert steps == list(range(10))


@given(st.lists(st.integers(0, 10_000), max_size=30), st.lists(st.integers(0, 3_000), min_size=1, max_size=30))
def test_however_it_is_moved_each_timer_fires_once_at_its_time(delays_ms: list[int], steps_ms: list[int]) -> None:
    """Any timers and any steps: what lies within the steps fired exactly once, in order, at its own time."""
    clock = FakeClock()
    fired: list[tuple[int, int]] = []
    for index, delay in enumerate(delays_ms):
        clock.call_later(delay / 1000, lambda index=index: fired.append((round(clock.monotonic() * 1000), index)))
    for step in steps_ms:
        clock.advance(step / 1000)
    total = sum(steps_ms)
    assert fired == sorted((delay, index) for index, delay in enumerate(delays_ms) if delay <= total)
    assert clock.armed == len(delays_ms) - len(fired)
