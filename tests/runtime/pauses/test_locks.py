"""A lock for each name."""

from __future__ import annotations

import asyncio

from harborage.runtime.pauses.locks import KeyedLocks


async def test_one_at_a_time_for_one_name() -> None:
    """The second comes in when the first has left."""
    locks, seen, leave = KeyedLocks(), [], asyncio.Event()

    async def visit(who: str) -> None:
        async with locks("door"):
            seen.append(f"{who} in")
            await leave.wait()
            seen.append(f"{who} out")

    async with asyncio.TaskGroup() as group:
        group.create_task(visit("a"))
        group.create_task(visit("b"))
        await asyncio.sleep(0)
        assert seen == ["a in"]
        leave.set()
    assert seen == ["a in", "a out", "b in", "b out"]


async def test_other_names_do_not_wait() -> None:
    """Inside one name's block another one is free."""
    locks = KeyedLocks()
    async with locks("a"), locks("b"):
        assert len(locks) == 2


async def test_nothing_is_left_behind() -> None:
    """Neither an error nor a cancelled wait leaves a lock in the table."""
    locks = KeyedLocks()
    async with locks("a"):
        waiting = asyncio.create_task(_visit(locks))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert len(locks) == 1
    assert len(locks) == 0


async def _visit(locks: KeyedLocks) -> None:
    async with locks("a"):
        raise AssertionError("the door was locked")
