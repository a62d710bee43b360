"""How stubs wait: on a future that the event loop resolves, as an answer from a socket does; and at a gate for many."""

from __future__ import annotations

import asyncio


async def answer_arrives() -> None:
    """Wait as for I/O that is ready at once: on a future that the event loop resolves in its next turn."""
    loop = asyncio.get_running_loop()
    answer = loop.create_future()
    loop.call_soon(answer.set_result, None)
    await answer


class Gate:
    """Holds runs before the step numbers in `at` until `runs` of them have come; elsewhere an answer just arrives."""

    def __init__(self, runs: int = 0, at: tuple[int, ...] = ()) -> None:
        self._runs = runs
        self._arrived = dict.fromkeys(at, 0)
        self._all_here = {step: asyncio.Event() for step in at}
        self._is_open = {step: asyncio.Event() for step in at}

    async def passed(self, step: int) -> None:
        """Wait for an answer; at a step that is gated, until the gate is opened."""
        if step in self._arrived:
            self._arrived[step] += 1
            if self._arrived[step] == self._runs:
                self._all_here[step].set()
            await self._is_open[step].wait()
        else:
            await answer_arrives()

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
