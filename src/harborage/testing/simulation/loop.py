"""An event loop for simulations: time is a number, and the next of the ready callbacks is drawn by chance.

It opens no socket, starts no thread and never sleeps. When nothing is ready it moves its clock to the next timer; when
there is none either, every task waits for ever, and the error lists them. Each process has a queue of ready callbacks,
which can be held: that is how a simulated process freezes or dies between two turns.
"""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import random
import threading
from collections.abc import Callable, Iterator
from contextvars import Context, ContextVar, copy_context
from enum import StrEnum
from itertools import count
from typing import Any, Final, TypeVar, TypeVarTuple, Unpack

from harborage.errors import HarborageError

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_US: Final = 1_000_000
_DEEPEST = 6


class SimulationError(HarborageError):
    """A simulation found a violated promise."""


class DeadlockError(SimulationError):
    """Nothing is ready and no timer runs: every task waits for ever. The text lists them and where they wait."""


class EndlessError(SimulationError):
    """The simulation does not end: it took more turns, or more simulated time, than its limits allow."""


class StuckError(SimulationError):
    """A run or a process has not ended long after the last fault."""


class UnhandledError(SimulationError):
    """A callback or a forgotten task raised; the cause is what it raised."""


class RealWorldError(SimulationError):
    """Simulated code used a thread or another loop."""


class Order(StrEnum):
    """Which ready callback comes next: the first of its queue, any, or any but those of tasks that are always late."""

    FIFO = "fifo"
    SHUFFLED = "shuffled"
    UNEVEN = "uneven"


class ReadyQueue:
    """The ready callbacks of one process, or of the story. While a queue is held, its callbacks wait in `held`."""

    __slots__ = ("held", "is_held", "name", "ready", "tasks")

    def __init__(self, name: str) -> None:
        self.name = name
        self.ready: list[asyncio.Handle] = []
        self.held: list[asyncio.Handle] = []
        self.is_held = False
        self.tasks: list[asyncio.Task[Any]] = []

    def pending_tasks(self) -> list[asyncio.Task[Any]]:
        """Return its tasks that have not ended, in the order they began."""
        self.tasks = [task for task in self.tasks if not task.done()]
        return self.tasks


CURRENT_QUEUE: ContextVar[ReadyQueue | None] = ContextVar("queue", default=None)
"""The queue of the running code; new tasks and callbacks belong to the queue of the code that makes them."""


class _Task(asyncio.Task[Any]):
    """A task with a number for a hash: a set of tasks has the same order in every process that simulates them."""

    def __init__(self, coro: Any, *, number: int, **options: Any) -> None:
        self._number = number
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number


