"""The host in this process keeps the port's contract, on journals that answer at once and on slow ones."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import pytest

from harborage.runtime.durable import Engine
from harborage.runtime.engines.memory import MemoryEngine
from harborage.runtime.journal import Journal, MemoryJournal
from harborage.runtime.pauses import Coordinator
from harborage.testing.clock import FakeClock, settle
from tests.kit.conformance.hosts import SCENARIOS, Death, HostFactory, Scenario, check

pytestmark = pytest.mark.anyio


class SlowJournal(MemoryJournal):
    """Takes some turns of the loop over everything, before and after it is done."""

    async def append(self, run_id: str, entries: Sequence[bytes]) -> None:
        await settle(2)
        await super().append(run_id, entries)
        await settle(3)

    async def read(self, run_id: str) -> list[bytes]:
        await settle(3)
        found = await super().read(run_id)
        await settle(2)
        return found

    async def runs(self) -> list[str]:
        await settle(3)
        return await super().runs()

    async def forget(self, run_id: str) -> None:
        await settle(3)
        await super().forget(run_id)


class MemoryHosts:
    """Engines over one journal; a new engine finds there what the last one left when its process died."""

    keeps_queued_controls = False

    def __init__(self, journal: Journal) -> None:
        self._clock = FakeClock()
        self._journal = journal
        self._engine: MemoryEngine | None = None
        self.pauses = Coordinator(clock=self._clock)

    def now(self) -> datetime:
        return self._clock.now()

    async def open(self, death: Death | None = None) -> Engine:
        journal = self._journal if death is None else death.of(self._journal)
        self._engine = MemoryEngine(self.pauses, journal=journal, clock=self._clock)
        return self._engine

    async def pass_time(self, seconds: float) -> None:
        await self._clock.run_for(seconds)

    async def aclose(self) -> None:
        assert self._engine is not None
        await self._engine.aclose()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_it_keeps_the_contract(scenario: Scenario) -> None:
    """Every scenario of the port's suite holds."""

    async def open_hosts() -> HostFactory:
        return MemoryHosts(MemoryJournal())

    await check(scenario, open_hosts)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_it_keeps_the_contract_on_a_slow_journal(scenario: Scenario) -> None:
    """Nothing in it relies on the journal answering at once."""

    async def open_hosts() -> HostFactory:
        return MemoryHosts(SlowJournal())

    await check(scenario, open_hosts)
