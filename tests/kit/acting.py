"""A run that acts and may wait, the effects that count what it does, and a host that is served for a while."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from harborage.identity import Quadruple
from harborage.planner import Finish, FinishReason
from harborage.runtime.durable.steps import Change, EffectTable, Note, StepCall
from harborage.runtime.durable.stored import StoredEngine
from harborage.runtime.loop.seam import RunRequest
from harborage.runtime.pauses import Coordinator
from harborage.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from harborage.store import Store

GOAL = Finish(FinishReason.GOAL)


def who(run_id: str) -> Quadruple:
    """Whose run this is."""
    return Quadruple("t", "u", "s", run_id)


def request(run_id: str, **fields: Any) -> RunRequest:
    """What the run is started with."""
    return RunRequest(**{"who": who(run_id), "goal": "g", **fields})


def on(store: Store, **options: Any) -> StoredEngine:
    """A host over the store, on a clock that the test moves."""
    clock = FakeClock()
    return StoredEngine(store, Coordinator(clock=clock), **{"clock": clock, **options})


class World:
    """Counts what is done; `wait` holds until `gate` is set."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.gate = asyncio.Event()
        self.stray: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def effects(self) -> EffectTable:
        """What its runs do here."""
        return EffectTable(
            {
                "act": Change(run=self._act),
                "wait": Note(run=self._wait),
                "stray": Note(run=self._stray),
            }
        )

    async def _act(self, call: StepCall) -> None:
        self.done.append(call.run_id)

    async def _wait(self, call: StepCall) -> None:
        await self.gate.wait()

    async def _stray(self, call: StepCall) -> None:
        await self.stray


async def acts(io: Any, asked: RunRequest) -> Finish:
    """Act."""
    await io.step("act", None)
    return GOAL


async def acts_and_waits(io: Any, asked: RunRequest) -> Finish:
    """Act, then wait for the gate."""
    await io.step("act", None)
    await io.step("wait", None)
    return GOAL


@asynccontextmanager
async def served(engine: StoredEngine, program: Any, world: World) -> AsyncIterator[None]:
    """Carry the host's runs within the block."""
    worker = asyncio.create_task(engine.serve(program, world.effects()))
    try:
        yield
    finally:
        worker.cancel()
        await asyncio.wait({worker})
