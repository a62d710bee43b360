"""One simulation: a seed, a loop, a story, its processes, its faults, and its trace of notes.

While it runs, ids, random numbers and the system's clock come from the seed. A fault strikes at a named point: before
or after a call of a store, a tool or a model. Each kind has a limit, so that every story comes to an end. No task is
left behind.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from typing import Any, Final, TypeAlias
from unittest import mock

import msgspec

from harborage import ids
from harborage.clock import SystemClock
from harborage.testing.simulation.loop import CURRENT_QUEUE, Order, SimulatedLoop, SimulationError
from harborage.testing.simulation.process import START, Process, SimulatedClock


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """The chance of each fault at each point, and the most of each in a story.

    `crash` ends the process at once; `freeze` stops it for up to `freeze_s`; `refuse` lets a store refuse a call, with
    nothing written; `lose` lets a tool or a model fail, having acted or not; `slow` lets an answer take up to `slow_s`.
    `skew_s` is how far the clocks of two processes may be apart.
    """

    crash: float = 0.0
    freeze: float = 0.0
    refuse: float = 0.0
    lose: float = 0.0
    slow: float = 0.0
    freeze_s: float = 100.0
    slow_s: float = 5.0
    skew_s: float = 0.0
    most_crashes: int = 6
    most_freezes: int = 2
    most_refusals: int = 10
    most_losses: int = 10
    most_delays: int = 60


NO_FAULTS = Faults()


def draw_faults(chance: random.Random) -> Faults:
    """Return faults for one story: each kind is absent, rare or frequent, so that rare mixtures come up, too."""
    crash, freeze, refuse, lose, slow = (_seldom_or_often(chance) if chance.random() < 0.6 else 0.0 for _ in range(5))
    return Faults(
        # Most promises are about processes that die.
        crash=_seldom_or_often(chance) if chance.random() < 0.5 else crash,
        freeze=freeze,
        refuse=refuse,
        lose=lose,
        slow=slow,
        freeze_s=chance.choice((1.0, 30.0, 100.0)),
        slow_s=chance.choice((0.01, 1.0, 40.0)),
        skew_s=chance.choice((0.0, 0.0, 0.05, 3.0)),
        most_crashes=chance.choice((1, 2, 4, 8)),
    )


def _seldom_or_often(chance: random.Random) -> float:
    return float(10 ** chance.uniform(-2.7, -0.9))


class FaultInjector:
    """Decides at each point whether a fault strikes, and counts those that did."""

    def __init__(self, faults: Faults, chance: random.Random) -> None:
        self.faults = faults
        self.struck: Counter[str] = Counter()
        self.is_calm = False
        self._chance = chance

    def strikes(self, kind: str) -> bool:
        """Return whether a fault of this kind happens now; never while `is_calm`."""
        likely: float = 0.0 if self.is_calm else getattr(self.faults, kind)
        if not likely or self._chance.random() >= likely or self.struck[kind] >= self._most(kind):
            return False
        self.struck[kind] += 1
        return True

    def up_to(self, most: float) -> float:
        """Return a length of time: mostly short, at times nearly `most`."""
        return most * self._chance.random() ** 3

    def _most(self, kind: str) -> float:
        match kind:
            case "crash":
                return self.faults.most_crashes
            case "freeze":
                return self.faults.most_freezes
            case "refuse":
                return self.faults.most_refusals
            case "lose":
                return self.faults.most_losses
            case _:
                return self.faults.most_delays


_LAST_TURNS: Final = 100_000
_LAST_S: Final = 4_000_000.0
_MOST_CLOSINGS: Final = 50

Story: TypeAlias = Callable[["Simulation"], Awaitable[Any]]
"""What a simulation plays: it boots processes, acts from outside, and raises when a promise is broken."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How one simulation went. `error` is what its story raised; `digest` is equal for equal runs."""

    seed: int
    digest: str
    notes: tuple[str, ...]
    turns: int
    seconds: float
    struck: dict[str, int]
    result: Any = None
    error: BaseException | None = None

    @property
    def trace(self) -> str:
        """The notes as text, the error last."""
        end = [] if self.error is None else [f"{type(self.error).__name__}: {self.error}"]
        return "\n".join([*self.notes, *end])