class _Future(asyncio.Future[Any]):
    """A future with a number for a hash."""

    def __init__(self, *, number: int, loop: asyncio.AbstractEventLoop) -> None:
        self._number = number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class SimulatedLoop(asyncio.BaseEventLoop):
    """A loop whose every choice comes from `chance`: the same seed makes the same run, turn by turn.

    Each turn takes `turn_us` microseconds of simulated time. `most_turns` and `most_s` bound a simulation.
    """

    def __init__(
        self,
        chance: random.Random,
        *,
        order: Order = Order.SHUFFLED,
        turn_us: int = 0,
        most_turns: int = 2_000_000,
        most_s: float = 30 * 86_400.0,
    ) -> None:
        super().__init__()
        self._random = chance.random
        self._order = order
        self._turn_us = turn_us
        self._most_turns = most_turns
        self._most_us = round(most_s * _US)
        self._now_us = 0
        self._numbers = count(1)
        self._timers: list[tuple[int, int, asyncio.TimerHandle]] = []
        self._digest = hashlib.blake2b(digest_size=16)
        self._raised: SimulationError | None = None
        self._slow: dict[int, bool] = {}
        self.main = ReadyQueue("world")
        self.queues: list[ReadyQueue] = [self.main]
        self._active: list[ReadyQueue] = [self.main]
        self.turns = 0
        self.set_exception_handler(_keep_error)
        self.set_task_factory(_new_task)

    # ── History ─────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def now_us(self) -> int:
        """Simulated microseconds since the loop was made."""
        return self._now_us

    def digest(self) -> str:
        """Return a hash of the history: equal for two runs that were the same turn by turn."""
        return self._digest.hexdigest()

    def record(self, text: str) -> None:
        """Add `text` to the history."""
        self._digest.update(text.encode("utf-8", "backslashreplace"))

    def time(self) -> float:
        return self._now_us / _US

    def allow(self, turns: int, seconds: float) -> None:
        """Set the limits: so many turns and simulated seconds from now."""
        self._most_turns = self.turns + turns
        self._most_us = self._now_us + round(seconds * _US)

    # ── Queues ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def new_queue(self, name: str) -> ReadyQueue:
        """Return a further queue."""
        queue = ReadyQueue(name)
        self.queues.append(queue)
        self._active.append(queue)
        return queue

    def hold(self, queue: ReadyQueue) -> None:
        """Run no callback of the queue from now on; its time passes all the same."""
        queue.is_held = True
        self._active = [one for one in self._active if one is not queue]
        queue.held += queue.ready
        queue.ready.clear()

    def resume(self, queue: ReadyQueue) -> None:
        """Run the callbacks of a held queue again."""
        if queue.is_held:
            self._active.append(queue)
        queue.is_held = False
        queue.ready += queue.held
        queue.held.clear()

    def context_of(self, queue: ReadyQueue) -> Context:
        """Return a context whose code belongs to the queue."""
        context = copy_context()
        context.run(CURRENT_QUEUE.set, queue)
        return context

    # ── The loop's own interface ────────────────────────────────────────────────────────────────────────────────────

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        self._check_closed()  # type: ignore[attr-defined]
        if context is None:
            context = copy_context()
        handle = asyncio.Handle(callback, args, self, context)
        self._enqueue(handle, context)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        if threading.get_ident() != self._thread_id:  # type: ignore[attr-defined]
            raise RealWorldError("a thread called into the simulated loop; simulated code runs in one thread")
        return self.call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        self._check_closed()  # type: ignore[attr-defined]
        if context is None:
            context = copy_context()
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (round(when * _US), next(self._numbers), timer))
        return timer

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(number=next(self._numbers), loop=self)

    def run_in_executor(self, executor: Any, func: Callable[[Unpack[Ts]], T], *args: *Ts) -> asyncio.Future[T]:
        """Run `func` in one piece, at a turn of its own."""
        future: asyncio.Future[T] = self.create_future()
        self.call_soon(_run_in_turn, future, func, args)
        return future

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: cancelled timers are skipped when they are due."""

    def _write_to_self(self) -> None:
        """Do nothing: there is no other thread that could wake the loop."""

    # ── Turns ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _run_once(self) -> None:
        """Run one ready callback, drawn by chance; when none is ready, advance the clock to the next timer first."""
        timers = self._timers
        if timers and timers[0][0] <= self._now_us:
            self._queue_due_timers()
        choice = self._choose()
        while choice is None:
            self._advance_clock()
            self._queue_due_timers()
            choice = self._choose()
        queue, handle = choice
        self.turns += 1
        if self.turns > self._most_turns:
            raise EndlessError(f"no end after {self._most_turns} turns\n{self.describe_pending()}")
        self._now_us += self._turn_us
        label = _label(handle)
        self._digest.update(f"{queue.name} {label} {self._now_us}\n".encode())
        handle._run()
        if self._raised is not None:
            raised, self._raised = self._raised, None
            raise raised

    def _enqueue(self, handle: asyncio.Handle, context: Context) -> None:
        queue = context.get(CURRENT_QUEUE) or self.main
        (queue.held if queue.is_held else queue.ready).append(handle)

    def _queue_due_timers(self) -> None:
        """Make the callbacks of due timers ready."""
        timers = self._timers
        while timers and timers[0][0] <= self._now_us:
            timer: Any = heapq.heappop(timers)[2]
            if not timer._cancelled:
                self._enqueue(timer, timer._context)

    def _advance_clock(self) -> None:
        """Move the clock to the next timer.

        Raises:
            DeadlockError: there is none.
            EndlessError: it is due after the time limit.
        """
        while self._timers and self._timers[0][2]._cancelled:
            heapq.heappop(self._timers)
        if not self._timers:
            raise DeadlockError(f"every task waits, and no timer runs\n{self.describe_pending()}")
        self._now_us = self._timers[0][0]
        if self._now_us > self._most_us:
            raise EndlessError(f"no end after {self._most_us / _US:g} simulated seconds\n{self.describe_pending()}")

    def _choose(self) -> tuple[ReadyQueue, asyncio.Handle] | None:
        while True:
            queues = [queue for queue in self._active if queue.ready]
            if not queues:
                return None
            queue = queues[0] if len(queues) == 1 else queues[int(self._random() * len(queues))]
            ready = queue.ready
            handle = ready.pop() if len(ready) == 1 else ready.pop(self._pick(ready))
            if not handle._cancelled:
                return queue, handle

    def _pick(self, ready: list[asyncio.Handle]) -> int:
        if self._order is Order.FIFO:
            return 0
        if self._order is Order.SHUFFLED:
            return int(self._random() * len(ready))
        # Some tasks are slow for good: they run when no other one is ready, or one time in ten.
        if self._random() < 0.1:
            return int(self._random() * len(ready))
        return next((at for at, handle in enumerate(ready) if not self._is_slow(handle)), 0)

    def _is_slow(self, handle: asyncio.Handle) -> bool:
        task = _task_of(handle)
        if not isinstance(task, _Task):
            return False
        known = self._slow.get(task._number)
        if known is None:
            known = self._slow[task._number] = self._random() < 0.3
        return known

    # ── Diagnosis ───────────────────────────────────────────────────────────────────────────────────────────────────

    def describe_pending(self) -> str:
        """Return every task that has not ended and where it waits, queue by queue."""
        return "\n".join(
            f"  {queue.name}{' (held)' if queue.is_held else ''} · {task.get_name()}: {describe_stack(task)}"
            for queue in self.queues
            for task in queue.pending_tasks()
        )


def describe_stack(task: asyncio.Task[Any]) -> str:
    """Return the functions that a task is in, outermost first; the last one waits."""
    names = [f"{frame.__qualname__}:{_line(frame)}" for frame in _frames(task.get_coro())]
    return " > ".join(names[-_DEEPEST:]) or "not begun"


def _frames(coro: Any) -> Iterator[Any]:
    while coro is not None and hasattr(coro, "__qualname__") and hasattr(coro, "cr_await"):
        yield coro
        coro = coro.cr_await


def _line(coro: Any) -> int:
    return 0 if coro.cr_frame is None else int(coro.cr_frame.f_lineno)


def _new_task(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
    assert isinstance(loop, SimulatedLoop)
    number = next(loop._numbers)
    task = _Task(coro, number=number, loop=loop, **{"name": f"task {number}", **options})
    context = options.get("context")
    queue = (CURRENT_QUEUE.get() if context is None else context.get(CURRENT_QUEUE)) or loop.main
    queue.tasks.append(task)
    return task


def _keep_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    assert isinstance(loop, SimulatedLoop)
    error = context.get("exception")
    raised = UnhandledError(f"{context.get('message', '')}: {type(error).__name__}: {error}")
    raised.__cause__ = error
    loop._raised = loop._raised or raised


def _run_in_turn(future: asyncio.Future[Any], func: Callable[..., Any], args: tuple[Any, ...]) -> None:
    if future.cancelled():
        return
    try:
        result = func(*args)
    except Exception as error:  # noqa: BLE001 - raised where the work is awaited
        future.set_exception(error)
    else:
        future.set_result(result)


def _task_of(handle: Any) -> asyncio.Task[Any] | None:
    owner = getattr(handle._callback, "__self__", None)
    return owner if isinstance(owner, asyncio.Task) else None


def _label(handle: Any) -> str:
    """Return the name of the task or function of a callback."""
    task = _task_of(handle)
    if task is not None:
        return task.get_name()
    callback: Any = handle._callback
    while hasattr(callback, "func"):
        callback = callback.func
    return str(getattr(callback, "__qualname__", type(callback).__name__))
