"""What every task registry must do. Hand in a function that opens an empty registry on the parts it is given:

    await run_conformance(open_registry)

or one test a scenario: `@pytest.mark.parametrize("scenario", SCENARIOS)` and `await check(scenario, open_registry)`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

from harborage.testing.conformance import task_groups, task_lifecycle, task_spawning
from harborage.testing.conformance.checks import check_scenario, run_scenarios
from harborage.testing.conformance.task_bench import Bench, OpenRegistry, open_bench

__all__ = ["SCENARIOS", "OpenRegistry", "Scenario", "check", "run_conformance"]

Scenario: TypeAlias = Callable[[Bench], Awaitable[None]]

SCENARIOS: tuple[Scenario, ...] = (*task_spawning.SCENARIOS, *task_lifecycle.SCENARIOS, *task_groups.SCENARIOS)


async def check(scenario: Scenario, open_registry: OpenRegistry) -> None:
    """Run one scenario against a fresh registry.

    Raises:
        ConformanceError: the registry breaks a promise.
    """
    await check_scenario(scenario, partial(open_bench, open_registry))


async def run_conformance(open_registry: OpenRegistry) -> None:
    """Run every scenario, each against a fresh, empty registry.

    Raises:
        ExceptionGroup: the broken promises, one error a scenario.
    """
    await run_scenarios(SCENARIOS, partial(open_bench, open_registry))
