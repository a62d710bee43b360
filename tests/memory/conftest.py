"""A session memory over a real store, on a clock that stands still, with a summariser that can be switched off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from harborage.events import MemoryEventBus
from harborage.identity import Identity
from harborage.memory import Memory, SessionMemory, Turn
from harborage.state import MemoryStateStore
from harborage.testing.clock import FakeClock
from harborage.testing.events import EventRecorder

ADA = Identity("acme", "ada", "s1")


class Summariser:
    """Counts what it is asked for; fails while it is down, and does not answer while it hangs."""

    def __init__(self) -> None:
        self.calls: list[tuple[Identity, str, int]] = []
        self.is_down = False
        self.hangs = False

    async def summarise(self, who: Identity, previous: str, turns: tuple[Turn, ...]) -> str:
        self.calls.append((who, previous, len(turns)))
        if self.hangs:
            await asyncio.Event().wait()
        if self.is_down:
            raise ConnectionError("the model is down")
        return " ".join(part for part in (previous, *(turn.user_message for turn in turns)) if part)


class MemoryBench:
    """A memory, and everything around it."""

    def __init__(self, config: Memory, **parts: Any) -> None:
        self.clock = FakeClock()
        self.bus = MemoryEventBus()
        self.recorder = EventRecorder(self.bus)
        self.summariser = Summariser()
        self.state = parts.get("state") or MemoryStateStore()
        self.memory = SessionMemory(self.state, self.bus, config, summariser=self.summariser, clock=self.clock)

    async def add(self, count: int, *, who: Identity = ADA, first: int = 1) -> None:
        """Add `count` turns of six tokens each, numbered from `first`."""
        for number in range(first, first + count):
            await self.memory.add_turn(who, Turn(user_message=f"user {number:03}", assistant_response="answered"))

    async def said(self, who: Identity = ADA) -> list[str]:
        """The user messages that a prompt would show."""
        return [turn.user_message for turn in (await self.memory.context(who)).recent_turns]

    @property
    def health_changes(self) -> list[tuple[str, str, str]]:
        """The changes of health that were published."""
        return [
            (one.payload.prior_health, one.payload.new_health, one.payload.reason)
            for one in self.recorder.events
            if one.type == "memory.health_changed"
        ]

    async def aclose(self) -> None:
        await self.memory.aclose()
        self.recorder.cancel()
        await self.bus.aclose()


@pytest.fixture
async def memories() -> AsyncIterator[Callable[..., Awaitable[MemoryBench]]]:
    """Opens memories; each is closed afterwards, and none may leave a task behind."""
    opened: list[MemoryBench] = []

    async def make(config: Memory, **parts: Any) -> MemoryBench:
        bench = MemoryBench(config, **parts)
        opened.append(bench)
        return bench

    yield make
    for bench in reversed(opened):
        await bench.aclose()
    assert [task for task in asyncio.all_tasks() if task.get_name() == "memory recovery"] == []
