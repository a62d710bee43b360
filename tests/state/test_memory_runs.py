"""Runs in memory keep the ports' contract, and cost next to nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from harborage.state.errors import StoreClosedError
from harborage.state.memory_runs import MemoryRuns
from harborage.state.runs import RunFilter, Stand, Standing, Write
from harborage.testing.clock import FakeClock
from harborage.testing.conformance.runs import SCENARIOS, Scenario, check, run_conformance
from harborage.testing.conformance.storage_bench import a_record, open_memory_bench


async def told_closed(call: Coroutine[Any, Any, None]) -> bool:
    """Whether a call ended because the store was closed."""
    with pytest.raises(StoreClosedError):
        await call
    return True


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_it_keeps_the_contract(scenario: Scenario) -> None:
    """Every scenario of the ports' suite holds."""
    await check(scenario, open_memory_bench)


async def test_the_whole_suite_runs_in_one_call() -> None:
    """A driver's author can run everything without pytest."""
    await run_conformance(open_memory_bench)


async def test_the_clock_makes_parked_runs_ready() -> None:
    """A parked run is claimed once the store's clock has reached its time, and not before."""
    clock = FakeClock(datetime(2030, 1, 1, tzinfo=UTC))
    runs = MemoryRuns(clock=clock)
    at = clock.now() + timedelta(days=7)
    await runs.create(a_record("r"), Write(standing=Standing(stand=Stand.PARKED, wake_at=at)))
    clock.advance(timedelta(days=7).total_seconds() - 1)
    assert await runs.claim("worker") == []
    assert await runs.next_wake() == at
    clock.advance(1)
    assert [claim.record.run_id for claim in await runs.claim("worker")] == ["r"]


async def test_a_change_has_the_time_of_the_clock() -> None:
    """Each change of a run says when it was, by the store's clock."""
    clock = FakeClock(datetime(2030, 1, 1, tzinfo=UTC))
    runs = MemoryRuns(clock=clock)
    await runs.create(a_record("r"), Write())
    (claim,) = await runs.claim("worker")
    clock.advance(5)
    await runs.append(claim.lease, Write(entries=[b"x"]))
    (record,) = await runs.list(RunFilter(run_id="r"))
    assert record.updated_at == datetime(2030, 1, 1, 0, 0, 5, tzinfo=UTC)


async def test_parked_runs_cost_a_claim_nothing() -> None:
    """A claim and the next wake look at what is ready, not at ten thousand runs that wait."""
    clock = FakeClock()
    runs = MemoryRuns(clock=clock)
    for index in range(10_000):
        at = clock.now() + timedelta(days=1, seconds=index)
        await runs.create(a_record(f"{index}"), Write(standing=Standing(stand=Stand.PARKED, wake_at=at)))
    assert not runs._ready
    await runs.send("9999", "event", b"")
    assert list(runs._ready) == ["9999"]
    assert [claim.record.run_id for claim in await runs.claim("worker")] == ["9999"]


async def test_closing_ends_a_sign_of_life() -> None:
    """Whoever closes the store under a worker does not leave it waiting; what it held is let go."""
    runs = MemoryRuns()
    await runs.create(a_record("r"), Write(entries=[b"x"]))
    async with asyncio.TaskGroup() as group:
        sign = group.create_task(told_closed(runs.keep_alive("worker")))
        await asyncio.sleep(0)
        await runs.aclose()
    assert sign.result()
    assert (runs._runs, runs._inbox, runs._bodies) == ({}, {}, {})
