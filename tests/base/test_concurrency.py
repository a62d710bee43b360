"""Scopes interrupt what is inside them and nothing else; crews end with no task left."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any

import pytest

from harborage.concurrency import (
    CANCEL_GRACE_S,
    STOP,
    CancelScope,
    Crew,
    cancellations,
    detachable,
    leavable,
    take_back,
    together,
)
from harborage.testing.clock import FakeClock, settle


async def test_a_cancelled_scope_ends_its_block_and_the_task_goes_on() -> None:
    """Cancelling a scope interrupts the block; the code after it runs."""
    scope = CancelScope()
    asyncio.get_running_loop().call_soon(scope.cancel)
    with scope:
        await asyncio.Event().wait()
    assert scope.was_cancelled
    await asyncio.sleep(0)


async def test_a_scope_cancelled_from_inside_does_not_hit_code_behind_it() -> None:
    """A block that cancels its own scope and ends without awaiting leaves no cancellation behind."""
    with CancelScope() as scope:
        scope.cancel()
    await asyncio.sleep(0)
    assert not scope.was_cancelled


async def test_a_block_is_not_hit_by_what_was_asked_of_the_one_before_it() -> None:
    """A scope that is entered again goes by what is asked of it from then on, and is cut short once."""
    scope = CancelScope()
    with scope:
        scope.cancel()
    for is_asked in (False, True):
        with scope.renew():
            if is_asked:
                scope.cancel()
            await settle()
        assert scope.was_cancelled is is_asked
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0


async def test_a_scope_cancelled_before_entry_ends_at_the_first_await() -> None:
    """A scope that was cancelled early interrupts the first await of its block."""
    scope = CancelScope()
    scope.cancel()
    with scope:
        await asyncio.Event().wait()
    assert scope.was_cancelled


async def test_a_cancellation_from_outside_passes_through_a_cancelled_scope() -> None:
    """When the task itself is cancelled as well, the scope does not swallow that."""
    scope = CancelScope()

    async def work() -> None:
        with scope:
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    scope.cancel()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_closing_a_crew_ends_every_task_and_reports_failures() -> None:
    """A closed crew has no task; a failure went to its observer and a later start is refused."""
    seen: list[tuple[str, str]] = []
    crew = Crew(lambda name, error: seen.append((name, str(error))))

    async def fail() -> None:
        raise ValueError("boom")

    crew.start(fail(), "bad")
    waiting = crew.start(asyncio.Event().wait(), "waiting")  # type: ignore[arg-type]
    await asyncio.sleep(0)
    await crew.aclose()
    assert (len(crew), waiting.cancelled(), seen) == (0, True, [("bad", "boom")])
    with pytest.raises(RuntimeError, match="late"):
        crew.start(fail(), "late")


async def test_a_crew_that_is_closing_stops_and_awaits_what_it_adopts() -> None:
    """Work that is handed over while the crew closes is asked to stop, too, and the crew closes behind its end."""
    crew = Crew(lambda name, error: None)
    first, late = Work(is_stubborn=True), Work(is_stubborn=True)
    crew.start(first(), "first")
    await settle()
    closing = asyncio.create_task(crew.aclose())
    await settle()
    task = asyncio.create_task(late())
    await settle()
    crew.adopt(task)
    first.over.set_result("first")
    await settle()
    meanwhile = (late.cancellations, closing.done(), len(crew))
    late.over.set_result("late")
    await closing
    assert meanwhile == (1, False, 1)
    assert (task.done(), len(crew)) == (True, 0)


async def test_requests_to_stop_that_were_left_open_are_taken_back() -> None:
    """Only the newer requests go; one that was there before stays."""

    async def work() -> tuple[int, int]:
        task = asyncio.current_task()
        assert task is not None
        for _ in range(3):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.sleep(0)
        open_before = cancellations()
        take_back(1)
        return open_before, cancellations()

    assert await asyncio.create_task(work()) == (3, 1)


class Work:
    """Work that may ignore its cancellation until it is let go."""

    def __init__(self, *, is_stubborn: bool) -> None:
        self.cancellations = 0
        self._is_stubborn = is_stubborn
        self.over: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def __call__(self) -> str:
        while True:
            try:
                return await asyncio.shield(self.over)
            except asyncio.CancelledError:
                self.cancellations += 1
                if not self._is_stubborn:
                    raise


def detached(work: Work, clock: FakeClock, crew: Crew, seconds: float | None = None) -> asyncio.Task[str]:
    return asyncio.create_task(detachable(work, clock=clock, crew=crew, name="work", seconds=seconds))


async def test_detachable_work_gives_what_it_gives() -> None:
    """A value, an error, and one that ends while it is being cancelled."""
    clock, crew = FakeClock(), Crew(lambda name, error: None)
    for end in ("value", "error", "late value"):
        work = Work(is_stubborn=True)
        task = detached(work, clock, crew, seconds=1)
        await settle()
        if end == "late value":
            await clock.run_for(1)
        if end == "error":
            work.over.set_exception(LookupError("gone"))
            with pytest.raises(LookupError):
                await task
        else:
            work.over.set_result(end)
            assert await task == end
    assert (len(crew), clock.armed) == (0, 0)


async def test_detachable_work_that_ignores_its_cancellation_does_not_hold_up_its_caller() -> None:
    """Neither after its time nor when the caller is cancelled; from then on it is the crew's."""
    for how in ("time", "cancelled", "cancelled twice"):
        clock, crew = FakeClock(), Crew(lambda name, error: None)
        work = Work(is_stubborn=True)
        task = detached(work, clock, crew, seconds=1)
        await settle()
        if how == "time":
            await clock.run_for(1)
        else:
            task.cancel()
            await settle()
        assert (task.done(), work.cancellations) == (False, 1), how
        if how == "cancelled twice":
            task.cancel()
            await settle()
        else:
            await clock.run_for(CANCEL_GRACE_S)
        with pytest.raises(TimeoutError if how == "time" else asyncio.CancelledError):
            await task
        assert (len(crew), clock.armed) == (1, 0), how
        closing = asyncio.create_task(crew.aclose(clock=clock, grace_s=1))
        await settle()
        assert (closing.done(), work.cancellations) == (False, 2)
        await clock.run_for(1)
        assert await closing == ("work",)
        work.over.set_result("at last")
        await settle()
        assert len(crew) == 0


