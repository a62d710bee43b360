"""One session's memory in two processes: what either of them adds is remembered, in whatever order they come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from harborage.events import MemoryEventBus
from harborage.identity import Identity
from harborage.memory import Memory, MemoryHealth, SessionMemory, Turn
from harborage.state import MemoryStateStore, StateRecord
from harborage.state.storage import open_storage

pytestmark = pytest.mark.anyio

ADA = Identity("acme", "ada", "s1")
TRUNCATION = Memory(strategy="truncation", tokens=0)
ROLLING = Memory(tokens=0)


class Lists:
    """A summariser whose summary is everything that was ever said, in order."""

    async def summarise(self, who: Identity, previous: str, turns: tuple[Turn, ...]) -> str:
        await asyncio.sleep(0)
        return " ".join([*([previous] if previous else []), *(turn.user_message for turn in turns)])


class Processes:
    """Memories over one file, each with a database of its own."""

    def __init__(self, path: Path, opened: AsyncExitStack) -> None:
        self._path = path
        self._opened = opened

    async def memory(self, config: Memory) -> SessionMemory:
        storage = await self._opened.enter_async_context(await open_storage(f"sqlite:{self._path}"))
        memory = SessionMemory(storage.state, MemoryEventBus(), config, summariser=Lists())
        self._opened.push_async_callback(memory.aclose)
        return memory


@pytest.fixture
async def processes(tmp_path: Path) -> AsyncIterator[Processes]:
    async with AsyncExitStack() as opened:
        yield Processes(tmp_path / "memory.db", opened)


async def said(memory: SessionMemory) -> list[str]:
    """Everything that the session remembers, summarised or not."""
    patch = await memory.context(ADA)
    return [*patch.summary.split(), *(turn.user_message for turn in patch.recent_turns)]


async def add(memory: SessionMemory, name: str, count: int) -> None:
    for index in range(count):
        await memory.add_turn(ADA, Turn(user_message=f"{name}{index}", assistant_response="ok", key=f"{name}{index}"))


@pytest.mark.parametrize("config", [TRUNCATION, ROLLING], ids=["truncation", "rolling summary"])
async def test_turns_of_two_processes_are_all_remembered(processes: Processes, config: Memory) -> None:
    """Added at the same time; each process finds those of the other, in the order in which each said them."""
    first, second = await processes.memory(config), await processes.memory(config)
    await asyncio.gather(add(first, "a", 30), add(second, "b", 30))
    everything = await said(first)
    assert everything == await said(second)
    assert [one for one in everything if one.startswith("a")] == [f"a{index}" for index in range(30)]
    assert [one for one in everything if one.startswith("b")] == [f"b{index}" for index in range(30)]
    assert await first.health(ADA) is MemoryHealth.HEALTHY


async def test_a_turn_that_both_processes_add_is_remembered_once(processes: Processes) -> None:
    """Its key says that it is the same, also where neither had seen the other's."""
    first, second = await processes.memory(TRUNCATION), await processes.memory(TRUNCATION)
    await asyncio.gather(add(first, "a", 10), add(second, "a", 10))
    assert await said(first) == [f"a{index}" for index in range(10)]


async def test_a_change_is_made_anew_of_what_another_process_stored_meanwhile() -> None:
    """A writer that read before the other one wrote loses nothing of either."""

    class Overtaken(MemoryStateStore):
        """A store in which another process writes between every first read and the write that follows."""

        async def swap(self, record: StateRecord, *, after: str) -> bool:
            if others and record.data.endswith(b'"b0"]}'):
                await add(elsewhere, others.pop(), 1)
            return await super().swap(record, after=after)

    others: list[str] = []
    store = Overtaken()
    memory, elsewhere = (SessionMemory(store, MemoryEventBus(), TRUNCATION) for _ in range(2))
    await add(memory, "a", 1)
    others += ["y", "x"]
    await add(memory, "b", 1)
    assert await said(memory) == ["a0", "x0", "y0", "b0"]
    await memory.aclose()
    await elsewhere.aclose()
