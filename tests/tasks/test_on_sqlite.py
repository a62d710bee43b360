"""Tasks of several processes over one SQLite file."""

from __future__ import annotations

from pathlib import Path

import pytest

from harborage.state import StateStore
from harborage.state.storage import open_storage
from harborage.tasks import RegistryParts, TaskRegistry, TasksConfig, open_tasks
from tests.kit.conformance.tasks import STORED_SCENARIOS, StoredScenario, check_stored

pytestmark = pytest.mark.anyio


async def open_inprocess(parts: RegistryParts) -> TaskRegistry:
    """A registry through the driver table."""
    return await open_tasks(TasksConfig(), parts)


@pytest.mark.parametrize("scenario", STORED_SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_processes_over_one_file_keep_the_contract(scenario: StoredScenario, tmp_path: Path) -> None:
    """Every scenario of several processes holds."""
    storages = []

    async def open_store() -> StateStore:
        storages.append(await open_storage(f"sqlite:{tmp_path / 'harborage.db'}"))
        return storages[-1].state

    try:
        await check_stored(scenario, open_inprocess, open_store)
    finally:
        for storage in storages:
            await storage.aclose()
