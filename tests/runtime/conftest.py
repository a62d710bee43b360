"""What the tests of the assembled runtime share: a runtime on a clock that the test moves, and all its events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from harborage.clock import Timers
from harborage.events import BusConfig, ControlLifecyclePayload, MemoryEventBus
from harborage.identity import Identity
from harborage.planner import Finish
from harborage.runtime.effects.options import RuntimeOptions
from harborage.runtime.host import Runtime
from harborage.runtime.pauses import Pause
from harborage.runtime.run import Run
from harborage.state.storage import Storage, open_storage
from harborage.testing.clock import FakeClock, settle
from harborage.testing.events import EventRecorder
from harborage.testing.planners import ScriptedPlanner

ROOM_FOR_ALL = BusConfig(subscriber_buffer_size=100_000, max_subscribers_per_session=1_000)


def own_tasks() -> list[asyncio.Task[Any]]:
    """The tasks of the loop that are not the test runner's."""
    return [task for task in asyncio.all_tasks() if "TestRunner" not in task.get_coro().__qualname__]


class RuntimeBench:
    """An open runtime with its bus and clock, and helpers for what tests do often."""

    ME = Identity("t", "u", "s")

    def __init__(self, planner: Any, **parts: Any) -> None:
        self.clock: FakeClock = parts.pop("clock", None) or FakeClock()
        # The bus lives on real time: moving the tests' clock must not find its recorder idle.
        self.bus: MemoryEventBus = parts.pop("bus", None) or MemoryEventBus(config=ROOM_FOR_ALL)
        self.recorder = EventRecorder(self.bus)
        options = {name: parts.pop(name) for name in RuntimeOptions.__struct_fields__ if name in parts}
        self.rt = Runtime(
            planner=planner if hasattr(planner, "next") else ScriptedPlanner(planner),
            bus=self.bus,
            clock=self.clock,
            options=RuntimeOptions(**options),
            **parts,
        )

    async def start(self, goal: str = "g", *, who: Identity = ME, **fields: Any) -> Run:
        """A run that is under way."""
        return await self.rt.start(goal, who=who, **fields)

    async def run(self, goal: str = "g", **fields: Any) -> Finish:
        """See a run through."""
        return await self.end(await self.start(goal, **fields))

    async def end(self, run: Run) -> Finish:
        """How a run finished."""
        async with asyncio.timeout(10):
            return await run.finished()

    async def paused(self, run: Run) -> Pause:
        """The pause for which the run waits now."""
        await settle()
        (pause,) = await run.waiting()
        return pause

    @property
    def controls(self) -> list[tuple[str, ...]]:
        """What was published of controls: type, outcome, and the code of a failure."""
        published = self.recorder.payloads(ControlLifecyclePayload)
        return [(one.type, one.outcome, one.err) if one.err else (one.type, one.outcome) for one in published]

    def types(self, *prefixes: str) -> list[str]:
        """The types of what was published, those that begin so."""
        return [one for one in self.recorder.types if one.startswith(prefixes or "")]

    async def aclose(self) -> None:
        await self.rt.aclose()
        self.recorder.cancel()
        await self.bus.aclose()


@pytest.fixture
async def storages() -> AsyncIterator[Callable[[Timers], Awaitable[Storage]]]:
    """Opens storages in memory that outlive their runtimes; each is closed after those."""
    async with AsyncExitStack() as opened:

        async def open_one(clock: Timers) -> Storage:
            return await opened.enter_async_context(await open_storage("memory:", clock=clock))

        yield open_one


@pytest.fixture
async def runtimes(storages: object) -> AsyncIterator[Callable[..., Awaitable[RuntimeBench]]]:
    """Opens runtimes; each is closed afterwards, and none may leave a task behind."""
    opened: list[RuntimeBench] = []

    async def make(planner: Any, **parts: Any) -> RuntimeBench:
        bench = RuntimeBench(planner, **parts)
        await bench.rt.__aenter__()
        opened.append(bench)
        return bench

    yield make
    for bench in reversed(opened):
        await bench.aclose()
    await settle(2)
    assert own_tasks() == []
