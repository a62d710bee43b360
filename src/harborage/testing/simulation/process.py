"""A simulated process: code with its own clock, which can die or freeze between any two turns of the loop.

Death is not cancellation: no code of the process runs again, cleanup included. What it had not committed elsewhere is
lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

from harborage.concurrency import Crew
from harborage.testing.simulation.loop import SimulatedLoop, SimulationError

if TYPE_CHECKING:
    from harborage.clock import Timer
    from harborage.testing.simulation.simulation import Simulation

T = TypeVar("T")

START: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""The time at which every simulation begins."""


class ProcessDiedError(SimulationError):
    """The process that was asked to do something is dead."""


class SimulatedClock:
    """The clock of a simulated process: the time of the loop plus `skew`."""

    def __init__(self, loop: SimulatedLoop, skew: timedelta = timedelta(0)) -> None:
        self._loop = loop
        self._start = START + skew

    def now(self) -> datetime:
        """The simulated time, in UTC."""
        return self._start + timedelta(microseconds=self._loop.now_us)

    def monotonic(self) -> float:
        """Simulated seconds since the simulation began."""
        return self._loop.time()

    def call_later(self, delay_s: float, wake: Callable[[], None]) -> Timer:
        """Call `wake` once when that much simulated time has passed."""
        return self._loop.call_later(max(0.0, delay_s), wake)


class Process:
    """One process of a simulation, the `number`th. Faults strike it where its code awaits `point`."""

    def __init__(self, simulation: Simulation, name: str, number: int, skew: timedelta) -> None:
        self.simulation = simulation
        self._loop = simulation.loop
        self.name = name
        self.number = number
        self.clock = SimulatedClock(simulation.loop, skew)
        self.queue = simulation.loop.new_queue(name)
        self.context = simulation.loop.context_of(self.queue)
        self.logger = logging.getLogger(__name__)
        self.is_dead = False
        self.frozen_since: float | None = None
        self.ended = asyncio.Event()
        self._gone: asyncio.Future[None] = simulation.loop.create_future()
        self._on_change: list[Callable[[], None]] = []
        self._crew = Crew(lambda name, error: None)

    @property
    def is_running(self) -> bool:
        """Whether its code may run."""
        return not self.is_dead and self.frozen_since is None

    def start(self, main: Callable[[Process], Coroutine[Any, Any, None]]) -> None:
        """Begin `main` in this process; when it returns the process has ended by itself."""
        task = self.context.run(self._crew.start, main(self), f"{self.name} main")
        task.add_done_callback(self._finished, context=self.simulation.context.copy())

    async def do(self, work: Coroutine[Any, Any, T], name: str) -> T:
        """Run `work` in this process for a caller outside, and return its result.

        Raises:
            ProcessDiedError: the process is dead, or died before it was done.
            Exception: what `work` raised.
        """
        if self.is_dead:
            work.close()
            raise ProcessDiedError(f"{self.name} is dead")
        guests = Crew(lambda name, error: None)
        task: asyncio.Task[T] = self.context.copy().run(guests.start, work, name)
        await asyncio.wait((task, self._gone), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ProcessDiedError(f"{self.name} died before {name} was done")

    def stop(self) -> None:
        """Ask the process to end by itself, as a signal would: its main task is cancelled, its cleanups run."""
        if not self.is_dead:
            self.simulation.note(f"{self.name} is asked to stop")
            for task in self.queue.pending_tasks():
                if task.get_name() == f"{self.name} main":
                    self._loop.call_soon(task.cancel, context=self.context.copy())

    def kill(self, why: str) -> None:
        """End the process between two turns. Killing a dead one does nothing."""
        if self.is_dead:
            return
        self.simulation.note(f"{self.name} DIES {why}")
        self._end()

    def freeze(self, seconds: float, why: str = "") -> None:
        """Stop the process for `seconds`; then it goes on as if nothing had happened."""
        if not self.is_running:
            return
        self.simulation.note(f"{self.name} FREEZES for {seconds:.3f} s {why}")
        self.frozen_since = self._loop.time()
        self._loop.hold(self.queue)
        self._loop.call_later(seconds, self._thaw, context=self.simulation.context.copy())
        self._changed()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` when the process dies, freezes or thaws."""
        self._on_change.append(listener)

    async def point(self, what: str) -> None:
        """Let the process die, freeze or wait here, if the fault injector says so."""
        injector = self.simulation.injector
        if injector.strikes("crash"):
            self.kill(f"at {what}")
            await self._loop.create_future()
        if injector.strikes("freeze"):
            self.freeze(injector.up_to(injector.faults.freeze_s), f"at {what}")
            await asyncio.sleep(0)
        if injector.strikes("slow"):
            await asyncio.sleep(injector.up_to(injector.faults.slow_s))

    def _thaw(self) -> None:
        if self.is_dead:
            return
        self.simulation.note(f"{self.name} goes on")
        self.frozen_since = None
        self._loop.resume(self.queue)
        self._changed()

    def _end(self) -> None:
        self.is_dead = True
        self._loop.hold(self.queue)
        if not self._gone.done():
            self._gone.set_result(None)
        self._changed()
        self.ended.set()

    def _changed(self) -> None:
        for listener in tuple(self._on_change):
            self.simulation.context.copy().run(listener)

    def _finished(self, task: asyncio.Task[None]) -> None:
        """The main task ended by itself; what it failed with ends the story."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self.simulation.fail(self.name, error)
        if not self.is_dead and not self.simulation.is_over:
            self.simulation.note(f"{self.name} ends")
            self._end()
