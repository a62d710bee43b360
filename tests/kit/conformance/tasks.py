"""What every task registry must do, wherever it keeps its tasks. Hand in a function that opens an empty place;
one test a scenario: `@pytest.mark.parametrize("scenario", SCENARIOS)` and `await check(scenario, open_place)`.
`STORED_SCENARIOS` are those of several registries over one place: `await check_stored(scenario, open_place)`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

from harborage.testing.conformance.checks import check_scenario
from tests.kit.conformance import (
    task_alone,
    task_groups,
    task_lifecycle,
    task_races,
    task_restarts,
    task_spawning,
    task_waits,
)
from tests.kit.conformance.task_bench import Bench, OpenPlace, open_bench
from tests.kit.conformance.task_restarts import StoredBench

Scenario: TypeAlias = Callable[[Bench], Awaitable[None]]
StoredScenario: TypeAlias = Callable[[StoredBench], Awaitable[None]]

SCENARIOS: tuple[Scenario, ...] = (
    *task_spawning.SCENARIOS,
    *task_alone.SCENARIOS,
    *task_lifecycle.SCENARIOS,
    *task_groups.SCENARIOS,
    *task_waits.SCENARIOS,
)
STORED_SCENARIOS: tuple[StoredScenario, ...] = (
    *task_restarts.SCENARIOS,
    *task_races.SCENARIOS,
    *task_waits.STORED_SCENARIOS,
)


async def check(scenario: Scenario, open_place: OpenPlace) -> None:
    """Run one scenario against a registry over a fresh place.

    Raises:
        ConformanceError: the registry breaks a promise.
    """
    await check_scenario(scenario, partial(_bench, open_place))


async def check_stored(scenario: StoredScenario, open_place: OpenPlace) -> None:
    """Run one scenario of several processes over a fresh place.

    Raises:
        ConformanceError: the registry breaks a promise.
    """
    await check_scenario(scenario, partial(_stored_bench, open_place))


async def _bench(open_place: OpenPlace) -> Bench:
    return await open_bench(await open_place())


async def _stored_bench(open_place: OpenPlace) -> StoredBench:
    return StoredBench(await open_place())
