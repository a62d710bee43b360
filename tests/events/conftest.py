"""Fixtures of these tests: a fake clock and a bus on it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harborage.events import BusConfig, Event, EventType, MemoryEventBus, TaskPausedPayload
from harborage.identity import Quadruple
from harborage.testing.clock import FakeClock

WHO = Quadruple("t", "u", "s", "r")


@pytest.fixture
def clock() -> FakeClock:
    """A clock that moves by hand."""
    return FakeClock()


@pytest.fixture
def make_bus(clock: FakeClock) -> Callable[..., MemoryEventBus]:
    """Makes a bus on the fake clock with the given bounds."""
    return lambda **bounds: MemoryEventBus(config=BusConfig(**bounds), clock=clock)


@pytest.fixture
def bus(make_bus: Callable[..., MemoryEventBus]) -> MemoryEventBus:
    """A bus with default bounds on the fake clock."""
    return make_bus()


@pytest.fixture
def make_event() -> Callable[..., Event]:
    """Makes an event of the usual run, or of `who`."""

    def make(task_id: str = "task", who: Quadruple = WHO) -> Event:
        return Event(EventType.TASK_PAUSED, who, TaskPausedPayload(task_id))

    return make
