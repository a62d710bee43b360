"""The question whether the caller may go on."""

from __future__ import annotations

import asyncio

import pytest

from harborage.concurrency import CancelScope
from harborage.planner import raise_if_cancelled

pytestmark = pytest.mark.anyio


async def test_an_ordinary_task_goes_on():
    """A task that nobody cancelled passes."""
    assert raise_if_cancelled() is None


async def test_a_cancelled_task_is_told_before_its_next_wait():
    """A task that was asked to stop learns of it at once."""
    reached = []

    async def work():
        asyncio.current_task().cancel()
        reached.append("before")
        raise_if_cancelled()
        reached.append("after")

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(work())
    assert reached == ["before"]


async def test_a_scope_that_ended_leaves_no_trace():
    """After a cancelled scope the task may go on."""
    with CancelScope() as scope:
        scope.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert scope.was_cancelled
    assert raise_if_cancelled() is None
