"""What the tests of the run loop share: a loop on its parts, and short words for what they do all the time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from harborage.events import BusConfig, ControlLifecyclePayload, MemoryEventBus
from harborage.identity import Quadruple
from harborage.planner import Finish, RunContext
from harborage.runtime.pauses import Coordinator, Pause
from harborage.runtime.steering import ControlEvent, ControlType, InboxRegistry, RunLoop, RunSpec, Scope
from harborage.testing.clock import FakeClock, settle
from harborage.testing.events import EventRecorder

ROOM_FOR_ALL = BusConfig(subscriber_buffer_size=100_000)


def own_tasks() -> list[asyncio.Task[Any]]:
    """The tasks of the loop that are not the test runner's."""
    return [task for task in asyncio.all_tasks() if "TestRunner" not in task.get_coro().__qualname__]


class LoopBench:
    """A run loop, its parts, and the runs that were started on it."""

    def __init__(self, **options: Any) -> None:
        self.clock = FakeClock()
        self.bus = MemoryEventBus(config=ROOM_FOR_ALL)
        self.recorder = EventRecorder(self.bus)
        self.registry = InboxRegistry(clock=self.clock)
        self.pauses = options.pop("coordinator", Coordinator)(bus=self.bus, clock=self.clock)
        self.begun: list[asyncio.Task[Finish]] = []
        gates = options.pop("gates", None)  # made on the parts above, so they come as a function of the bench
        if gates is not None:
            options["approval_gates"] = gates(self)
        self.loop = RunLoop(self.registry, self.pauses, **{"bus": self.bus, "clock": self.clock, **options})

    @staticmethod
    def who(run_id: str = "r") -> Quadruple:
        return Quadruple("t", "u", "s", run_id)

    def spec(self, planner: Any, run_id: str = "r", *, base: dict[str, Any] | None = None, **fields: Any) -> RunSpec:
        """What one run needs; `base` are fields of its template."""
        template = RunContext(**{"quadruple": self.who(run_id), "query": "q", "goal": "g", **(base or {})})
        return RunSpec(**{"planner": planner, "base": template, "max_steps": 9, **fields})

    async def run(self, planner: Any, run_id: str = "r", **fields: Any) -> Finish:
        """See a run through, and its inbox retired."""
        return await self.end(self.begin(planner, run_id, **fields))

    def begin(self, planner: Any, run_id: str = "r", **fields: Any) -> asyncio.Task[Finish]:
        """A run that is under way."""
        task = asyncio.create_task(self.loop.run(self.spec(planner, run_id, **fields)))
        self.begun.append(task)
        return task

    async def end(self, task: asyncio.Task[Finish]) -> Finish:
        """How a run under way ended; with it, nothing of it is left in the registry."""
        async with asyncio.timeout(10):
            try:
                return await task
            finally:
                if all(one.done() for one in self.begun):
                    assert len(self.registry) == 0

    def send(self, type: str, payload: dict[str, Any] | None = None, run_id: str = "r") -> bool:
        """Queue a control."""
        return self.registry.lookup(self.who(run_id)).enqueue(self.control(type, payload, run_id))

    def control(self, type: str, payload: dict[str, Any] | None = None, run_id: str = "r") -> ControlEvent:
        return ControlEvent(ControlType(type), self.who(run_id), Scope.ADMIN, "t", payload)

    async def paused(self, run_id: str = "r") -> Pause:
        """The pause on which the run is parked now."""
        await settle()
        rows = (await self.pauses.list(who=self.who(run_id))).rows
        (pause,) = [pause for pause in rows if pause.identity == self.who(run_id)]
        return pause

    @property
    def controls(self) -> list[tuple[str, ...]]:
        """What was published of controls: type, outcome, and the code of a failure."""
        published = self.recorder.payloads(ControlLifecyclePayload)
        return [(one.type, one.outcome, one.err) if one.err else (one.type, one.outcome) for one in published]

    @property
    def history(self) -> list[tuple[str, str]]:
        """What the loop recorded of controls: type, and the class of the error."""
        lines = self.loop.control_history("s", who=self.who().identity)
        return [(str(one.type), type(one.err).__name__ if one.err else "") for one in lines]

    async def aclose(self) -> None:
        for task in self.begun:
            task.cancel()
        if self.begun:
            await asyncio.wait(self.begun)
        self.recorder.cancel()
        await self.bus.aclose()


@pytest.fixture
async def benches() -> AsyncIterator[Callable[..., LoopBench]]:
    """Makes benches with loops of these options; all are closed afterwards, and none may leave a task behind."""
    made: list[LoopBench] = []

    def make(**options: Any) -> LoopBench:
        made.append(LoopBench(**options))
        return made[-1]

    yield make
    for bench in made:
        await bench.aclose()
    await settle(2)
    assert own_tasks() == []
    assert all(bench.clock.armed == 0 for bench in made)


@pytest.fixture
async def bench(benches: Callable[..., LoopBench]) -> LoopBench:
    """A bench with a loop as an embedder gets it."""
    return benches()
