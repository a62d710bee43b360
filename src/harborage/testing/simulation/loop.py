"""An event loop for simulations: time is a number, and who of those that are ready comes next is drawn by chance.

It opens no socket, starts no thread and never sleeps. When nothing is ready it moves its clock to the next timer; when
there is none either, everybody waits for ever, and it says who for what. Callbacks belong to lanes, which can be held:
that is how a simulated process freezes or dies between two turns.
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

__all__ = [
    "LANE",
    "DeadlockError",
    "EndlessError",
    "Lane",
    "Order",
    "RealWorldError",
    "SimulatedLoop",
    "SimulationError",
    "StuckError",
    "UnhandledError",
    "waits_of",
]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_US: Final = 1_000_000
_DEEPEST = 6


class SimulationError(HarborageError):
    """A simulation found something that must not be."""


class DeadlockError(SimulationError):
    """Nothing is ready and no timer runs: everybody waits for ever. The text says who, and for what."""


class EndlessError(SimulationError):
    """The simulation goes on and on: it took more turns, or more time of its own, than it was given."""


class StuckError(SimulationError):
    """A run has not ended, or a process does not, long after everything came back to order."""


class UnhandledError(SimulationError):
    """A callback or a forgotten task raised; the cause is what it raised."""


class RealWorldError(SimulationError):
    """Something reached past the simulation, for a thread or another loop."""


class Order(StrEnum):
    """Who of those that are ready comes next: first come first served in each lane, anybody, or some ever too late."""

    FIFO = "fifo"
    SHUFFLED = "shuffled"
    UNEVEN = "uneven"


class Lane:
    """Callbacks that stand still together. While a lane is held, what would be its turn is kept for later."""

    __slots__ = ("held", "is_held", "name", "ready", "tasks")

    def __init__(self, name: str) -> None:
        self.name = name
        self.ready: list[asyncio.Handle] = []
        self.held: list[asyncio.Handle] = []
        self.is_held = False
        self.tasks: list[asyncio.Task[Any]] = []

    def waiting(self) -> list[asyncio.Task[Any]]:
        """Its tasks that have not ended, in the order they began."""
        self.tasks = [task for task in self.tasks if not task.done()]
        return self.tasks


LANE: ContextVar[Lane | None] = ContextVar("lane", default=None)
"""The lane that the running code belongs to; tasks and callbacks are born into the lane that makes them."""


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
    """A loop whose every choice comes from `chance`: the same one makes the same run, turn by turn.

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
        self._alarms: list[tuple[int, int, asyncio.TimerHandle]] = []
        self._digest = hashlib.blake2b(digest_size=16)
        self._thrown: SimulationError | None = None
        self._slow: dict[int, bool] = {}
        self.main = Lane("world")
        self.lanes: list[Lane] = [self.main]
        self._going: list[Lane] = [self.main]
        self.turns = 0
        self.set_exception_handler(_note_thrown)
        self.set_task_factory(_new_task)

    # ── What has happened ───────────────────────────────────────────────────────────────────────────────────────────

    @property
    def now_us(self) -> int:
        """Simulated microseconds since the loop was made."""
        return self._now_us

    def digest(self) -> str:
        """A hash over everything that has happened: equal for two runs that were the same turn by turn."""
        return self._digest.hexdigest()

    def record(self, text: str) -> None:
        """Make `text` part of what has happened."""
        self._digest.update(text.encode("utf-8", "backslashreplace"))

    def time(self) -> float:
        return self._now_us / _US

    def allow(self, turns: int, seconds: float) -> None:
        """Let the simulation go on for that much from now, and no more."""
        self._most_turns = self.turns + turns
        self._most_us = self._now_us + round(seconds * _US)

    # ── Lanes ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def new_lane(self, name: str) -> Lane:
        """A further lane."""
        lane = Lane(name)
        self.lanes.append(lane)
        self._going.append(lane)
        return lane

    def hold(self, lane: Lane) -> None:
        """Let nothing of the lane have a turn from now on; time goes by for it all the same."""
        lane.is_held = True
        self._going = [one for one in self._going if one is not lane]
        lane.held += lane.ready
        lane.ready.clear()

    def let_go(self, lane: Lane) -> None:
        """Let the lane go on where it was held."""
        if lane.is_held:
            self._going.append(lane)
        lane.is_held = False
        lane.ready += lane.held
        lane.held.clear()

    def context_of(self, lane: Lane) -> Context:
        """A context whose code belongs to the lane."""
        context = copy_context()
        context.run(LANE.set, lane)
        return context

    # ── The loop's own interface ────────────────────────────────────────────────────────────────────────────────────

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        self._check_closed()  # type: ignore[attr-defined]
        if context is None:
            context = copy_context()
        handle = asyncio.Handle(callback, args, self, context)
        self._queue(handle, context)
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
        heapq.heappush(self._alarms, (round(when * _US), next(self._numbers), timer))
        return timer

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(number=next(self._numbers), loop=self)

    def run_in_executor(self, executor: Any, func: Callable[[Unpack[Ts]], T], *args: *Ts) -> asyncio.Future[T]:
        """Run `func` in one piece, at a turn of its own."""
        future: asyncio.Future[T] = self.create_future()
        self.call_soon(_work, future, func, args)
        return future

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Nothing: timers that were called off are passed over when their time comes."""

    def _write_to_self(self) -> None:
        """Nothing: there is no other thread to be woken by."""

    # ── Turns ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _run_once(self) -> None:
        """One turn: the next callback, by chance; or, when nobody is ready, the time of the next timer."""
        alarms = self._alarms
        if alarms and alarms[0][0] <= self._now_us:
            self._ring()
        choice = self._choose()
        while choice is None:
            self._move_on()
            self._ring()
            choice = self._choose()
        lane, handle = choice
        self.turns += 1
        if self.turns > self._most_turns:
            raise EndlessError(f"no end after {self._most_turns} turns\n{self.waits()}")
        self._now_us += self._turn_us
        label = _label(handle)
        self._digest.update(f"{lane.name} {label} {self._now_us}\n".encode())
        handle._run()
        if self._thrown is not None:
            thrown, self._thrown = self._thrown, None
            raise thrown

    def _queue(self, handle: asyncio.Handle, context: Context) -> None:
        lane = context.get(LANE) or self.main
        (lane.held if lane.is_held else lane.ready).append(handle)

    def _ring(self) -> None:
        """Make ready what is due."""
        alarms = self._alarms
        while alarms and alarms[0][0] <= self._now_us:
            timer: Any = heapq.heappop(alarms)[2]
            if not timer._cancelled:
                self._queue(timer, timer._context)

    def _move_on(self) -> None:
        """Move the clock to the next timer.

        Raises:
            DeadlockError: there is none.
            EndlessError: it lies behind the end of time.
        """
        while self._alarms and self._alarms[0][2]._cancelled:
            heapq.heappop(self._alarms)
        if not self._alarms:
            raise DeadlockError(f"everybody waits, and no timer runs\n{self.waits()}")
        self._now_us = self._alarms[0][0]
        if self._now_us > self._most_us:
            raise EndlessError(f"no end after {self._most_us / _US:g} simulated seconds\n{self.waits()}")

    def _choose(self) -> tuple[Lane, asyncio.Handle] | None:
        while True:
            lanes = [lane for lane in self._going if lane.ready]
            if not lanes:
                return None
            lane = lanes[0] if len(lanes) == 1 else lanes[int(self._random() * len(lanes))]
            ready = lane.ready
            handle = ready.pop() if len(ready) == 1 else ready.pop(self._place(ready))
            if not handle._cancelled:
                return lane, handle

    def _place(self, ready: list[asyncio.Handle]) -> int:
        if self._order is Order.FIFO:
            return 0
        if self._order is Order.SHUFFLED:
            return int(self._random() * len(ready))
        # Some tasks are slow from birth: they come when nobody else is ready, or one time in ten.
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

    # ── What waits ──────────────────────────────────────────────────────────────────────────────────────────────────

    def waits(self) -> str:
        """Every task that has not ended, and where it waits, lane by lane."""
        return "\n".join(
            f"  {lane.name}{' (held)' if lane.is_held else ''} · {task.get_name()}: {waits_of(task)}"
            for lane in self.lanes
            for task in lane.waiting()
        )


def waits_of(task: asyncio.Task[Any]) -> str:
    """The functions that a task is in, outermost first, as far as the one that waits."""
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
    lane = (LANE.get() if context is None else context.get(LANE)) or loop.main
    lane.tasks.append(task)
    return task


def _note_thrown(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    assert isinstance(loop, SimulatedLoop)
    error = context.get("exception")
    thrown = UnhandledError(f"{context.get('message', '')}: {type(error).__name__}: {error}")
    thrown.__cause__ = error
    loop._thrown = loop._thrown or thrown


def _work(future: asyncio.Future[Any], func: Callable[..., Any], args: tuple[Any, ...]) -> None:
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
    """What has its turn: a task by its name, or a function."""
    task = _task_of(handle)
    if task is not None:
        return task.get_name()
    callback: Any = handle._callback
    while hasattr(callback, "func"):
        callback = callback.func
    return str(getattr(callback, "__qualname__", type(callback).__name__))
