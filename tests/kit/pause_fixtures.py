"""The fixtures that the tests of pauses and of approval gates share."""

from __future__ import annotations

import pytest

from harborage.events import MemoryEventBus
from harborage.identity import Quadruple
from harborage.runtime.pauses import Coordinator
from harborage.testing.clock import FakeClock
from harborage.testing.events import EventRecorder

OWNER = Quadruple("acme", "ann", "s1", "r1")


@pytest.fixture
def owner() -> Quadruple:
    """The owner of the pauses and calls of a test."""
    return OWNER


@pytest.fixture
def clock() -> FakeClock:
    """A clock that moves only on request."""
    return FakeClock()


@pytest.fixture
def bus() -> MemoryEventBus:
    """A bus in memory, on real time: moving the tests' clock must not find its recorder idle."""
    return MemoryEventBus()


@pytest.fixture
def recorder(bus: MemoryEventBus) -> EventRecorder:
    """The events of the bus."""
    return EventRecorder(bus)


@pytest.fixture
def coordinator(bus: MemoryEventBus, recorder: EventRecorder, clock: FakeClock) -> Coordinator:
    """A coordinator over a new store in memory."""
    return Coordinator(bus=bus, clock=clock)
