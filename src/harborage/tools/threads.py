"""The threads of synchronous tools: the loop is never held up, and a process never waits for a thread at its exit."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, TypeVar

from harborage.errors import HarborageError

T = TypeVar("T")

MOST_THREADS = 64
"""Calls of synchronous tools that run at the same time in one process."""
IDLE_S = 10.0
"""Seconds after which a thread without work ends."""

_log = logging.getLogger(__name__)


class ThreadsExhaustedError(HarborageError):
    """Every thread for synchronous tools runs a call whose caller has given up. `names` are the tools."""

    def __init__(self, names: tuple[str, ...] = ()) -> None:
        self.names = names
        super().__init__(
            f"all {len(names)} threads for synchronous tools run calls whose callers have given up: "
            f"{', '.join(sorted(set(names)))}; give these tools timeouts of their own or make them async, and restart "
            "the process"
        )


class _Job:
    """One call: the work, its name, its start, and whether its caller has given up."""

    __slots__ = ("future", "is_abandoned", "name", "since", "work")

    def __init__(self, name: str, work: Callable[[], Any]) -> None:
        self.name = name
        self.work = work
        self.future: Future[Any] = Future()
        self.since = 0.0
        self.is_abandoned = False

    def __call__(self) -> Any:
        return self.work()

    def run(self, on_end: Callable[[_Job], None]) -> None:
        """Make the call, unless it was cancelled; `on_end` is called before the caller sees the result."""
        if not self.future.set_running_or_notify_cancel():
            on_end(self)
            return
        try:
            result = self.work()
        except BaseException as error:  # noqa: BLE001 - it is the outcome of the call
            on_end(self)
            self.future.set_exception(error)
        else:
            on_end(self)
            self.future.set_result(result)


class ToolThreads(Executor):
    """At most `most` daemon threads. Further calls wait for one, which is logged with the names of the running calls.

    The process does not wait for these threads at exit.
    """

    def __init__(self, most: int = MOST_THREADS, *, idle_s: float = IDLE_S) -> None:
        self._most = most
        self._idle_s = idle_s
        self._reset()

    @property
    def running(self) -> tuple[str, ...]:
        """The names of the calls that run, longest first."""
        with self._changed:
            return tuple(job.name for job in sorted(self._running, key=lambda job: job.since))

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run a call in a thread.

        Raises:
            ThreadsExhaustedError: every thread runs a call whose caller has given up.
        """
        job = fn if isinstance(fn, _Job) else _Job(getattr(fn, "__name__", "call"), partial(fn, *args, **kwargs))
        if os.getpid() != self._pid:
            self._reset()  # a forked process has none of the threads of its parent
        with self._changed:
            is_full = self._count >= self._most and self._idle <= len(self._queue)
            if is_full and len(self._running) >= self._most and all(one.is_abandoned for one in self._running):
                raise ThreadsExhaustedError(tuple(one.name for one in self._running))
            self._queue.append(job)
            if is_full:
                self._warn(job)
            elif self._idle >= len(self._queue):
                self._changed.notify()
            else:
                self._count += 1
                threading.Thread(target=self._serve, name=f"tool-{self._count}", daemon=True).start()
            self._is_warned = is_full
        return job.future

    def _warn(self, job: _Job) -> None:
        """Log once that calls wait, and again after a time in which none did."""
        if not self._is_warned:
            names = ", ".join(sorted({one.name for one in self._running}))
            text = "the call of %r waits: all %d threads for synchronous tools run others (%s); make these tools async"
            _log.warning(text, job.name, self._most, names)

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._queue: deque[_Job] = deque()
        self._running: set[_Job] = set()
        self._count = 0
        self._idle = 0
        self._is_warned = False

    def _serve(self) -> None:
        while (job := self._take_job()) is not None:
            job.run(self._discard)

    def _take_job(self) -> _Job | None:
        """Return the next call; None when there was none for a while and this thread ends."""
        with self._changed:
            self._idle += 1
            self._changed.wait_for(lambda: bool(self._queue), self._idle_s)
            self._idle -= 1
            if not self._queue:
                self._count -= 1
                return None
            job = self._queue.popleft()
            job.since = time.monotonic()
            self._running.add(job)
        return job

    def _discard(self, job: _Job) -> None:
        with self._changed:
            self._running.discard(job)


_THREADS = ToolThreads()


async def run_in_thread(name: str, work: Callable[[], T], threads: ToolThreads = _THREADS) -> T:
    """Run `work` in a thread with the caller's context variables, and return its result.

    Python cannot stop a thread: after a cancellation the work runs on, and its result is dropped.

    Raises:
        ThreadsExhaustedError: every thread runs a call whose caller has given up.
        Exception: what the work raised.
    """
    job = _Job(name, partial(contextvars.copy_context().run, work))
    try:
        result: T = await asyncio.get_running_loop().run_in_executor(threads, job)
    except asyncio.CancelledError:
        job.is_abandoned = True
        raise
    return result
