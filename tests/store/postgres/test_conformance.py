"""The store of record in Postgres keeps every promise of the port."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harborage.store.postgres import PostgresStore
from harborage.testing.clock import FakeClock
from harborage.testing.conformance.store_bench import StoreBench
from harborage.testing.conformance.stores import SCENARIOS, Scenario, check


class PostgresBench:
    """A fresh schema with a store in it, and any number of others over the same rows."""

    def __init__(self, place: Any, clock: FakeClock, store: PostgresStore) -> None:
        self.place, self.clock, self.store = place, clock, store

    async def another(self) -> PostgresStore:
        store: PostgresStore = await self.place.open(self.clock)
        return store

    def later(self, seconds: float) -> None:
        self.clock.advance(seconds)

    async def aclose(self) -> None:
        await self.place.__aexit__(None, None, None)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_postgres(scenario: Scenario, new_place: Callable[[], Any]) -> None:
    """A store in Postgres, which two processes share, keeps a promise of the port."""

    async def in_a_schema() -> StoreBench:
        place = await new_place().__aenter__()
        clock = FakeClock()
        return PostgresBench(place, clock, await place.open(clock))

    await check(scenario, in_a_schema)
