"""A clock that moves only when a test moves it, so that no test ever sleeps.

It replaces the system clock wherever a `harborage.clock.Timers` is expected. It never reads the real time and fires no
timer on its own.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count

_NS = 1_000_000_000
_SETTLE_TURNS = 32


async def settle(turns: int = _SETTLE_TURNS) -> None:
    """Give ready tasks `turns` turns of the loop, without moving the clock.

    Work in threads is not waited for: await that itself.
    """
    for _ in range(turns):
        await asyncio.sleep(0)


class FakeTimer:
    """One armed wake-up of a `FakeClock`; timers sort by due time, then by order of arming."""

    __slots__ = ("_wake", "due_ns", "order")

    def __init__(self, due_ns: int, order: int, wake: Callable[[], None]) -> None:
        self.due_ns = due_ns
        self.order = order
        self._wake: Callable[[], None] | None = wake

    def __lt__(self, other: FakeTimer) -> bool:
        return (self.due_ns, self.order) < (other.due_ns, other.order)

    @property
    def is_armed(self) -> bool:
        """Whether it will still fire."""
        return self._wake is not None

    def cancel(self) -> None:
        """Cancel the timer; after it fired this does nothing."""
        self._wake = None

    def fire(self) -> None:
        """Call the function that it was armed with, at most once."""
        wake, self._wake = self._wake, None
        if wake is not None:
            wake()


class FakeClock:
    """Time for tests: it shows `start` until `advance` or `run_for` moves it.

    Durations are whole nanoseconds, so ten steps of 0.1 s are exactly one second. A timer without delay fires
    at the next turn of the running loop, or at the next `advance` when no loop runs.
    """

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        if start.tzinfo is None:
            raise ValueError("start needs a time zone: FakeClock(datetime(…, tzinfo=UTC))")
        self._start = start.astimezone(UTC)
        self._elapsed_ns = 0
        self._timers: list[FakeTimer] = []
        self._order = count()

    def now(self) -> datetime:
        """Return the time of this clock, in UTC, in whole microseconds."""
        return self._start + timedelta(microseconds=self._elapsed_ns // 1000)

    def monotonic(self) -> float:
        """Return the seconds by which the clock has moved."""
        return self._elapsed_ns / _NS

    def call_later(self, delay_s: float, wake: Callable[[], None]) -> FakeTimer:
        """Arm a timer that calls `wake` once, when the clock has moved `delay_s` seconds."""
        timer = FakeTimer(self._elapsed_ns + max(0, round(delay_s * _NS)), next(self._order), wake)
        heapq.heappush(self._timers, timer)
        if timer.due_ns <= self._elapsed_ns:
            self._fire_soon()
        return timer

    @property
    def armed(self) -> int:
        """The number of timers that will still fire: zero when a test left none behind."""
        return sum(timer.is_armed for timer in self._timers)

    def advance(self, seconds: float) -> None:
        """Move `seconds` on, firing what falls due in order of time, ties in order of arming.

        Each timer sees the clock at its own time, and may arm further timers that fire in the same call. Tasks do not
        run meanwhile; `run_for` lets them. An error of a timer is raised here, with the clock at its time.

        Raises:
            ValueError: `seconds` is negative.
        """
        end = self._end(seconds)
        while (due := self._next_due()) is not None and due <= end:
            self._fire_due(due)
        self._move_to(end)

    async def run_for(self, seconds: float) -> None:
        """Move `seconds` on like `advance`, and let ready tasks run before the first, between and after the timers.

        Raises:
            ValueError: `seconds` is negative.
        """
        end = self._end(seconds)
        await settle()
        while (due := self._next_due()) is not None and due <= end:
            self._fire_due(due)
            await settle()
        self._move_to(end)
        await settle()

    def _end(self, seconds: float) -> int:
        if seconds < 0:
            raise ValueError(f"time only goes forward: cannot advance by {seconds} s")
        return self._elapsed_ns + round(seconds * _NS)

    def _move_to(self, end_ns: int) -> None:
        # A timer or a task may have moved the clock past the end; it never moves back.
        self._elapsed_ns = max(self._elapsed_ns, end_ns)

    def _next_due(self) -> int | None:
        while self._timers and not self._timers[0].is_armed:
            heapq.heappop(self._timers)
        return max(self._timers[0].due_ns, self._elapsed_ns) if self._timers else None

    def _fire_due(self, due_ns: int) -> None:
        """Move to `due_ns` and fire what is due there; a timer armed meanwhile waits for the next call."""
        self._elapsed_ns = due_ns
        newcomer = next(self._order)
        while self._timers and self._timers[0].due_ns <= due_ns and self._timers[0].order < newcomer:
            # Popped before it fires: when it raises, the others stay armed.
            heapq.heappop(self._timers).fire()

    def _fire_soon(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # without a loop there is no next turn; `advance(0)` fires it
        loop.call_soon(lambda: self._fire_due(self._elapsed_ns))
