"""Tasks of several processes over one SQLite file, each with a store and a bus of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from harborage.store import Store
from harborage.store.sqlite import SQLiteStore
from harborage.testing.clock import FakeClock
from tests.kit.conformance.task_bench import OpenPlace, Place
from tests.kit.conformance.tasks import (
    SCENARIOS,
    STORED_SCENARIOS,
    Scenario,
    StoredScenario,
    check,
    check_stored,
)

pytestmark = pytest.mark.anyio


def on_file(path: Path) -> OpenPlace:
    """Opens a place in one file."""

    async def open_store(clock: FakeClock) -> Store:
        return await SQLiteStore.open(path, clock=clock)

    async def open_place() -> Place:
        return Place(open_store, is_recorded=True)

    return open_place


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_one_over_a_file_keeps_the_contract(scenario: Scenario, tmp_path: Path) -> None:
    """Every scenario of the port's suite holds."""
    await check(scenario, on_file(tmp_path / "harborage.db"))


@pytest.mark.parametrize("scenario", STORED_SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_processes_over_one_file_keep_the_contract(scenario: StoredScenario, tmp_path: Path) -> None:
    """Every scenario of several processes holds."""
    await check_stored(scenario, on_file(tmp_path / "harborage.db"))
