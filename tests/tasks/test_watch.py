"""Watches carry one value at most, and waiters leave no trace."""

from __future__ import annotations

import asyncio

import pytest

from harborage.identity import Quadruple
from harborage.tasks import RegistryClosedError, Task, TaskKind
from harborage.tasks.watch import EndWaiters, Watch
from harborage.testing.clock import settle

pytestmark = pytest.mark.anyio

TASK = Task(id="t", identity=Quadruple("t", "u", "s"), kind=TaskKind.BACKGROUND)


async def test_the_first_end_counts() -> None:
    """Of value, cancel and close only the first one ends a watch."""
    for end in ("deliver", "cancel", "close"):
        watch: Watch[int] = Watch()
        watch.deliver(1) if end == "deliver" else getattr(watch, end)()
        watch.deliver(2)
        watch.cancel()
        watch.close()
        wanted = 1 if end == "deliver" else None
        assert (watch.peek(), await watch.wait(), watch.is_closed) == (wanted, wanted, True)


async def test_giving_up_is_told_once() -> None:
    """The keeper hears of a watch that is given up, once, and never of one that has ended."""
    heard: list[Watch[int]] = []
    given_up: Watch[int] = Watch(heard.append)
    ended: Watch[int] = Watch(heard.append)
    ended.deliver(1)
    for watch in (given_up, given_up, ended):
        watch.cancel()
    assert heard == [given_up]


def test_peeking_needs_no_loop() -> None:
    """A watch can be made, delivered and read where no event loop runs."""
    watch: Watch[int] = Watch()
    assert (watch.peek(), watch.is_closed) == (None, False)
    watch.deliver(5)
    assert watch.peek() == 5


async def test_a_waiter_that_gives_up_leaves_no_trace() -> None:
    """A cancelled waiter is forgotten at once; the others are woken by the end and forgotten too."""
    waiters = EndWaiters()
    one, two = (asyncio.create_task(waiters.wait("t")) for _ in range(2))
    await settle()
    assert len(waiters) == 2
    one.cancel()
    await settle()
    assert len(waiters) == 1
    waiters.ended(TASK)
    assert await two is TASK
    assert len(waiters) == 0
    waiters.ended(TASK)


async def test_a_waiter_cancelled_as_the_task_ends_harms_nobody() -> None:
    """A waiter that is cancelled in the same moment as the end does not break the end."""
    waiters = EndWaiters()
    one, two = (asyncio.create_task(waiters.wait("t")) for _ in range(2))
    await settle()
    one.cancel()
    waiters.ended(TASK)
    assert await two is TASK
    with pytest.raises(asyncio.CancelledError):
        await one


async def test_closing_turns_waiters_away() -> None:
    """Everybody who waits is told that the registry closed."""
    waiters = EndWaiters()
    waiting = asyncio.create_task(waiters.wait("t"))
    await settle()
    waiters.close()
    with pytest.raises(RegistryClosedError):
        await waiting
    assert len(waiters) == 0