async def test_detachable_work_that_is_cancelled_before_its_first_turn_never_begins() -> None:
    """Cancelled with its caller, as at the end of an event loop: no coroutine is made that nothing awaits."""
    clock, crew = FakeClock(), Crew(lambda name, error: None)
    begun: list[str] = []

    async def work() -> None:
        begun.append("work")

    before = asyncio.all_tasks()
    caller = asyncio.create_task(detachable(work, clock=clock, crew=crew, name="work", seconds=1))
    await asyncio.sleep(0)  # the caller's first turn, which makes the task of the work
    tasks = asyncio.all_tasks() - before
    assert len(tasks) == 2
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert (caller.cancelled(), begun, len(crew), clock.armed) == (True, [], 0, 0)


async def test_detachable_work_that_obeys_ends_at_once() -> None:
    """When its time is up, and with its caller; nothing is left behind."""
    clock, crew = FakeClock(), Crew(lambda name, error: None)
    late, cancelled = (detached(Work(is_stubborn=False), clock, crew, seconds=1) for _ in range(2))
    await settle()
    cancelled.cancel()
    await clock.run_for(1)
    with pytest.raises(TimeoutError):
        await late
    await asyncio.wait({cancelled})
    assert cancelled.cancelled()
    assert (len(crew), clock.armed) == (0, 0)
    assert await crew.aclose(clock=clock, grace_s=1) == ()


async def _left(work: Awaitable[Any], clock: FakeClock) -> tuple[asyncio.Task[Any], list[BaseException | None]]:
    """A task that awaits leavable work and was asked to stop, and what `on_left` was called with."""
    left: list[BaseException | None] = []

    async def caller() -> Any:
        return await leavable(work, clock=clock, on_left=left.append)

    task = asyncio.create_task(caller())
    await settle()
    task.cancel(STOP)
    await settle()
    return task, left


