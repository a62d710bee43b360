"""What these tests share: a registry on a real bus, and runs to ask about."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from harborage.events import BusConfig, MemoryEventBus
from harborage.identity import Quadruple
from harborage.planner import RunContext, Trajectory
from harborage.tasks import InProcessTaskRegistry
from harborage.testing.clock import FakeClock


@pytest.fixture
async def registry() -> AsyncIterator[InProcessTaskRegistry]:
    """A registry on a real bus."""
    clock = FakeClock()
    bus = MemoryEventBus(config=BusConfig(subscriber_buffer_size=10_000), clock=clock)
    tasks = InProcessTaskRegistry(bus=bus, clock=clock)
    yield tasks
    await tasks.aclose()
    await bus.aclose()


class Runs:
    """Makes contexts of runs: `runs("r-1")`, or of another principal with `tenant=`, `user=`, `session=`."""

    def __call__(
        self, run_id: str = "r-1", *, tenant: str = "t", user: str = "u", session: str = "s", **fields: object
    ) -> RunContext:
        """The context of one run."""
        who = Quadruple(tenant, user, session, run_id)
        return RunContext(**{"quadruple": who, "goal": "go", "trajectory": Trajectory(query="go"), **fields})


@pytest.fixture
def runs() -> Runs:
    """The maker of contexts."""
    return Runs()
