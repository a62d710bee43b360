"""Waits of one length share a timer, and each still ends at its own time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from harborage.clock import SharedTimers
from harborage.testing.clock import FakeClock, FakeTimer


def test_waits_end_at_their_own_times_in_order() -> None:
    """Two waits of one length, begun apart, ring apart."""
    clock = FakeClock()
    timers = SharedTimers(clock)
    rung: list[str] = []
    timers.call_later(10, lambda: rung.append("first"))
    clock.advance(4)
    timers.call_later(10, lambda: rung.append("second"))
    clock.advance(6)
    assert rung == ["first"]
    clock.advance(4)
    assert rung == ["first", "second"]


def test_a_cancelled_wait_wakes_no_task() -> None:
    """Calling a wait off, twice even, leaves the others in line untouched."""
    clock = FakeClock()
    timers = SharedTimers(clock)
    rung: list[str] = []
    gone = timers.call_later(10, lambda: rung.append("gone"))
    timers.call_later(10, lambda: rung.append("stays"))
    gone.cancel()
    gone.cancel()
    clock.advance(10)
    assert rung == ["stays"]


def test_a_wait_begun_while_one_rings_is_not_lost() -> None:
    """Whoever is woken may wait again for the same length."""
    clock = FakeClock()
    timers = SharedTimers(clock)
    rung: list[float] = []
    timers.call_later(5, lambda: (rung.append(5), timers.call_later(5, lambda: rung.append(10)))[0])
    clock.advance(20)
    assert rung == [5, 10]


def test_a_wait_in_another_loop_has_a_timer_there() -> None:
    """A wait that begins in a new event loop does not rely on the timer of a loop that is closed."""
    asked: list[asyncio.AbstractEventLoop] = []

    class LoopClock(FakeClock):
        def call_later(self, delay_s: float, wake: Callable[[], None]) -> FakeTimer:
            asked.append(asyncio.get_running_loop())
            return super().call_later(delay_s, wake)

    timers = SharedTimers(LoopClock())

    async def wait_twice() -> None:
        timers.call_later(10, lambda: None)
        timers.call_later(10, lambda: None)

    asyncio.run(wait_twice())
    asyncio.run(wait_twice())
    assert len(asked) == 2
    assert asked[0] is not asked[1]


def test_a_wait_of_no_length_rings_at_once() -> None:
    """A length that is not positive goes to the clock itself."""
    clock = FakeClock()
    rung: list[int] = []
    SharedTimers(clock).call_later(0, lambda: rung.append(1))
    clock.advance(0)
    assert rung == [1]


def test_called_off_waits_do_not_pile_up_behind_a_long_one() -> None:
    """A thousand waits that were called off behind a living one are cleared out."""
    timers = SharedTimers(FakeClock())
    timers.call_later(30, lambda: None)
    for _ in range(1000):
        timers.call_later(30, lambda: None).cancel()
    assert len(timers._held[1][30]._places) < 200


@given(
    st.lists(
        st.tuples(st.sampled_from([1.0, 2.5, 7.0]), st.sampled_from([0.0, 0.25, 1.0, 3.0]), st.booleans()), max_size=40
    )
)
def test_it_rings_like_timers_of_ones_own(waits: list[tuple[float, float, bool]]) -> None:
    """Whatever is asked for and called off, the same waits ring at the same times as with separate timers."""
    shared, separate = FakeClock(), FakeClock()
    timers = SharedTimers(shared)
    rung: tuple[list[tuple[int, float]], list[tuple[int, float]]] = ([], [])
    for index, (length, later, is_called_off) in enumerate(waits):
        for clock, ask, out in ((shared, timers, rung[0]), (separate, separate, rung[1])):
            wait = ask.call_later(
                length, lambda index=index, clock=clock, out=out: out.append((index, round(clock.monotonic(), 2)))
            )
            clock.advance(later)
            if is_called_off:
                wait.cancel()
    shared.advance(20)
    separate.advance(20)
    assert sorted(rung[0]) == sorted(rung[1])
