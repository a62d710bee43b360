"""The hook of a hard cancel: fired once for a run, while what is to be torn down is still in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from harborage.concurrency import STOP, Crew
from harborage.crashes import contained

if TYPE_CHECKING:
    from harborage.clock import Timers

_PATIENCE_S = 10.0


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
        """Begin the call, unless it was begun before. Does not wait: the step in flight may need it to end."""
        if self._task is None:
            self._task = self._crew.start(self._call(), "hard cancel hook")
        return self._task

    async def settle(self) -> Exception | None:
        """What the hook raised, once it has returned; it is called now if it was not before."""
        task = self.fire()
        if self._is_given_up:
            return self._overdue()
        settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self._clock.call_later(_PATIENCE_S, lambda: _wake(settled))
        task.add_done_callback(lambda _: _wake(settled))
        try:
            await settled
        finally:
            timer.cancel()
        if task.done():
            return None if task.cancelled() else task.result()
        task.cancel(STOP)
        self._is_given_up = True
        return self._overdue()

    def _overdue(self) -> TimeoutError:
        return TimeoutError(f"the hard cancel hook of run {self._run_id} did not return within {_PATIENCE_S:g} s")

    async def _call(self) -> Exception | None:
        try:
            await contained(self._hook(self._run_id))
        except Exception as error:  # noqa: BLE001 - kept for whoever applies the cancel
            return error
        return None


def _wake(settled: asyncio.Future[Any]) -> None:
    if not settled.done():
        settled.set_result(None)
