"""The hook of a hard cancel: called once for a run, while the step in flight can still be stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from harborage.concurrency import STOP, Crew
from harborage.crashes import contained

if TYPE_CHECKING:
    from harborage.clock import Timers

_TIMEOUT_S = 10.0


class HardCancel:
    """Calls `hook` with the run's id, at most once, as a task of `crew`; gives up on it after 10 seconds."""

    __slots__ = ("_clock", "_crew", "_hook", "_is_given_up", "_run_id", "_task")

    def __init__(self, hook: Callable[[str], Awaitable[None]], run_id: str, crew: Crew, clock: Timers) -> None:
        self._hook = hook
        self._run_id = run_id
        self._crew = crew
        self._clock = clock
        self._is_given_up = False
        self._task: asyncio.Task[Exception | None] | None = None

    @property
    def is_fired(self) -> bool:
        """Whether the hook was called."""
        return self._task is not None

    def fire(self) -> asyncio.Task[Exception | None]:
        """Start the call, unless it was started before, and return its task without waiting for it."""
        if self._task is None:
            self._task = self._crew.start(self._call(), "hard cancel hook")
        return self._task

    async def wait(self) -> Exception | None:
        """Call the hook unless it was called before, wait until it has returned, and return what it raised or None."""
        task = self.fire()
        if self._is_given_up:
            return self._overdue()
        returned: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self._clock.call_later(_TIMEOUT_S, lambda: _wake(returned))
        task.add_done_callback(lambda _: _wake(returned))
        try:
            await returned
        finally:
            timer.cancel()
        if task.done():
            return None if task.cancelled() else task.result()
        task.cancel(STOP)
        self._is_given_up = True
        return self._overdue()

    def _overdue(self) -> TimeoutError:
        return TimeoutError(f"the hard cancel hook of run {self._run_id} did not return within {_TIMEOUT_S:g} s")

    async def _call(self) -> Exception | None:
        try:
            await contained(self._hook(self._run_id))
        except Exception as error:  # noqa: BLE001 - returned to the step that applies the cancel
            return error
        return None


def _wake(waiter: asyncio.Future[Any]) -> None:
    if not waiter.done():
        waiter.set_result(None)
