"""How stubs wait: once around the event loop for each answer, and at a gate where many runs are to be in flight."""

from __future__ import annotations

import asyncio

__all__ = ["OPEN", "Gate"]


class Gate:
    """Holds runs before the step numbers in `at` until `runs` of them have come; without runs it only gives way."""

    def __init__(self, runs: int = 0, at: tuple[int, ...] = ()) -> None:
        self._runs = runs
        self._arrived = dict.fromkeys(at, 0)
        self._all_here = {step: asyncio.Event() for step in at}
        self._is_open = {step: asyncio.Event() for step in at}

    async def passed(self, step: int) -> None:
        """Give way once; at a step that is gated, wait until it is opened."""
        if step in self._arrived:
            self._arrived[step] += 1
            if self._arrived[step] == self._runs:
                self._all_here[step].set()
            await self._is_open[step].wait()
        else:
            await asyncio.sleep(0)

    async def all_here(self, step: int) -> None:
        """Return once every run waits before `step`.

        Raises:
            TimeoutError: they did not all come within two minutes.
        """
        async with asyncio.timeout(120):
            await self._all_here[step].wait()

    def open(self, step: int) -> None:
        """Let the runs that wait before `step` go on."""
        self._is_open[step].set()


OPEN = Gate()
