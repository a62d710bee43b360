"""The stores in SQLite keep every port's contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from harborage.state import StateConfig, StateStore, open_state
from tests.kit.conformance import state


@pytest.mark.parametrize("scenario", state.SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_the_record_store_keeps_the_contract(scenario: state.Scenario, tmp_path: Path) -> None:
    """Every scenario of the suite of record stores holds, opened through the driver table."""

    async def open_store() -> StateStore:
        return await open_state(StateConfig(driver="sqlite", dsn=f"sqlite:{tmp_path / 'records.db'}"))

    await state.check(scenario, open_store)
