"""The event log in memory keeps the port's contract."""

from __future__ import annotations

import pytest

from harborage.events.log import Logged
from harborage.events.memory_log import MemoryEventLog
from harborage.identity import Identity
from harborage.testing.conformance.event_log import SCENARIOS, Scenario, check, run_conformance
from harborage.testing.conformance.storage_bench import open_memory_bench


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_it_keeps_the_contract(scenario: Scenario) -> None:
    """Every scenario of the port's suite holds."""
    await check(scenario, open_memory_bench)


async def test_the_whole_suite_runs_in_one_call() -> None:
    """A driver's author can run everything without pytest."""
    await run_conformance(open_memory_bench)


async def test_a_buffer_is_copied() -> None:
    """Changing a buffer after it was kept does not change the event."""
    log, who = MemoryEventLog(), Identity("tenant", "user", "session")
    buffer = bytearray(b"before")
    await log.append([Logged(who, 1, buffer)])  # type: ignore[arg-type] # a caller may do so all the same
    buffer[:] = b"after!"
    assert await log.read(who) == [Logged(who, 1, b"before")]


async def test_a_closed_log_holds_no_events() -> None:
    """Whoever keeps a closed log does not keep its events."""
    log = MemoryEventLog()
    await log.append([Logged(Identity("tenant", "user", "session"), 1, b"x")])
    await log.aclose()
    assert log._lines == {}
