"""Postgres keeps what every storage promises of records."""

from __future__ import annotations

from typing import Any

import pytest

from harborage.state import StateConfig, StateStore
from harborage.state.postgres import make
from tests.kit.conformance import state


@pytest.mark.parametrize("scenario", state.SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_records_keep_the_contract(scenario: state.Scenario, place: Any) -> None:
    """Every scenario of the suite for record stores holds, on a store with a pool of its own."""

    async def open_store() -> StateStore:
        return await make(StateConfig("postgres", place.url))

    await state.check(scenario, open_store)
