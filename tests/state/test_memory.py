"""The record store in memory keeps the port's contract and what is its own."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from harborage.drivers import DriverTable, DriverUnknownError
from harborage.identity import Quadruple
from harborage.state import (
    STATE_DRIVERS,
    EventIdConflictError,
    MemoryStateStore,
    StateConfig,
    StateRecord,
    StateStore,
    open_state,
)
from harborage.testing.clock import FakeClock
from tests.kit.conformance.state import SCENARIOS, Scenario, check, run_conformance

WHO = Quadruple("tenant", "user", "session", "run")


async def open_memory() -> StateStore:
    """An empty store through the driver table."""
    return await open_state(StateConfig())


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_it_keeps_the_contract(scenario: Scenario) -> None:
    """Every scenario of the port's suite holds."""
    await check(scenario, open_memory)


async def test_the_whole_suite_runs_in_one_call() -> None:
    """A driver's author can run everything without pytest."""
    await run_conformance(open_memory)


async def test_the_time_of_a_record_comes_from_the_stores_clock() -> None:
    """A record without a time gets the clock's, not the machine's."""
    clock = FakeClock(datetime(2030, 5, 6, tzinfo=UTC))
    store = MemoryStateStore(clock=clock)
    await store.save(StateRecord("event", WHO, "kind"))
    assert (await store.load(WHO, "kind")).updated_at == datetime(2030, 5, 6, tzinfo=UTC)


async def test_a_closed_store_holds_no_data() -> None:
    """Whoever keeps a closed store does not keep its records."""
    store = MemoryStateStore()
    await store.save(StateRecord("event", WHO, "kind"))
    await store.aclose()
    assert (store._records, store._slots) == ({}, {})


@pytest.mark.parametrize("name", ["", "inmem"])
async def test_a_blank_driver_name_means_memory(name: str) -> None:
    """The default driver keeps everything in memory."""
    assert isinstance(await open_state(StateConfig(driver=name)), MemoryStateStore)


async def test_an_unknown_driver_lists_those_there_are() -> None:
    """The error names what was asked for and what could have been, or `<none>`."""
    with pytest.raises(
        DriverUnknownError, match=r"state: unknown driver papyrus \(registered: inmem,postgres,sqlite\)"
    ):
        await open_state(StateConfig(driver="papyrus"))
    with pytest.raises(DriverUnknownError, match="<none>"):
        await open_state(StateConfig(driver="papyrus"), drivers=DriverTable("state"))


def test_the_table_names_the_drivers_there_are() -> None:
    """Listing drivers costs no import and shows all there are."""
    assert STATE_DRIVERS.names() == ["inmem", "postgres", "sqlite"]


def test_a_conflict_names_the_event_id() -> None:
    """The error carries the id and says what to do; without one it says what it means."""
    error = EventIdConflictError("e-1")
    assert error.event_id == "e-1"
    assert "'e-1'" in str(error)
    assert "make a new id" in str(error)
    assert str(EventIdConflictError()).startswith("An event id was used again")
