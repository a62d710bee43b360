"""A real Postgres for the tests of this folder, a schema of its own in it for each of them, and a way to break it."""

from __future__ import annotations

import pytest

from harborage.clock import SYSTEM_CLOCK, Timers
from harborage.store.postgres import PostgresStore
from tests.kit import postgres_places
from tests.kit.postgres_fixtures import new_place, place, proxy, server

__all__ = ["Place", "new_place", "place", "place_type", "proxy", "server"]


class Place(postgres_places.Place[PostgresStore]):
    """A fresh schema, with as many stores over it as wanted."""

    async def open(self, clock: Timers = SYSTEM_CLOCK) -> PostgresStore:
        """One more store, as another process would have it."""
        return self.keep(await PostgresStore.open(self.url, clock=clock))


@pytest.fixture(scope="session")
def place_type() -> type[Place]:
    """What the tests open in a schema."""
    return Place
