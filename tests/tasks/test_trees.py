"""The children of many runs are read together."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from harborage.identity import Identity
from harborage.state.errors import DatabaseLockedError
from harborage.store import Commit, NewRun, Page, RunQuery, RunRow
from harborage.store.memory import MemoryStore
from harborage.tasks.errors import RegistryClosedError
from harborage.tasks.trees import Children
from harborage.testing.clock import settle

pytestmark = pytest.mark.anyio

ME, OTHER = Identity("t", "u", "s"), Identity("t", "u", "other")


class Slow(MemoryStore):
    """A store whose reads wait for `gate`, and fail while it is `is_locked`."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()
        self.is_locked = False
        self.asked: list[tuple[str, ...]] = []

    async def runs(self, query: RunQuery) -> Page[RunRow]:
        self.asked.append(query.parents)
        await self.gate.wait()
        if self.is_locked:
            raise DatabaseLockedError("the database", "locked")
        return await super().runs(query)


async def family() -> Slow:
    """Two parents of two children each, in one session, and a third in another."""
    store = Slow()
    for run_id, parent, who in (("a", "p", ME), ("b", "q", ME), ("c", "p", ME), ("d", "q", ME), ("e", "p", OTHER)):
        await store.commit(Commit(starts=(NewRun(run_id=run_id, who=who, parent=parent),)))
    return store


def names(rows: Any) -> list[str]:
    return [row.run_id for row in rows]


async def test_those_who_ask_in_one_turn_share_a_read() -> None:
    """Each gets its own, whichever caller asks for the same; another session is read by itself."""
    store = await family()
    children = Children(store)
    asking = [children.of(who, parent) for who, parent in ((ME, "p"), (ME, "q"), (ME, "p"), (ME, "none"), (OTHER, "p"))]
    found = await asyncio.gather(*asking)
    assert [names(rows) for rows in found] == [["a", "c"], ["b", "d"], ["a", "c"], [], ["e"]]
    assert store.asked == [("p", "q", "none"), ("p",)]
    await children.aclose()


async def test_those_who_ask_meanwhile_share_the_next_read() -> None:
    """What has begun may not have seen what they want to see."""
    store = await family()
    children = Children(store)
    store.gate.clear()
    first = asyncio.ensure_future(children.of(ME, "p"))
    await settle()
    rest = [asyncio.ensure_future(children.of(ME, parent)) for parent in ("p", "q")]
    await settle()
    rest[1].cancel()
    store.gate.set()
    assert names(await first) == names(await rest[0]) == ["a", "c"]
    assert store.asked == [("p",), ("p", "q")]
    await children.aclose()


async def test_many_parents_are_read_some_at_a_time() -> None:
    """A read of a large tree stays small."""
    store = await family()
    children = Children(store)
    found = await asyncio.gather(*(children.of(ME, str(number)) for number in range(450)), children.of(ME, "q"))
    assert names(found[-1]) == ["b", "d"]
    assert [len(parents) for parents in store.asked] == [200, 200, 51]
    await children.aclose()


async def test_a_read_that_fails_is_raised_to_all_callers() -> None:
    """And the next one is a new one."""
    store = await family()
    children = Children(store)
    store.is_locked = True
    failed = await asyncio.gather(*(children.of(ME, parent) for parent in "pq"), return_exceptions=True)
    assert [type(error) for error in failed] == [DatabaseLockedError] * 2
    store.is_locked = False
    assert names(await children.of(ME, "p")) == ["a", "c"]
    await children.aclose()


async def test_those_who_wait_are_turned_away_at_the_end() -> None:
    """Those whose read is under way, and those whose read has not begun."""
    store = await family()
    children = Children(store)
    store.gate.clear()
    waiting = [asyncio.ensure_future(children.of(ME, "p"))]
    await settle()
    waiting += [asyncio.ensure_future(children.of(who, "q")) for who in (ME, OTHER)]
    await asyncio.sleep(0)
    await children.aclose()
    ends = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(error) for error in ends] == [RegistryClosedError] * 3
