"""What the tests of pauses share: a clock that the test moves, a recorded bus, a store that can fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from harborage.clock import SYSTEM_CLOCK, Clock
from harborage.events import MemoryEventBus
from harborage.runtime.pauses import Coordinator, PauseReason, PauseRequest
from harborage.state.errors import DatabaseError
from harborage.store import Commit, Committed, Page, PauseQuery, PauseRow
from harborage.store.memory import MemoryStore
from harborage.testing.clock import FakeClock
from harborage.testing.events import EventRecorder
from tests.kit.pause_fixtures import OWNER as OWNER
from tests.kit.pause_fixtures import bus as bus
from tests.kit.pause_fixtures import clock as clock
from tests.kit.pause_fixtures import coordinator as coordinator
from tests.kit.pause_fixtures import owner as owner
from tests.kit.pause_fixtures import recorder as recorder


class FaultyStore(MemoryStore):
    """A store whose commits can be refused or held; it counts commits and reads."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK, **options: Any) -> None:
        super().__init__(clock=clock, **options)
        self.is_refusing = False
        self.stop: asyncio.Event | None = None
        self.commits = self.reads = 0

    async def commit(self, commit: Commit) -> Committed:
        self.commits += 1
        if self.stop is not None:
            await self.stop.wait()
        if self.is_refusing:
            raise DatabaseError("memory", "refused")
        return await super().commit(commit)

    async def pauses(self, query: PauseQuery) -> Page[PauseRow]:
        self.reads += 1
        return await super().pauses(query)

    async def rows(self) -> list[PauseRow]:
        """Every pause that is there."""
        return (await super().pauses(PauseQuery(limit=10_000))).rows


@pytest.fixture
def store(clock: FakeClock) -> FaultyStore:
    """A store of record that outlives the coordinators of one test, and can be made to fail."""
    return FaultyStore(clock)


@pytest.fixture
def durable(store: FaultyStore, bus: MemoryEventBus, recorder: EventRecorder, clock: FakeClock) -> Any:
    """Makes another coordinator over the same store, as a process does when it starts."""

    def start(**options: Any) -> Coordinator:
        return Coordinator(**{"store": store, "bus": bus, "clock": clock, **options})

    return start


@pytest.fixture
def asking() -> Callable[..., PauseRequest]:
    """Makes a request of the owner; options replace its parts."""

    def ask(**options: Any) -> PauseRequest:
        return PauseRequest(**{"identity": OWNER, "reason": PauseReason.AWAIT_INPUT, **options})

    return ask
