"""The durable bus over a SQLite file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harborage.events import DurableEventBus, EventBus
from harborage.state.storage import Storage, open_storage
from harborage.testing.conformance.event_bench import BusParts, OpenBus
from harborage.testing.conformance.events import DURABLE_SCENARIOS, Scenario, check

pytestmark = pytest.mark.anyio


@pytest.fixture
async def storages(tmp_path: Path) -> AsyncIterator[list[Storage]]:
    """The same file opened twice, as two processes do."""
    opened = [await open_storage(f"sqlite:{tmp_path / 'harborage.db'}") for _ in range(2)]
    yield opened
    for storage in opened:
        await storage.aclose()


@pytest.mark.parametrize("scenario", DURABLE_SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_the_durable_bus_keeps_the_contract(scenario: Scenario, storages: list[Storage]) -> None:
    """Every scenario of the port's suite holds, each bus over another connection."""

    async def place() -> OpenBus:
        turn = iter(range(1_000))

        async def open_bus(parts: BusParts) -> EventBus:
            store = storages[next(turn) % 2].store
            return DurableEventBus(store, redactor=parts.redactor, config=parts.config, clock=parts.clock)

        return open_bus

    await check(scenario, place)
