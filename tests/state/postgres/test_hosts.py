"""A host over Postgres keeps every promise of a host: runs, controls, pauses and deadlines, whoever carries them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from harborage.runtime.durable.engine import Engine
from harborage.runtime.durable.stored import StoredEngine
from harborage.runtime.pauses import Coordinator
from harborage.state.postgres import open_postgres
from harborage.state.storage import Storage
from harborage.testing.clock import FakeClock
from tests.kit.conformance.host_bench import HostFactory
from tests.kit.conformance.host_death import Death
from tests.kit.conformance.hosts import IN_TURNS, SCENARIOS, SHARED, Scenario, check


class Hosts:
    """Engines over one storage; each is another worker."""

    keeps_queued_controls = True

    def __init__(self, storage: Storage, clock: FakeClock) -> None:
        self._storage = storage
        self._clock = clock
        self._opened: list[StoredEngine] = []
        self.pauses = Coordinator(store=storage.store, clock=clock)

    def now(self) -> datetime:
        return self._clock.now()

    async def open(self, death: Death | None = None) -> Engine:
        store = self._storage.store if death is None else death.of(self._storage.store)
        engine = StoredEngine(store, self.pauses, clock=self._clock, linger=timedelta(0))
        self._opened.append(engine)
        return engine

    async def pass_time(self, seconds: float) -> None:
        await self._clock.run_for(seconds)

    async def aclose(self) -> None:
        for engine in self._opened:
            await engine.aclose()
        await self._storage.aclose()


PROMISES = [scenario for scenario in (*SCENARIOS, *SHARED) if scenario not in IN_TURNS]


@pytest.mark.parametrize("scenario", PROMISES, ids=lambda scenario: scenario.__name__)
async def test_a_host_over_postgres(scenario: Scenario, place: Any) -> None:
    """Every scenario of the suite, with runs that leave memory as soon as they wait."""

    async def open_hosts() -> HostFactory:
        clock = FakeClock()
        return Hosts(await open_postgres(place.url, clock), clock)

    await check(scenario, open_hosts)
