"""The host over a store keeps every promise of a host, in memory and in SQLite, with a linger short and long."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from harborage.planner import Finish
from harborage.runtime.durable import Durable, Engine, RunRequest
from harborage.runtime.effects import EffectTable
from harborage.runtime.engines.stored import StoredEngine
from harborage.runtime.pauses import Coordinator, Pause
from harborage.state.memory_runs import MemoryRuns
from harborage.state.runs import Claim
from harborage.state.storage import Storage, open_storage
from harborage.testing.clock import FakeClock, settle
from harborage.testing.conformance.hosts import IN_TURNS, SCENARIOS, SHARED, Death, HostFactory, Scenario, check

pytestmark = pytest.mark.anyio


class Hosts:
    """Engines over one store; each is another worker."""

    keeps_queued_controls = True

    def __init__(self, storage: Storage, clock: FakeClock, linger: timedelta) -> None:
        self._clock = clock
        self._storage = storage
        self._linger = linger
        self._opened: list[StoredEngine] = []
        self.pauses = Coordinator(store=storage.state, clock=clock, on_settled=self._settled)

    def now(self) -> datetime:
        return self._clock.now()

    async def open(self, death: Death | None = None) -> Engine:
        runs, queue = self._storage.runs, self._storage.queue
        if death is not None:
            runs, queue = death.of(runs), death.of(queue)
        self._opened.append(StoredEngine(runs, queue, self.pauses, clock=self._clock, linger=self._linger))
        return self._opened[-1]

    async def pass_time(self, seconds: float) -> None:
        await self._clock.run_for(seconds)

    async def _settled(self, pause: Pause) -> None:
        """A run that waits for a pause may have left memory: then nobody else tells it."""
        await self._storage.queue.wake(pause.identity.run_id)

    async def aclose(self) -> None:
        for engine in self._opened:
            await engine.aclose()
        await self._storage.aclose()


@pytest.mark.parametrize("linger", [timedelta(0), timedelta(hours=1)], ids=["leaves at once", "stays"])
@pytest.mark.parametrize("scenario", [*SCENARIOS, *SHARED], ids=lambda scenario: scenario.__name__)
async def test_a_host_over_a_store(scenario: Scenario, linger: timedelta) -> None:
    """Every scenario of the suite, whether runs that wait leave memory or not."""

    async def open_hosts() -> HostFactory:
        clock = FakeClock()
        return Hosts(await open_storage("memory:", clock=clock), clock, linger)

    await check(scenario, open_hosts)


OVER_A_DISK = [one for one in (*SCENARIOS, *SHARED) if one not in IN_TURNS]


@pytest.mark.parametrize("scenario", OVER_A_DISK, ids=lambda scenario: scenario.__name__)
async def test_a_host_over_sqlite(scenario: Scenario, tmp_path: Path) -> None:
    """Every scenario of the suite over one file."""

    async def open_hosts() -> HostFactory:
        clock = FakeClock()
        return Hosts(await open_storage(f"sqlite:{tmp_path}/runs.db", clock=clock), clock, timedelta(0))

    await check(scenario, open_hosts)


class Behind(MemoryRuns):
    """A store whose clock is behind that of its workers: what is due for them is not due for it."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self.clock = clock
        self.looks = 0

    async def claim(self, worker: str, **options: Any) -> list[Claim]:
        self.looks += 1
        return await super().claim(worker, **options)

    async def next_wake(self, *, agent: str = "") -> datetime:
        return self.clock.now() - timedelta(seconds=3)


async def test_a_clock_that_is_ahead_makes_no_work() -> None:
    """A worker that thinks a run is due looks again a little later, not at once and for ever."""
    clock = FakeClock()
    runs = Behind(clock)
    engine = StoredEngine(runs, runs, Coordinator(clock=clock), clock=clock)

    async def program(durable: Durable, request: RunRequest) -> Finish:
        raise AssertionError("there is nothing to carry")

    serving = asyncio.create_task(engine.serve(program, EffectTable({})))
    await settle()
    looks = runs.looks
    assert looks == 1
    await clock.run_for(1)
    assert looks < runs.looks < 50
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    await engine.aclose()
