"""The host over a store keeps every promise of a host, in memory and in SQLite, with a linger short and long."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from harborage.runtime.durable import Engine
from harborage.runtime.engines.stored import StoredEngine
from harborage.runtime.pauses import Coordinator
from harborage.state.storage import Storage, open_storage
from harborage.testing.clock import FakeClock
from harborage.testing.conformance.hosts import SCENARIOS, HostFactory, Scenario, check

pytestmark = pytest.mark.anyio


class Hosts:
    """Engines over one store; each is another worker."""

    keeps_queued_controls = True

    def __init__(self, storage: Storage, clock: FakeClock, linger: timedelta) -> None:
        self._clock = clock
        self._storage = storage
        self._linger = linger
        self._last: StoredEngine | None = None
        self.pauses = Coordinator(store=storage.state, clock=clock)

    def now(self) -> datetime:
        return self._clock.now()

    async def open(self) -> Engine:
        kept = self._storage
        self._last = StoredEngine(kept.runs, kept.queue, self.pauses, clock=self._clock, linger=self._linger)
        return self._last

    async def pass_time(self, seconds: float) -> None:
        await self._clock.run_for(seconds)

    async def aclose(self) -> None:
        assert self._last is not None
        await self._last.aclose()
        await self._storage.aclose()


@pytest.mark.parametrize("linger", [timedelta(0), timedelta(hours=1)], ids=["leaves at once", "stays"])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_a_host_over_a_store(scenario: Scenario, linger: timedelta) -> None:
    """Every scenario of the suite, whether runs that wait leave memory or not."""

    async def open_hosts() -> HostFactory:
        clock = FakeClock()
        return Hosts(await open_storage("memory:", clock=clock), clock, linger)

    await check(scenario, open_hosts)


# It counts turns of the event loop, and a store that waits for a disk takes as many as it needs.
OVER_A_DISK = [one for one in SCENARIOS if one.__name__ != "a_run_killed_at_any_moment_comes_to_the_same_end"]


@pytest.mark.parametrize("scenario", OVER_A_DISK, ids=lambda scenario: scenario.__name__)
async def test_a_host_over_sqlite(scenario: Scenario, tmp_path: Path) -> None:
    """Every scenario of the suite over one file."""

    async def open_hosts() -> HostFactory:
        clock = FakeClock()
        return Hosts(await open_storage(f"sqlite:{tmp_path}/runs.db", clock=clock), clock, timedelta(0))

    await check(scenario, open_hosts)
