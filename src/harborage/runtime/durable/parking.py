"""When a worker lets go of its runs: of those that only wait after a while, and of all when it is to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from harborage.concurrency import STOP
from harborage.runtime.durable.leased_run import LeasedRun, parking_change
from harborage.runtime.durable.polling import MIN_POLL_S

if TYPE_CHECKING:
    from harborage.clock import Timer, Timers
    from harborage.store import Change


class Parking:
    """Parks those of the `running` runs that have only waited for `linger_s`; their record says where to resume them.

    `block_change` returns the change that releases a run which cannot go on.
    """

    def __init__(
        self,
        running: Mapping[str, LeasedRun],
        clock: Timers,
        linger_s: float,
        block_change: Callable[[Exception], Change],
    ) -> None:
        self._running = running
        self._clock = clock
        self._linger_s = linger_s
        self._block_change = block_change
        self._timer: Timer | None = None
        self._is_stopped = False
        self.is_draining = False

    def open(self) -> None:
        """Park runs from now on, whenever there are some."""
        self._is_stopped = self.is_draining = False

    def stop(self) -> None:
        """Park no more runs."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def watch(self) -> None:
        """Look for runs to park every so often, as long as there are runs."""
        if self._timer is None:
            self._park_idle()

    async def drain(self, grace_s: float) -> None:
        """Let go of every run at its next step boundary, and return once none is left or `grace_s` seconds have passed.

        Steps in flight go on until they end. No run is resumed here meanwhile: another worker goes on with each.
        """
        self.is_draining, self._linger_s = True, 0.0
        self._park_idle()
        ends = self._clock.monotonic() + grace_s
        while self._running and (left := ends - self._clock.monotonic()) > 0:
            await self._one_ends(left)

    async def _one_ends(self, within_s: float) -> None:
        """Wait until the execution of a run has ended here, or the time has passed."""
        ended = asyncio.Event()

        def end(_: object = None) -> None:
            ended.set()

        for run in self._running.values():
            if run.task is not None:
                run.task.add_done_callback(end)
        timer = self._clock.call_later(within_s, end)
        try:
            await ended.wait()
        finally:
            timer.cancel()

    def _park_idle(self) -> None:
        now = self._clock.monotonic()
        for run in self._running.values():
            waiting = run.find_idle_wait(now, self._linger_s)
            if waiting is not None and run.task is not None and run.parked is None:
                why = run.unreadable
                run.parked = parking_change(run, waiting, self._clock.now()) if why is None else self._block_change(why)
                run.task.cancel(STOP)
        again_s = max(self._linger_s / 2, MIN_POLL_S)
        goes_on = self._running and not self._is_stopped
        self._timer = self._clock.call_later(again_s, self._park_idle) if goes_on else None
