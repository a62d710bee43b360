"""Tasks of several processes over Postgres, each with a store and a bus of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit.conformance.task_bench import OpenPlace, Place
from tests.kit.conformance.tasks import (
    SCENARIOS,
    STORED_SCENARIOS,
    Scenario,
    StoredScenario,
    check,
    check_stored,
)

if TYPE_CHECKING:
    from harborage.store import Store
    from harborage.testing.clock import FakeClock

pytestmark = pytest.mark.anyio


def on_server(place: Any) -> OpenPlace:
    """Opens a place in one schema."""

    async def open_store(clock: FakeClock) -> Store:
        store: Store = await place.open(clock)
        return store

    async def open_place() -> Place:
        return Place(open_store, is_recorded=True)

    return open_place


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_one_over_a_server_keeps_the_contract(scenario: Scenario, new_place: Callable[[], Any]) -> None:
    """Every scenario of the port's suite holds."""
    async with new_place() as place:
        await check(scenario, on_server(place))


@pytest.mark.parametrize("scenario", STORED_SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_processes_over_one_server_keep_the_contract(
    scenario: StoredScenario, new_place: Callable[[], Any]
) -> None:
    """Every scenario of several processes holds."""
    async with new_place() as place:
        await check_stored(scenario, on_server(place))
