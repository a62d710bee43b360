"""Time limits of code of users that a run waits for: whatever it does but answer becomes an ordinary error."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

from harborage.concurrency import STOP, CancelScope, is_cancelled, leavable
from harborage.crashes import WorkCrashedError, is_order_to_stop
from harborage.errors import error_summary

if TYPE_CHECKING:
    from harborage.clock import Timer, Timers

T = TypeVar("T")

STORE_TIMEOUT_S: Final = 30.0
"""Seconds that a store of artifacts, or of the memory of sessions, may take."""

SUMMARISER_TIMEOUT_S: Final = 300.0
"""Seconds that a summariser may take; then the history is folded without it."""


class TimeLimitError(TimeoutError):
    """Work gave no answer within the time it was given; the text says how much that was."""


async def bounded(
    work: Awaitable[T], seconds: float, *, clock: Timers, on_left: Callable[[BaseException | None], None]
) -> T:
    """What `work` gives within `seconds`. Work that ignores its cancellation is ended after a grace, as by `leavable`.

    Raises:
        TimeLimitError: the time was up.
        WorkCrashedError: it raised something like SystemExit, or awaited something that was cancelled elsewhere.
        asyncio.CancelledError: the caller is to stop.
        Exception: what `work` raised.
    """
    task = asyncio.current_task()
    try:
        with CancelScope(clock, seconds):
            return await leavable(work, clock=clock, on_left=on_left, is_limited=True)
    except Exception:
        raise
    except asyncio.CancelledError as cancelled:
        if is_cancelled():
            raise
        raise WorkCrashedError("it awaited something that was cancelled elsewhere") from cancelled
    except BaseException as error:
        if is_order_to_stop(error, task):
            raise
        raise WorkCrashedError(f"it raised {error_summary(error)}") from error
    raise TimeLimitError(f"it gave no answer within {seconds:g} s")


class PlannerLimit:
    """How long a planner may take for one decision. All that decide at the moment share one timer, since they nearly
    always end in time: a limit costs a step next to nothing. `option` is what sets it, for the text of the error."""

    def __init__(self, seconds: float, clock: Timers, *, option: str = "RuntimeOptions(planner_timeout=…)") -> None:
        self.seconds = seconds
        self.option = option
        self._clock = clock
        self._began: dict[asyncio.Task[object], tuple[float, int]] = {}
        self._ended: set[asyncio.Task[object]] = set()
        self._timer: Timer | None = None

    def begin(self, task: asyncio.Task[object], now: float) -> None:
        """Note that a planner begins to decide in `task`, at a time of the clock."""
        self._began[task] = now, task.cancelling()
        if self._timer is None:
            self._timer = self._clock.call_later(self.seconds, self._ring)

    def end(self, task: asyncio.Task[object], error: BaseException | None = None) -> bool:
        """Note that it ended, in an error or not; whether that is because it took too long."""
        _, before = self._began.pop(task)
        if not self._ended:
            return False
        if task not in self._ended:
            return False
        self._ended.remove(task)
        # The request of another to stop the task, which came in the same moment, stays and wins.
        return task.uncancel() <= before and isinstance(error, asyncio.CancelledError)

    async def aclose(self) -> None:
        """Let go of the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        """Stop those that took too long, and wait for the next."""
        self._timer = None
        now = self._clock.monotonic()
        for task, (began, _) in self._began.items():  # in the order in which they began
            if task in self._ended:
                continue
            if (left := began + self.seconds - now) > 0:
                self._timer = self._clock.call_later(left, self._ring)
                return
            self._ended.add(task)
            task.cancel(STOP)
