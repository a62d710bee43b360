"""A planner that swallows everything, its cancellation and even its closing, does not outlive its run."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from harborage import Decision, Finish, FinishReason, Identity, RunContext, Runtime
from harborage.concurrency import CANCEL_GRACE_S
from harborage.planner import Budget
from harborage.runtime.pauses import Coordinator
from harborage.runtime.steering import ControlEvent, ControlType, InboxRegistry, RunLoop, RunSpec, Scope
from harborage.testing.clock import FakeClock, settle

pytestmark = [
    pytest.mark.anyio,
    # Python says so itself when it throws such a coroutine away.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

WHO = Identity("t", "u", "s")
HOUR = timedelta(hours=1)
Waits = Callable[[], Awaitable[object]]


async def an_event() -> None:
    await asyncio.Event().wait()


async def a_turn() -> None:
    await asyncio.sleep(0)


async def a_task() -> None:
    await asyncio.create_task(an_event())


@pytest.fixture(params=[an_event, a_turn, a_task])
def waits(request: pytest.FixtureRequest) -> Waits:
    """What the planner waits for: an event that never comes, the next turn of the event loop, a task of its own."""
    found: Waits = request.param
    return found


def _is_in_a_loop() -> bool:
    """Whether an event loop runs in this thread; where the collector throws a planner away in another, none does.

    There, and behind the end of the loop, a planner that still went on would never come to an await, and keep its
    thread for ever.
    """
    return asyncio._get_running_loop() is not None


class Swallows:
    """Goes on whatever happens to it; counts how often it was interrupted."""

    def __init__(self, waits: Waits) -> None:
        self.is_planning = asyncio.Event()
        self.was_interrupted = asyncio.Event()
        self.interruptions = 0
        self.is_over = False
        self._waits = waits

    async def next(self, run: RunContext) -> Decision:
        while not self.is_over and _is_in_a_loop():
            try:
                self.is_planning.set()
                await self._waits()
            except BaseException:
                self.interruptions += 1
                self.was_interrupted.set()
        return Finish(FinishReason.NO_PATH)


@pytest.fixture
def planner(waits: Waits) -> Iterator[Swallows]:
    made = Swallows(waits)
    yield made
    made.is_over = True
    gc.collect()


@pytest.fixture
def is_left(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], bool]]:
    """Whether the log says that the planner was left."""
    with caplog.at_level(logging.WARNING):
        yield lambda: "its planner was abandoned: it ignored its cancellation" in caplog.text


@pytest.mark.parametrize("is_kept", [False, True], ids=["memory", "sqlite"])
async def test_a_hard_cancel_ends_the_run_when_the_grace_is_over(
    planner: Swallows, is_kept: bool, tmp_path: Path, is_left: Callable[[], bool]
) -> None:
    """Not before, so that a planner that tidies up may do so; and the log says what was left."""
    clock = FakeClock()
    storage = f"sqlite:{tmp_path / 'runs.db'}" if is_kept else None
    async with Runtime(planner=planner, clock=clock, storage=storage) as rt:
        run = await rt.start("go", who=WHO)
        await asyncio.wait_for(planner.is_planning.wait(), 20)
        await run.cancel(hard=True)
        await asyncio.wait_for(planner.was_interrupted.wait(), 20)
        await settle()
        assert not (await run.status()).phase.is_final
        await clock.run_for(CANCEL_GRACE_S)
        finish = await asyncio.wait_for(run.finished(), 20)
    assert finish.reason is FinishReason.CANCELLED
    assert planner.interruptions >= 1
    assert is_left()


async def test_a_deadline_ends_the_run_when_the_grace_is_over(planner: Swallows, is_left: Callable[[], bool]) -> None:
    """At its deadline and the grace the run has ended, by its deadline."""
    clock = FakeClock()
    async with Runtime(planner=planner, clock=clock) as rt:
        run = await rt.start("go", who=WHO, deadline=clock.now() + HOUR)
        await planner.is_planning.wait()
        await clock.run_for(HOUR.total_seconds())
        await clock.run_for(CANCEL_GRACE_S)
        finish = await asyncio.wait_for(run.finished(), 20)
    assert finish.reason is FinishReason.DEADLINE_EXCEEDED
    assert is_left()


async def test_closing_the_runtime_takes_the_grace_and_no_longer(planner: Swallows) -> None:
    """The planner is left, and the process can end."""
    clock = FakeClock()
    rt = await Runtime(planner=planner, clock=clock).__aenter__()
    await rt.start("go", who=WHO)
    await planner.is_planning.wait()
    closing = asyncio.create_task(rt.aclose())
    await settle()
    await clock.run_for(CANCEL_GRACE_S)
    await asyncio.wait_for(closing, 20)


@pytest.mark.parametrize("by_deadline", [False, True])
async def test_a_run_loop_ends_in_the_same_time(
    planner: Swallows, by_deadline: bool, is_left: Callable[[], bool]
) -> None:
    """By a hard cancel, and by the deadline of its budget."""
    clock, who = FakeClock(), WHO.with_run("r")
    inboxes = InboxRegistry(clock=clock)
    base = RunContext(quadruple=who, goal="g", budget=Budget(deadline=clock.now() + HOUR))
    loop = RunLoop(inboxes, Coordinator(clock=clock), clock=clock)
    running = asyncio.create_task(loop.run(RunSpec(planner=planner, base=base)))
    await planner.is_planning.wait()
    if by_deadline:
        await clock.run_for(HOUR.total_seconds())
    else:
        inboxes.lookup(who).enqueue(ControlEvent(ControlType.CANCEL, who, Scope.ADMIN, "t", {"hard": True}))
        await settle()
    assert not running.done()
    await clock.run_for(CANCEL_GRACE_S)
    finish = await asyncio.wait_for(running, 20)
    assert finish.reason is (FinishReason.DEADLINE_EXCEEDED if by_deadline else FinishReason.CANCELLED)
    assert is_left()
