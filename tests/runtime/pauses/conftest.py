"""What the tests of pauses share: a clock that stands still, a bus that is listened to, a store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from harborage.events import MemoryEventBus
from harborage.identity import Quadruple
from harborage.runtime.pauses import Coordinator, PauseReason, PauseRequest
from harborage.state import MemoryStateStore, StateError, StateRecord
from harborage.testing.clock import FakeClock
from harborage.testing.events import EventRecorder

OWNER = Quadruple("acme", "ann", "s1", "r1")


class FaultyStore(MemoryStateStore):
    """A store that refuses, or stops before, the operations it is told to: `save pauseresume.index` and the like."""

    def __init__(self) -> None:
        super().__init__()
        self.refuses: set[str] = set()
        self.stops: dict[str, asyncio.Event] = {}

    async def save(self, record: StateRecord) -> None:
        await self._check("save", record.kind)
        await super().save(record)

    async def delete(self, identity: Quadruple, kind: str) -> None:
        await self._check("delete", kind)
        await super().delete(identity, kind)

    async def _check(self, verb: str, kind: str) -> None:
        name = f"{verb} {_bare(kind)}"
        if name in self.stops:
            await self.stops.pop(name).wait()
        if name in self.refuses:
            raise StateError(f"{name} refused")

    @property
    def contents(self) -> set[str]:
        """The kinds of records that are there, tokens and numbers left out."""
        return {_bare(kind) for _, kind in self._records}


def _bare(kind: str) -> str:
    return kind.partition(":")[0].partition("/")[0]


@pytest.fixture
def owner() -> Quadruple:
    """Whose pauses the tests open."""
    return OWNER


@pytest.fixture
def clock() -> FakeClock:
    """A clock that moves only when told."""
    return FakeClock()


@pytest.fixture
def bus() -> MemoryEventBus:
    """A bus in memory, on real time: moving the tests' clock must not find its recorder idle."""
    return MemoryEventBus()


@pytest.fixture
def told(bus: MemoryEventBus) -> EventRecorder:
    """What the bus told."""
    return EventRecorder(bus)


@pytest.fixture
def store() -> FaultyStore:
    """A record store that outlives the coordinators of one test, and can be made to fail."""
    return FaultyStore()


@pytest.fixture
def coordinator(bus: MemoryEventBus, told: EventRecorder, clock: FakeClock) -> Coordinator:
    """A coordinator without a store."""
    return Coordinator(bus=bus, clock=clock)


@pytest.fixture
def durable(store: FaultyStore, bus: MemoryEventBus, told: EventRecorder, clock: FakeClock) -> Any:
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
