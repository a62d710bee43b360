"""Postgres keeps what every storage promises: records, runs and events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harborage.state import StateConfig, StateStore
from harborage.state.postgres import make
from harborage.state.storage import Storage
from harborage.testing.conformance import event_log, runs, state
from harborage.testing.conformance.storage_bench import StorageBench


class PostgresBench:
    """A fresh schema, with a storage in it."""

    def __init__(self, place: Any, storage: Storage) -> None:
        self.place = place
        self.storage = storage

    async def another(self) -> Storage:
        storage: Storage = await self.place.open()
        return storage

    async def lose_entry(self, run_id: str, entry: int) -> bool:
        query = """
            delete from harborage_entries using harborage_runs as run
            where run.number = harborage_entries.run and run.run_id = $1 and position = $2
        """
        return bool((await self.place.admin.execute(query, run_id, entry + 1)).endswith(" 1"))

    async def spoil_body(self, digest: str, data: bytes | None) -> None:
        if data is not None:
            await self.place.admin.execute("update harborage_bodies set data = $2 where digest = $1", digest, data)
            return
        await self.place.admin.execute("delete from harborage_run_bodies where digest = $1", digest)
        await self.place.admin.execute("delete from harborage_bodies where digest = $1", digest)

    async def count_bodies(self) -> int:
        found: int = await self.place.admin.fetchval("select count(*) from harborage_bodies")
        return found

    async def aclose(self) -> None:
        await self.place.__aexit__(None, None, None)


@pytest.fixture
def open_bench(new_place: Callable[[], Any]) -> Callable[[], Any]:
    """Opens a bench over a fresh schema."""

    async def open_one() -> StorageBench:
        place = await new_place().__aenter__()
        return PostgresBench(place, await place.open())

    return open_one


@pytest.mark.parametrize("scenario", runs.SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_runs_keep_the_contract(scenario: runs.Scenario, open_bench: Callable[[], Any]) -> None:
    """Every scenario of the suite for runs holds."""
    await runs.check(scenario, open_bench)


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
