"""What every store and queue of runs must do. Hand in a function that opens a `StorageBench` over a fresh storage:

    await run_conformance(open_bench)

or one test a scenario: `@pytest.mark.parametrize("scenario", SCENARIOS)` and `await check(scenario, open_bench)`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from harborage.state.errors import StoreClosedError
from harborage.state.runs import Lease, RunFilter, Standing, Write
from harborage.testing.conformance import run_claims, run_records
from harborage.testing.conformance.checks import check_scenario, expect_raises, run_scenarios
from harborage.testing.conformance.storage_bench import OpenStorageBench, StorageBench, a_record, begin

if TYPE_CHECKING:
    from harborage.state.storage import Storage

__all__ = ["SCENARIOS", "OpenStorageBench", "Scenario", "StorageBench", "check", "run_conformance"]

Scenario: TypeAlias = Callable[[StorageBench], Awaitable[None]]


def calls(storage: Storage) -> Iterator[tuple[str, Awaitable[object]]]:
    """Each call of both ports once, by name."""
    lease = Lease("r", "worker", 1)
    yield "create", storage.runs.create(a_record("s"), Write())
    yield "append", storage.runs.append(lease, Write())
    yield "read", storage.runs.read("r")
    yield "body", storage.runs.body("r", "digest")
    yield "list", storage.runs.list(RunFilter())
    yield "forget", storage.runs.forget("r")
    yield "claim", storage.queue.claim("worker")
    yield "release", storage.queue.release(lease, Standing())
    yield "send", storage.queue.send("r", "event", b"")
    yield "arrived", storage.queue.arrived("worker")
    yield "wake", storage.queue.wake("r")
    yield "keep_alive", storage.queue.keep_alive("worker")
    yield "next_wake", storage.queue.next_wake()


async def a_closed_store_says_so(bench: StorageBench) -> None:
    """After close every call is refused as closed; closing twice is fine."""
    await begin(bench.storage, "r")
    for _ in range(2):
        await bench.storage.runs.aclose()
        await bench.storage.queue.aclose()
    for name, call in calls(bench.storage):
        await expect_raises(StoreClosedError, call, f"{name} after close")


SCENARIOS: tuple[Scenario, ...] = (*run_records.SCENARIOS, *run_claims.SCENARIOS, a_closed_store_says_so)


async def check(scenario: Scenario, open_bench: OpenStorageBench) -> None:
    """Run one scenario against a fresh storage.

    Raises:
        ConformanceError: the storage breaks a promise.
    """
    await check_scenario(scenario, open_bench)


async def run_conformance(open_bench: OpenStorageBench) -> None:
    """Run every scenario, each against a fresh, empty storage.

    Raises:
        ExceptionGroup: the broken promises, one error a scenario.
    """
    await run_scenarios(SCENARIOS, open_bench)
