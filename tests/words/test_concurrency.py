"""Scopes interrupt what is inside them and nothing else; crews end with no task left."""

from __future__ import annotations

import asyncio

import pytest

from harborage.concurrency import CancelScope, Crew, cancellations, take_back


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