class Simulation:
    """The tools of a story. The story's own code is outside of all processes: no fault strikes it."""

    def __init__(self, seed: int, faults: Faults, order: Order, *, is_verbose: bool = False) -> None:
        self.seed = seed
        self.loop = SimulatedLoop(
            self.chance("order"), order=order, turn_us=self.chance("turns").choice((0, 0, 1, 100))
        )
        self.clock = SimulatedClock(self.loop)
        self.injector = FaultInjector(faults, self.chance("faults"))
        self.processes: list[Process] = []
        self.notes: list[str] = []
        self.context = self.loop.context_of(self.loop.main)
        self.is_over = False
        self._skews = self.chance("skews")
        self._numbers = count(1)
        self._failed: asyncio.Future[None] | None = None
        self.is_verbose = is_verbose

    def chance(self, name: str) -> random.Random:
        """Return a generator seeded by the seed and `name`, which no draw under another name changes."""
        return random.Random(f"{self.seed}/{name}")

    def number(self) -> int:
        """Return a number that is unique in this simulation."""
        return next(self._numbers)

    def note(self, text: str) -> None:
        """Add `text` to the trace."""
        if not self.is_over:
            line = f"{self._at()} {text}"
            self.notes.append(line)
            self.loop.record(line)

    def detail(self, text: str) -> None:
        """Add `text` to a verbose trace; the digest does not change."""
        if self.is_verbose and not self.is_over:
            self.notes.append(f"{self._at()}   · {text}")

    def boot(self, name: str, main: Callable[[Process], Coroutine[Any, Any, None]]) -> Process:
        """Start a new process that runs `main`."""
        number = len(self.processes) + 1
        most = self.injector.faults.skew_s
        skew = timedelta(microseconds=round(self._skews.uniform(-most, most) * 1e6))
        process = Process(self, name, number, skew)
        self.processes.append(process)
        self.note(f"{name} begins")
        process.start(main)
        return process

    def fail(self, what: str, error: BaseException) -> None:
        """End the story with an error that no part of it can catch."""
        self.note(f"{what} FAILS: {type(error).__name__}: {error}")
        if self._failed is not None and not self._failed.done():
            self._failed.set_exception(error)

    async def play(self, story: Story) -> Any:
        """Run the story and return its result.

        Raises:
            BaseException: what it raised, or the error that `fail` got.
        """
        self._failed = self.loop.create_future()
        async with asyncio.TaskGroup() as group:
            playing = group.create_task(_run_story(story, self), name="story")
            await asyncio.wait((playing, self._failed), return_when=asyncio.FIRST_COMPLETED)
            if self._failed.done():
                playing.cancel()
                self._failed.result()
            self._failed.cancel()
        return playing.result()

    def clean_up(self) -> None:
        """End all that the story left: dead and frozen processes, and tasks that no code awaits."""
        self.is_over = True
        self.loop.set_exception_handler(lambda loop, context: None)
        queues = self.loop.queues
        for queue in queues:
            self.loop.resume(queue)
        self.loop.allow(_LAST_TURNS, _LAST_S)
        try:
            self.loop.run_until_complete(_cancel_all(self.loop))
        except SimulationError:
            pass  # tasks that do not end are closed below, and the story has its outcome already
        finally:
            for queue in queues:
                for task in queue.pending_tasks():
                    _close(task)
            self.loop.close()

    def _at(self) -> str:
        return f"{self.loop.now_us / 1e6:12.6f}"


async def _run_story(story: Story, simulation: Simulation) -> Any:
    CURRENT_QUEUE.set(simulation.loop.main)
    return await story(simulation)


