"""What the tests of approval gates share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from harborage.events import Event, MemoryEventBus, PatternRedactor
from harborage.runtime.approval import AlwaysDeny, ApprovalGate, ApprovalRequest
from harborage.runtime.pauses import Coordinator
from harborage.testing.clock import FakeClock, settle
from tests.kit.pause_fixtures import OWNER as OWNER
from tests.kit.pause_fixtures import bus as bus
from tests.kit.pause_fixtures import clock as clock
from tests.kit.pause_fixtures import coordinator as coordinator
from tests.kit.pause_fixtures import owner as owner
from tests.kit.pause_fixtures import recorder as recorder


@pytest.fixture
def gating(coordinator: Coordinator, bus: MemoryEventBus, clock: FakeClock) -> Callable[..., ApprovalGate]:
    """Makes a gate; options replace its parts."""

    def make(policy: Any = None, **options: Any) -> ApprovalGate:
        parts = {"coordinator": coordinator, "bus": bus, "redactor": PatternRedactor(), "clock": clock, **options}
        return ApprovalGate(AlwaysDeny() if policy is None else policy, **parts)

    return make


@pytest.fixture
def gate(gating: Callable[..., ApprovalGate]) -> ApprovalGate:
    """A gate that asks for every call."""
    return gating()


@pytest.fixture
def calling() -> Callable[..., ApprovalRequest]:
    """Makes a call of the owner; options replace its parts."""

    def call(**options: Any) -> ApprovalRequest:
        return ApprovalRequest(**{"tool": "pay", "args": b'{"amount": 7}', "identity": OWNER, **options})

    return call


class RefusingBus(MemoryEventBus):
    """A bus that refuses one type of event."""

    def __init__(self, refused: str) -> None:
        super().__init__()
        self.refused = refused

    async def publish(self, event: Event) -> Event:
        if event.type == self.refused:
            raise RuntimeError(f"{event.type} refused")
        return await super().publish(event)


@pytest.fixture
def refusing() -> Callable[[str], MemoryEventBus]:
    """Makes a bus that refuses one type of event."""
    return RefusingBus


@asynccontextmanager
async def waiting(gate: ApprovalGate, call: ApprovalRequest) -> AsyncIterator[tuple[asyncio.Task[bytes], str]]:
    """A call that waits at the gate, with its token; cancelled at the end if it still does."""
    before = set(gate.tokens)
    task = asyncio.create_task(gate.run_guarded(call))
    try:
        await settle()
        (token,) = set(gate.tokens) - before
        yield task, token
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture(name="waiting")
def _waiting() -> Any:
    """Puts a call at a gate for the length of a block."""
    return waiting
