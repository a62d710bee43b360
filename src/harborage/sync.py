"""Harborage for scripts and notebooks: the same runtime behind plain calls that block.

One thread runs the event loop, whoever calls waits for it. It adds nothing and changes nothing; a program that has an
event loop of its own uses `harborage.Runtime` itself.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

from harborage.events import Event
from harborage.identity import Identity
from harborage.planner import Finish
from harborage.runtime import host
from harborage.runtime.durable import RunStatus
from harborage.runtime.pauses import Pause
from harborage.runtime.steering.controls import Scope

__all__ = ["Run", "Runtime"]

T = TypeVar("T")


class _LoopThread:
    """An event loop on a thread of its own, for as long as the runtime is open."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._is_closed = False
        self._door = threading.Lock()
        self._thread = threading.Thread(target=self._serve, name="harborage", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        """Run the loop until it is stopped, then end what is left on it.

        All on this thread: a caller's own may have a running loop, as in a notebook, and then cannot run another.
        """
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(_let_go(asyncio.all_tasks(self._loop)))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the loop and wait for its result; interrupting the wait cancels the work.

        Raises:
            RuntimeClosedError: the loop has ended, before or meanwhile.
        """
        with self._door:
            if self._is_closed:
                work.close()
                raise host.RuntimeClosedError()
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise host.RuntimeClosedError() from None
        except BaseException:
            future.cancel()
            raise

    def finish(self, work: Coroutine[Any, Any, None]) -> None:
        """Run the end of something; when the loop has ended already, so has that."""
        with suppress(host.RuntimeClosedError):
            self.call(work)

    def close(self, last: Coroutine[Any, Any, None] | None = None) -> None:
        """Refuse further calls, run `last`, and end the loop."""
        # Nobody comes in any more, and whoever is in has begun before `last` does: a call meets an open runtime or is
        # refused, never one that is half closed.
        with self._door:
            self._is_closed = True
            future = None if last is None else asyncio.run_coroutine_threadsafe(last, self._loop)
        try:
            if future is not None:
                future.result()
        finally:
            self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


class Run:
    """One run behind blocking calls; see `harborage.Run`, whose methods these are."""

    def __init__(self, run: host.Run, thread: _LoopThread) -> None:
        self._run = run
        self._thread = thread

    @property
    def id(self) -> str:
        """The run's id."""
        return self._run.id

    def result(self) -> Finish:
        """How the run finished, once it has.

        Raises:
            RunFailedError: it ended with an error.
            RunBlockedError: it needs the code that it was started with, or a repair.
        """
        return self._thread.call(self._run.result())

    def status(self) -> RunStatus:
        """Where the run stands now."""
        return self._thread.call(self._run.status())

    def waiting(self) -> list[Pause]:
        """The open pauses of this run."""
        return self._thread.call(self._run.waiting())

    def events(self, *, children: bool = True, after: int = 0) -> Iterator[Event]:
        """The run's events from beginning to end, as they come, from behind the number `after` on."""
        stream = self._run.events(children=children, after=after)
        try:
            while (event := self._thread.call(_next(stream))) is not None:
                yield event
        finally:
            self._thread.finish(_close(stream))

    def cancel(self, *, hard: bool = False) -> bool:
        """End the run, softly or at once."""
        return self._thread.call(self._run.cancel(hard=hard))

    def pause(self) -> bool:
        """Park the run at its next step boundary."""
        return self._thread.call(self._run.pause())

    def resume(self, payload: dict[str, Any] | None = None) -> bool:
        """Let the parked run go on."""
        return self._thread.call(self._run.resume(payload))

    def redirect(self, goal: str) -> bool:
        """Give the run another goal."""
        return self._thread.call(self._run.redirect(goal))

    def inject(self, context: dict[str, Any]) -> bool:
        """Give the planner context."""
        return self._thread.call(self._run.inject(context))

    def message(self, text: str) -> bool:
        """Say something to the planner as the user."""
        return self._thread.call(self._run.message(text))

    def approve(self, token: str = "", *, reason: str = "", args: dict[str, Any] | None = None) -> bool:
        """Say yes to what waits."""
        return self._thread.call(self._run.approve(token, reason=reason, args=args))

    def reject(self, token: str = "", *, reason: str = "") -> bool:
        """Say no to what waits."""
        return self._thread.call(self._run.reject(token, reason=reason))

    def prioritize(self, priority: int) -> bool:
        """Change the priority of the run's task."""
        return self._thread.call(self._run.prioritize(priority))


class Runtime:
    """A runtime behind blocking calls: `with Runtime(planner=…, tools=[…]) as rt: run = rt.start("goal", who=…)`.

    The parameters are those of `harborage.Runtime`.
    """

    def __init__(self, **parts: Any) -> None:
        self._runtime = host.Runtime(**parts)
        self._thread: _LoopThread | None = None

    def __enter__(self) -> Self:
        thread = _LoopThread()
        try:
            thread.call(self._runtime.__aenter__())
        except BaseException:
            thread.close()
            raise
        self._thread = thread
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop. Closing twice does nothing."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.close(self._runtime.aclose())

    def start(self, goal: str, *, who: Identity, **more: Any) -> Run:
        """Start a run towards `goal`; returns at once with its handle; more parameters as for `Runtime.start`.

        Raises:
            RuntimeClosedError: outside `with`.
        """
        if self._thread is None:
            raise host.RuntimeClosedError()
        return Run(self._thread.call(self._runtime.start(goal, who=who, **more)), self._thread)

    def run(self, run_id: str, *, who: Identity, scope: Scope = Scope.OWNER_USER) -> Run:
        """The handle on a run that was started before; `scope` is what it may do.

        Raises:
            RunNotFoundError: no such run, or another owner's.
        """
        if self._thread is None:
            raise host.RuntimeClosedError()
        return Run(self._thread.call(self._runtime.run(run_id, who=who, scope=scope)), self._thread)


async def _let_go(tasks: set[asyncio.Task[Any]]) -> None:
    """Cancel what is left, so that whoever waits for it in another thread does not wait for ever."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


async def _next(stream: AsyncIterator[Event]) -> Event | None:
    async for event in stream:
        return event
    return None


async def _close(stream: AsyncIterator[Event]) -> None:
    close = getattr(stream, "aclose", None)
    if close is not None:
        await close()