async def _cancel_all(loop: SimulatedLoop) -> None:
    for _ in range(_MOST_CLOSINGS):
        mine = asyncio.current_task()
        left = [task for queue in loop.queues for task in queue.pending_tasks() if task is not mine]
        if not left:
            return
        for task in left:
            task.cancel()
        for _ in range(20):
            await asyncio.sleep(0)
        await asyncio.sleep(1)


def _close(task: asyncio.Task[Any]) -> None:
    """Close the coroutine of a task that ignores its cancellation."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    coro: Any = task.get_coro()
    for _ in range(_MOST_CLOSINGS):
        try:
            coro.close()
        except RuntimeError:
            continue  # it awaited something while it was closed
        except BaseException:  # noqa: BLE001 - an error while it closes is no part of the story
            return
        return


def simulate(
    story: Story,
    seed: int,
    *,
    faults: Faults = NO_FAULTS,
    order: Order | None = None,
    is_verbose: bool = False,
) -> Outcome:
    """Play the story once, with every choice drawn from `seed`. Never: raises what the story raised.

    Without `order` the order is drawn, too. The same arguments give the same `digest`, in any process.
    """
    if order is None:
        order = random.Random(f"{seed}/which order").choice(list(Order))
    simulation = Simulation(seed, faults, order, is_verbose=is_verbose)
    loop = simulation.loop
    error: BaseException | None = None
    result = None
    with _seed_everything(simulation):
        try:
            result = loop.run_until_complete(simulation.play(story))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as raised:  # noqa: BLE001 - it is the outcome
            error = _unwrap(raised)
        outcome = Outcome(
            seed=seed,
            digest=loop.digest(),
            notes=tuple(simulation.notes),
            turns=loop.turns,
            seconds=loop.time(),
            struck=dict(simulation.injector.struck),
            result=result,
            error=error,
        )
        simulation.clean_up()
    return outcome


def _unwrap(error: BaseException) -> BaseException:
    """Return the error of a group that has only one."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


class _TraceHandler(logging.Handler):
    """Adds the log of the package to the trace."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(logging.INFO)
        self._simulation = simulation

    def emit(self, record: logging.LogRecord) -> None:
        queue = CURRENT_QUEUE.get()
        by = "world" if queue is None else queue.name
        self._simulation.note(f"{by} {record.levelname.lower()}: {record.getMessage()}")


@contextmanager
def _capture_logs(simulation: Simulation) -> Iterator[None]:
    """Send the log of the package to the trace alone."""
    logger = logging.getLogger("harborage")
    before = (logger.handlers, logger.level, logger.propagate)
    logger.handlers, logger.propagate = [_TraceHandler(simulation)], False
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.handlers, _, logger.propagate = before
        logger.setLevel(before[1])


@contextmanager
def _seed_everything(simulation: Simulation) -> Iterator[None]:
    """Take ids, random numbers and the system's clock from the simulation.

    Garbage collection is off meanwhile, because its times do not come from the seed.
    """
    chance = simulation.chance("ids")

    def time_and_chance() -> tuple[int, bytes]:
        return round(START.timestamp() * 1000) + simulation.loop.now_us // 1000, chance.randbytes(10)

    state = random.getstate()
    was_collecting = gc.isenabled()
    random.seed(f"{simulation.seed}/module")
    gc.disable()
    try:
        with (
            mock.patch.object(ids, "_time_and_chance", time_and_chance),
            mock.patch.object(SystemClock, "now", staticmethod(simulation.clock.now)),
            mock.patch.object(SystemClock, "monotonic", staticmethod(simulation.clock.monotonic)),
            _capture_logs(simulation),
        ):
            yield
    finally:
        random.setstate(state)
        gc.collect(0)  # all objects of the story are young, since none was collected meanwhile
        if was_collecting:
            gc.enable()
