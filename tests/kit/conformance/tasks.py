"""What every task registry must do. Hand in a function that opens an empty registry on the parts it is given:

    await run_conformance(open_registry)

or one test a scenario: `@pytest.mark.parametrize("scenario", SCENARIOS)` and `await check(scenario, open_registry)`. A
registry that keeps its tasks in a store runs `STORED_SCENARIOS` as well, over each store it is to work with:
`await check_stored(scenario, open_registry, open_store)`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

from harborage.testing.conformance.checks import check_scenario, run_scenarios
from tests.kit.conformance import task_groups, task_lifecycle, task_restarts, task_spawning, task_waits
from tests.kit.conformance.task_bench import Bench, OpenRegistry, open_bench
from tests.kit.conformance.task_restarts import OpenStore, StoredBench, open_stored_bench

__all__ = [
    "SCENARIOS",
    "STORED_SCENARIOS",
    "OpenRegistry",
    "OpenStore",
    "Scenario",
    "StoredScenario",
    "check",
    "check_stored",
    "run_conformance",
]

Scenario: TypeAlias = Callable[[Bench], Awaitable[None]]
StoredScenario: TypeAlias = Callable[[StoredBench], Awaitable[None]]

SCENARIOS: tuple[Scenario, ...] = (
    *task_spawning.SCENARIOS,
    *task_lifecycle.SCENARIOS,
    *task_groups.SCENARIOS,
    *task_waits.SCENARIOS,
)
STORED_SCENARIOS: tuple[StoredScenario, ...] = (*task_restarts.SCENARIOS, *task_waits.STORED_SCENARIOS)


async def check(scenario: Scenario, open_registry: OpenRegistry) -> None:
    """Run one scenario against a fresh registry.

    Raises:
        ConformanceError: the registry breaks a promise.
    """
    await check_scenario(scenario, partial(open_bench, open_registry))


async def check_stored(scenario: StoredScenario, open_registry: OpenRegistry, open_store: OpenStore) -> None:
    """Run one scenario of several processes over a fresh store.

    Raises:
        ConformanceError: the registry breaks a promise.
    """
    await check_scenario(scenario, partial(open_stored_bench, open_registry, open_store))


async def run_conformance(open_registry: OpenRegistry) -> None:
    """Run every scenario, each against a fresh, empty registry.

    Raises:
        ExceptionGroup: the broken promises, one error a scenario.
    """
    await run_scenarios(SCENARIOS, partial(open_bench, open_registry))
