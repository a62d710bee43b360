"""Structured concurrency in three parts: a scope that can be cancelled, an owner that awaits its tasks, and work of
others that may ignore that it was cancelled.

`CancelScope` is what a hard cancel and a timeout share: it interrupts the code inside it and nothing else, and it
costs no task. `Crew` owns tasks that outlive one function; the owner of the crew closes it. `detachable` runs
code of others, which holds up its caller for a short grace at most; `leavable` does so without a task, and ends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from types import TracebackType, coroutine
from typing import TYPE_CHECKING, Any, Self, TypeVar

from harborage.crashes import WorkCrashedError, contained, error_of

if TYPE_CHECKING:
    from harborage.clock import Timer, Timers

T = TypeVar("T")
_OnLeft = Callable[[BaseException | None], None]

CANCEL_GRACE_S = 0.2
"""Seconds that cancelled work gets to end before its caller goes on without it."""

CLOSE_GRACE_S = 1.0
"""Seconds that work which outlived its caller gets to end when its owner is closed."""

FOREIGN_GRACE_S = 2.0
"""The same where no keeper of a run asked for the cancellation: it may be a time limit that the work has set itself."""

STOP = "asked to stop"
"""The message of a cancellation that a run's keeper asks for. Code that sets itself a time limit with `asyncio.timeout`
is cancelled in the same way, and goes on afterwards as it should; its cancellation has no message."""

LATE = "time is up"
"""The message of a cancellation with which a `CancelScope` ends its own block."""


def is_cancelled() -> bool:
    """Whether the calling task was asked to stop. Without that, a CancelledError is another task's, passed on."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def cancellations() -> int:
    """How many requests to stop the calling task are open."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


def take_back(upto: int) -> None:
    """Take back the requests to stop the calling task that came after the first `upto`.

    A TaskGroup of Python 3.11 whose member fails asks its own task to stop and forgets about it. Left open, such a
    request would end the next piece of work, which was not asked to stop.
    """
    task = asyncio.current_task()
    while task is not None and task.cancelling() > upto:
        task.uncancel()


async def together(*work: Awaitable[Any]) -> list[Any]:
    """What each piece of work gives, done at the same time; none goes on when this returns or raises.

    Raises: the first failure in the order of the arguments, once all have ended. Work gives no errors as values. A
    caller that is cancelled is, also where work fails at the same moment: a bare `gather` would raise the failure
    alone.
    """
    try:
        done = await asyncio.gather(*(contained(one) for one in work), return_exceptions=True)
    finally:
        for one in work:
            _close(one)
    for result in done:
        if isinstance(result, BaseException):
            raise result
    return done


class CancelScope:
    """A block that others may interrupt: `with CancelScope() as scope: …`, and elsewhere `scope.cancel()`.

    After the block `scope.was_cancelled` says whether it was cut short. A cancellation from outside the scope passes
    through untouched. With `clock` and `seconds` the scope cancels itself when the time is up. `owner` is the task that
    enters it, where that is known already.

    Never: swallows a cancellation it did not ask for.
    """

    __slots__ = (
        "_asked",
        "_before",
        "_clock",
        "_interrupted",
        "_owner",
        "_seconds",
        "_task",
        "_timer",
        "was_cancelled",
    )

    def __init__(
        self, clock: Timers | None = None, seconds: float | None = None, *, owner: asyncio.Task[Any] | None = None
    ) -> None:
        self._clock = clock
        self._seconds = seconds
        self._owner = owner
        self._task: asyncio.Task[Any] | None = None
        self._timer: Timer | None = None
        self._asked = False
        self._interrupted = False
        self._before = 0
        self.was_cancelled = False

    def renew(self) -> Self:
        """This scope, ready to be entered again: a loop that enters one each turn need not make one each turn."""
        self._asked = self._interrupted = self.was_cancelled = False
        return self

    def cancel(self) -> None:
        """Interrupt the block at its next await; before the block begins or after it ended this only marks it."""
        if self._asked:
            return
        self._asked = True
        if self._task is None:
            return
        if self._task is asyncio.current_task():
            # A task that cancels itself would be hit at its next await, which may lie behind the block.
            asyncio.get_running_loop().call_soon(self._interrupt)
        else:
            self._interrupt()

    def __enter__(self) -> Self:
        task = self._owner or asyncio.current_task()
        if task is None:
            raise RuntimeError("CancelScope must be entered inside a task")
        self._before = task.cancelling()
        self._task = task
        if self._asked:
            asyncio.get_running_loop().call_soon(self._interrupt)
        if self._clock is not None and self._seconds is not None:
            self._timer = self._clock.call_later(self._seconds, self.cancel)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        task, self._task = self._task, None
        if self._timer is not None:
            self._timer.cancel()
        if task is None or not self._interrupted:
            return False
        # uncancel() balances our own cancel(); a count that stays above the one at entry is the request of other code,
        # which must win over ours (the rule that asyncio.timeout follows too).
        is_ours = task.uncancel() <= self._before
        self.was_cancelled = is_ours and kind is not None and issubclass(kind, asyncio.CancelledError)
        return self.was_cancelled

    def _interrupt(self) -> None:
        # Called soon, it may come when the block it was asked for is over and the scope was entered again.
        if self._task is not None and self._asked and not self._interrupted:
            self._interrupted = True
            self._task.cancel(STOP if self._seconds is None else LATE)


class Crew:
    """Tasks with an owner: start them here, close the crew and every one of them has ended.

    A task that fails reports to `on_error` and does not disturb its siblings.
    """

    def __init__(self, on_error: Callable[[str, BaseException], None]) -> None:
        self._tasks: dict[asyncio.Task[Any], Awaitable[Any] | None] = {}
        self._on_error = on_error
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def is_closed(self) -> bool:
        """Whether it takes no task any more."""
        return self._is_closed

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run `work` as a task of this crew. Where it crashes, as with a SystemExit, the task fails with a
        `WorkCrashedError`, and the event loop goes on.

        Raises:
            RuntimeError: the crew is closed; the coroutine is closed unstarted.
        """
        if self._is_closed:
            work.close()
            raise RuntimeError(f"cannot start {name!r}: its crew is closed")
        task = asyncio.create_task(contained(work), name=name)
        self._tasks[task] = work
        task.add_done_callback(self._settle)
        return task

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """Own a task that runs already, under its own name; a closed crew cancels it once more."""
        self._tasks[task] = None
        task.add_done_callback(self._settle)
        if self._is_closed:
            task.cancel(STOP)

    async def join(self) -> None:
        """Wait until no task is left; tasks may start others meanwhile."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def within(
        self, work: Callable[[], Awaitable[T]], seconds: float, name: str, *, clock: Timers, on_left: _OnLeft
    ) -> T:
        """What `work()` gives, as a task of this crew. When `seconds` are over, or the caller is cancelled, it is
        cancelled, and the caller does not wait for its end.

        Work that ignores its cancellation is ended after a grace as by `leavable`, which calls `on_left`: a task that
        went on would keep `asyncio.run` from returning.

        Raises:
            TimeoutError: the time was up.
            WorkCrashedError: it raised something like SystemExit, or ended in a cancellation that was not its own.
            Exception: what `work` raised.
        """
        task: asyncio.Task[T] = self.start(_left(work, clock, on_left), name)
        expired: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = clock.call_later(seconds, lambda: None if expired.done() else expired.set_result(None))
        try:
            waited: set[asyncio.Future[Any]] = {task, expired}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            expired.cancel()
            if not task.done():
                task.cancel(STOP)
        if not task.done():
            raise TimeoutError(f"no answer within {seconds:g} s")
        if task.cancelled():
            raise WorkCrashedError("it awaited something that was cancelled elsewhere")
        return task.result()

    async def aclose(self, *, clock: Timers | None = None, grace_s: float | None = None) -> tuple[str, ...]:
        """Cancel what still runs and wait for its end. Closing twice does nothing.

        With `clock` and `grace_s` it waits that many seconds at most; returns the names of the tasks that ignored their
        cancellation until then. They remain the crew's, and may end later.
        """
        self._is_closed = True
        for task in set(self._tasks):
            task.cancel(STOP)
        if clock is None or grace_s is None:
            await self.join()
        elif self._tasks:
            with CancelScope(clock, grace_s):
                await self.join()
        return tuple(sorted(task.get_name() for task in self._tasks))

    async def close_within(self, seconds: float) -> list[str]:
        """As `aclose`, waiting for at most `seconds` of real time; returns the names of the tasks that still run."""
        self._is_closed = True
        for task in set(self._tasks):
            task.cancel(STOP)
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=seconds)
        return sorted(task.get_name() for task in self._tasks)

    def _settle(self, task: asyncio.Task[Any]) -> None:
        _close(self._tasks.pop(task, None))
        error = error_of(task)
        if error is not None:
            self._on_error(task.get_name(), error)


@coroutine
def leavable(
    work: Awaitable[T],
    *,
    clock: Timers,
    on_left: _OnLeft,
    owner: asyncio.Task[Any] | None = None,
    is_limited: bool = False,
) -> Generator[Any, Any, T]:
    """What `work` gives, awaited in the calling task; when that is cancelled and the work goes on all the same, it is
    ended after a grace of 0.2 s. `owner` is that task, where it is known already. `is_limited` says that the caller
    awaits it in a `CancelScope` with a time limit; that of a scope inside the work is the work's own.

    It costs no task. Work that ignores its cancellation is closed where it waits, as a generator is, so that no
    `except CancelledError` of it keeps it going; a task of its own that it waits for is left as it is. Then `on_left`
    is called, with the error that closing it raised, and the cancellation goes on. What the work gives or raises within
    the grace counts.
    """
    inner: Any = work.__await__()
    try:
        waits = inner.send(None)
    except StopIteration as ended:
        return ended.value  # type: ignore[no-any-return]
    task = asyncio.current_task() if owner is None else owner
    if task is None:
        raise RuntimeError("leavable work must be awaited inside a task")
    before = task.cancelling()
    watch: _Watch | None = None  # nearly all work ends without needing one
    try:
        while True:
            try:
                if waits is None or type(waits) is asyncio.Future:
                    yield waits  # cancelling the task wakes it at once
                else:
                    if watch is None:
                        watch = _Watch(task, before, clock, on_left, is_limited)
                    yield from watch.apart(waits)
            except asyncio.CancelledError as cancelled:
                if watch is None:
                    watch = _Watch(task, before, clock, on_left, is_limited)
                watch.note(inner, cancelled)
                waits = inner.throw(cancelled)
            except GeneratorExit:
                inner.close()
                raise
            except BaseException as error:  # noqa: BLE001 - it is for the work, whatever it is
                waits = inner.throw(error)
            else:
                waits = inner.send(None)
    except StopIteration as ended:
        return ended.value  # type: ignore[no-any-return]
    finally:
        if watch is not None and watch.timer is not None:
            watch.timer.cancel()


class _Watch:
    """Watches work that waits for another task or is cancelled, and ends it when it outlives its cancellation."""

    __slots__ = ("_before", "_clock", "_is_asked", "_is_over", "_on_left", "_orders", "_task", "timer")

    def __init__(self, task: asyncio.Task[Any], before: int, clock: Timers, on_left: _OnLeft, is_limited: bool) -> None:
        self._orders = (STOP, LATE) if is_limited else (STOP,)
        self._task = task
        self._before = before
        self._clock = clock
        self._on_left = on_left
        self.timer: Timer | None = None
        self._is_asked = False
        self._is_over = False

    def apart(self, waits: asyncio.Future[Any]) -> Generator[Any, Any, None]:
        """Wait for another task, or a group of them, without being held by it: it may ignore its cancellation."""
        waits._asyncio_future_blocking = False
        while True:
            over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            wake = partial(_wake, over)
            waits.add_done_callback(wake)
            try:
                yield from over
                return
            except asyncio.CancelledError as cancelled:
                if self._is_over:
                    waits.add_done_callback(_seen)
                    raise
                if not waits.cancel():
                    raise
                self._arm(cancelled)
            finally:
                waits.remove_done_callback(wake)

    def note(self, inner: Any, cancelled: asyncio.CancelledError) -> None:
        """Begin to count when the task is asked to stop; end the work when its grace is over.

        Raises:
            CancelledError: it is over.
        """
        if not self._is_over:
            self._arm(cancelled)
            return
        self._task.uncancel()
        problem: BaseException | None = None
        try:
            inner.close()
        except BaseException as error:  # noqa: BLE001 - it must end, and its caller goes on
            problem = error
        self._on_left(problem)
        raise asyncio.CancelledError

    def _arm(self, cancelled: asyncio.CancelledError) -> None:
        """Begin to count. A cancellation that did not come from here may be a time limit that the work has set itself:
        it gets longer to clean up, and is let go on once it has taken the cancellation back."""
        if self._task.cancelling() <= self._before:
            return
        is_asked = any(one in self._orders for one in cancelled.args)
        if self.timer is not None and (self._is_asked or not is_asked):
            return
        if self.timer is not None:
            self.timer.cancel()
        self._is_asked = is_asked
        self.timer = self._clock.call_later(CANCEL_GRACE_S if is_asked else FOREIGN_GRACE_S, self._expire)

    def _expire(self) -> None:
        self.timer = None
        if self._task.cancelling() <= self._before:
            return  # it was the work's own time limit, which it has dealt with
        self._is_over = True
        self._task.cancel(STOP)


def _close(work: Awaitable[Any] | None) -> None:
    """Close a coroutine that was never begun, since its task was cancelled before its first turn."""
    if isinstance(work, Coroutine):
        work.close()


async def detachable(
    work: Callable[[], Awaitable[T]],
    *,
    clock: Timers,
    crew: Crew,
    name: str,
    seconds: float | None = None,
    grace_s: float = CANCEL_GRACE_S,
) -> T:
    """What `work()` gives, as a task of its own, so that it cannot hold up its caller by ignoring a cancellation.

    `work` is called in that task: one that is cancelled before its first turn leaves no coroutine that never began.

    When `seconds` have passed, or the caller is cancelled, the work is cancelled and gets `grace_s` to end; what it
    gives or raises until then counts. After that, or at once when the caller is cancelled again, it is left to `crew`,
    as the task `name`.

    Raises:
        TimeoutError: the work did not end in time.
        WorkCrashedError: it raised something like SystemExit or GeneratorExit.
        Exception: what the work raised.
    """
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    task: asyncio.Task[T] = loop.create_task(_reported(work, over))
    timer = None if seconds is None else clock.call_later(seconds, partial(_wake, over))
    try:
        await over
    except asyncio.CancelledError:
        if task.done():
            _ = task.cancelled() or task.exception()  # read, so that asyncio does not warn of it
            raise
        if not await _dismissed(task, clock, crew, name, grace_s) or task.cancelled():
            raise
        return task.result()
    finally:
        if timer is not None:
            timer.cancel()
    if not task.done() and (not await _dismissed(task, clock, crew, name, grace_s) or task.cancelled()):
        raise TimeoutError
    return task.result()


async def _reported(work: Callable[[], Awaitable[T]], over: asyncio.Future[None]) -> T:
    """The work; `over` is called at its end: cheaper than a callback of the task, which takes another turn."""
    try:
        return await contained(_called(work))
    finally:
        _wake(over)


async def _called(work: Callable[[], Awaitable[T]]) -> T:
    return await work()


async def _left(work: Callable[[], Awaitable[T]], clock: Timers, on_left: _OnLeft) -> T:
    return await leavable(work(), clock=clock, on_left=on_left)


def _seen(left: asyncio.Future[Any]) -> None:
    """The outcome of work that was left; read, so that asyncio does not warn of it."""
    _ = left.cancelled() or left.exception()


def _wake(over: asyncio.Future[None], _task: object = None) -> None:
    if not over.done():
        over.set_result(None)


async def _dismissed(task: asyncio.Task[Any], clock: Timers, crew: Crew, name: str, grace_s: float) -> bool:
    """Cancel a task and wait for it a little; whether it ended. One that did not is the crew's."""
    task.cancel(STOP)
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    task.add_done_callback(partial(_wake, over))
    timer = clock.call_later(grace_s, partial(_wake, over))
    try:
        await over
    finally:
        timer.cancel()
        if not task.done():
            task.set_name(name)
            crew.adopt(task)
    return task.done()
