"""Every event bus keeps the port's contract."""

from __future__ import annotations

import pytest

from harborage.events import EventBus, MemoryEventBus
from harborage.events.durable_bus import DurableEventBus
from harborage.store.memory import MemoryStore
from harborage.testing.conformance.event_bench import BusParts, OpenBus
from harborage.testing.conformance.events import (
    DURABLE_SCENARIOS,
    SCENARIOS,
    Scenario,
    check,
    run_conformance,
)


async def in_memory() -> OpenBus:
    """A place for a bus in memory."""

    async def open_bus(parts: BusParts) -> EventBus:
        return MemoryEventBus(redactor=parts.redactor, config=parts.config, clock=parts.clock)

    return open_bus


async def over_a_store() -> OpenBus:
    """A place for buses over one store."""
    store = MemoryStore()

    async def open_bus(parts: BusParts) -> EventBus:
        return DurableEventBus(store, redactor=parts.redactor, config=parts.config, clock=parts.clock)

    return open_bus


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_the_memory_bus_keeps_the_contract(scenario: Scenario) -> None:
    """Every scenario of the port's suite holds."""
    await check(scenario, in_memory)


@pytest.mark.parametrize("scenario", DURABLE_SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_the_durable_bus_keeps_the_contract(scenario: Scenario) -> None:
    """Every scenario of the port's suite holds, those of keeping included."""
    await check(scenario, over_a_store)


async def test_the_whole_suite_runs_in_one_call() -> None:
    """A driver's author can run everything without pytest."""
    await run_conformance(in_memory)
    await run_conformance(over_a_store, DURABLE_SCENARIOS)