async def test_leavable_work_gives_what_it_gives_and_leaves_no_timer() -> None:
    """Its value or error, at once, after a wait, or within the grace of a cancellation that it ignored."""

    async def at_once() -> str:
        return "now"

    async def waits() -> str:
        await asyncio.gather(asyncio.sleep(0), asyncio.sleep(0))
        async with asyncio.timeout(5):
            await asyncio.sleep(0)
        return "later"

    async def fails() -> str:
        await asyncio.sleep(0)
        raise LookupError("no")

    async def cleans_up() -> str:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
        return "cleaned up"

    clock, left = FakeClock(), list[BaseException | None]()
    for work, expected in ((at_once, "now"), (waits, "later")):
        assert await leavable(work(), clock=clock, on_left=left.append) == expected
    with pytest.raises(LookupError, match="no"):
        await leavable(fails(), clock=clock, on_left=left.append)
    task, more = await _left(cleans_up(), clock)
    assert await task == "cleaned up"
    assert (left, more, clock.armed) == ([], [], 0)


async def test_leavable_work_that_obeys_is_cancelled_at_once() -> None:
    """Nothing is reported as left, also where it waits for a task of its own."""
    clock = FakeClock()
    for work in (asyncio.sleep(60), asyncio.wait_for(asyncio.sleep(60), 60), asyncio.create_task(asyncio.sleep(60))):
        task, left = await _left(work, clock)
        assert task.cancelled()
        assert (left, clock.armed) == ([], 0)


async def test_leavable_work_that_ignores_its_cancellation_is_ended_after_the_grace() -> None:
    """Its `finally` runs; what it raises as it is closed is handed to `on_left`; the caller is cancelled once."""
    ended: list[str] = []

    async def stubborn(problem: str) -> None:
        try:
            while True:
                with suppress(asyncio.CancelledError):
                    await asyncio.get_running_loop().create_future()
        finally:
            ended.append(problem)
            if problem:
                raise LookupError(problem)

    for problem in ("", "cannot close"):
        clock = FakeClock()
        task, left = await _left(stubborn(problem), clock)
        await clock.run_for(CANCEL_GRACE_S / 2)
        assert not task.done()
        await clock.run_for(CANCEL_GRACE_S / 2)
        await asyncio.wait({task})
        assert task.cancelled()
        assert task.cancelling() == 1
        assert [str(one or "") for one in left] == [problem]
        assert clock.armed == 0
    assert ended == ["", "cannot close"]


async def test_leavable_work_with_a_time_limit_of_its_own_goes_on_after_it() -> None:
    """A limit that the work has set itself cancels the task, too; once the work has dealt with it nothing is ended."""
    clock, left = FakeClock(), list[BaseException | None]()
    limit, began, rest = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def limited() -> str:
        try:
            async with asyncio.timeout(None) as mine:
                asyncio.get_running_loop().call_soon(mine.reschedule, 0)
                await limit.wait()
        except TimeoutError:
            began.set()
            await rest.wait()
        return "went on"

    task = asyncio.ensure_future(leavable(limited(), clock=clock, on_left=left.append))
    await began.wait()
    await clock.run_for(60)
    rest.set()
    assert await task == "went on"
    assert (left, clock.armed) == ([], 0)


async def test_an_unannounced_cancellation_gives_leavable_work_longer() -> None:
    """It may be the work's own; what is still at it after two seconds has ignored it."""
    clock = FakeClock()

    async def stubborn() -> None:
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.get_running_loop().create_future()

    left: list[BaseException | None] = []
    task = asyncio.ensure_future(leavable(stubborn(), clock=clock, on_left=left.append))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    await clock.run_for(1.9)
    assert not task.done()
    await clock.run_for(0.2)
    await asyncio.wait({task})
    assert task.cancelled()
    assert left == [None]


async def test_a_cancellation_that_comes_with_a_failure_is_not_lost() -> None:
    """One piece of work has failed, another is cancelled with its caller in the same turn: the caller is cancelled."""
    may_fail, is_begun = asyncio.Event(), asyncio.Event()

    async def fail() -> None:
        await may_fail.wait()
        raise ValueError("no")

    async def wait() -> None:
        is_begun.set()
        await asyncio.Event().wait()

    caller = asyncio.ensure_future(together(fail(), wait()))
    await is_begun.wait()
    may_fail.set()
    await asyncio.sleep(0)  # the failure is there, and nobody has heard of it yet
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
