"""Postgres keeps what every storage promises of records and events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harborage.state import StateConfig, StateStore
from harborage.state.postgres import make
from harborage.state.storage import Storage
from harborage.testing.conformance import event_log
from harborage.testing.conformance.storage_bench import StorageBench
from tests.kit.conformance import state


class PostgresBench:
    """A fresh schema, with a storage in it."""

    def __init__(self, place: Any, storage: Storage) -> None:
        self.place = place
        self.storage = storage

    async def another(self) -> Storage:
        storage: Storage = await self.place.open()
        return storage

    async def aclose(self) -> None:
        await self.place.__aexit__(None, None, None)


@pytest.fixture
def open_bench(new_place: Callable[[], Any]) -> Callable[[], Any]:
    """Opens a bench over a fresh schema."""

    async def open_one() -> StorageBench:
        place = await new_place().__aenter__()
        return PostgresBench(place, await place.open())

    return open_one


@pytest.mark.parametrize("scenario", event_log.SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_the_event_log_keeps_the_contract(scenario: event_log.Scenario, open_bench: Callable[[], Any]) -> None:
    """Every scenario of the suite for event logs holds."""
    await event_log.check(scenario, open_bench)


@pytest.mark.parametrize("scenario", state.SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_records_keep_the_contract(scenario: state.Scenario, place: Any) -> None:
    """Every scenario of the suite for record stores holds, on a store with a pool of its own."""

    async def open_store() -> StateStore:
        return await make(StateConfig("postgres", place.url))

    await state.check(scenario, open_store)
