"""Time as an argument: nothing in Harborage reads the wall clock behind the caller's back.

`Clock` has the time, which is all that most code needs. `Timers` also calls back later; the system clock and
the test kit's fake clock are both.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Protocol, runtime_checkable

import msgspec


@runtime_checkable
class Clock(Protocol):
    """Tells the time. Never: returns a naive datetime."""

    def now(self) -> datetime:
        """The current time in UTC."""
        ...


class Timer(Protocol):
    """A wake-up that has been asked for and can be called off."""

    def cancel(self) -> None:
        """Call the wake-up off; after it fired this does nothing."""
        ...


@runtime_checkable
class Timers(Clock, Protocol):
    """A clock that can also call back later."""

    def monotonic(self) -> float:
        """Seconds that only ever go up; differences are durations."""
        ...

    def call_later(self, delay_s: float, wake: Callable[[], None]) -> Timer:
        """Call `wake` once on the running loop, `delay_s` seconds from now (at once when not positive)."""
        ...


class SystemClock:
    """The machine's clock and the event loop's timers."""

    # Bound to the built-ins without a frame of our own: every step of every run asks for the time several times.
    now = staticmethod(partial(datetime.now, UTC))
    monotonic = staticmethod(time.monotonic)

    def call_later(self, delay_s: float, wake: Callable[[], None]) -> Timer:
        return asyncio.get_running_loop().call_later(max(0.0, delay_s), wake)


SYSTEM_CLOCK = SystemClock()


def dice() -> float:
    """A random number from 0 up to 1, for the jitter of a wait."""
    from random import random  # loaded by the first wait that needs it

    return random()


_MOST_LINES = 64
_FEWEST_CALLED_OFF = 64
# Clocks round: a remainder smaller than this may never pass.
_CLOSE_ENOUGH_S = 0.001


class SharedTimers:
    """Timers for many waits of the same few lengths that are nearly always called off, such as timeouts.

    Waits of one length end in the order they began, so they share a single timer of `clock`. Asking for
    one and calling it off costs a tenth of a timer of its own. Other lengths than the first 64 get timers of their own.
    Waits of different event loops share nothing: a timer of a loop that is closed never fires.
    """

    def __init__(self, clock: Timers) -> None:
        self._clock = clock
        self._held: tuple[asyncio.AbstractEventLoop | None, dict[float, _Line]] = (None, {})
        self.now = clock.now
        self.monotonic = clock.monotonic

    def call_later(self, delay_s: float, wake: Callable[[], None]) -> Timer:
        # Not `get_running_loop`, which raises where none runs: a fake clock needs none.
        running, (loop, lines) = asyncio._get_running_loop(), self._held
        if loop is not running:
            lines = {}
            self._held = running, lines  # both at once: another thread may run a loop of its own
        line = lines.get(delay_s)
        if line is None:
            if delay_s <= 0 or len(lines) >= _MOST_LINES:
                return self._clock.call_later(delay_s, wake)
            line = lines[delay_s] = _Line(self._clock, delay_s)
        return line.join(wake)


class _Place(msgspec.Struct):
    """One wait in a line; called off, it stays where it is and wakes no task."""

    at: float
    wake: Callable[[], None] | None
    line: _Line

    def cancel(self) -> None:
        if self.wake is not None:
            self.wake = None
            self.line.called_off += 1


class _Line:
    """The waits of one length, first to last, and the one timer for the first of them."""

    __slots__ = ("_clock", "_delay_s", "_places", "_timer", "called_off")

    def __init__(self, clock: Timers, delay_s: float) -> None:
        self._clock = clock
        self._delay_s = delay_s
        self._places: deque[_Place] = deque()
        self._timer: Timer | None = None
        self.called_off = 0

    def join(self, wake: Callable[[], None]) -> _Place:
        places = self._places
        while places and places[0].wake is None:
            places.popleft()
            self.called_off -= 1
        # Behind one long wait the short ones pile up; they are cleared out before they outnumber the living.
        if self.called_off > _FEWEST_CALLED_OFF and self.called_off * 2 > len(places):
            self._places = places = deque(place for place in places if place.wake is not None)
            self.called_off = 0
        place = _Place(self._clock.monotonic() + self._delay_s, wake, self)
        places.append(place)
        if self._timer is None:
            self._timer = self._clock.call_later(self._delay_s, self._ring)
        return place

    def _ring(self) -> None:
        """Wake those whose time has come, and wait for the next."""
        self._timer = None
        now = self._clock.monotonic()
        places = self._places
        while places and (places[0].wake is None or places[0].at <= now + _CLOSE_ENOUGH_S):
            place = places.popleft()
            if place.wake is None:
                self.called_off -= 1
            else:
                wake, place.wake = place.wake, None
                wake()
        if places and self._timer is None:
            self._timer = self._clock.call_later(places[0].at - now, self._ring)


def timers_of(clock: Clock) -> Timers:
    """The timers that go with `clock`: its own, or the event loop's for a clock that only has the time."""
    return clock if isinstance(clock, Timers) else SYSTEM_CLOCK


async def sleep(clock: Timers, seconds: float) -> None:
    """Wait `seconds` of the given clock; returns after one turn of the loop when not positive."""
    if seconds <= 0:
        await asyncio.sleep(0)
        return
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    timer = clock.call_later(seconds, lambda: _wake(done))
    try:
        await done
    finally:
        timer.cancel()


def _wake(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)
