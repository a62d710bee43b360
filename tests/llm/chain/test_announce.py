"""Events of the chain are told as well as can be, and never cost anybody an answer."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from harborage.events import EventType, LLMContextLeakPayload, MemoryEventBus
from harborage.identity import Identity, Quadruple, bind, bound
from harborage.llm import Deps, IdentityMissingError
from harborage.llm.chain.announce import announce, caller
from harborage.testing.events import EventRecorder

WHO = Quadruple("t", "u", "s", "r")
LEAK = LLMContextLeakPayload(
    identity=WHO, model="m", leak_site="here", size_bytes=1, threshold=1, occurred_at=datetime(2026, 1, 1, tzinfo=UTC)
)


class BrokenBus(MemoryEventBus):
    """A bus that refuses everything."""

    def publish_nowait(self, event):
        raise RuntimeError("no")


def test_an_event_is_published_for_its_caller() -> None:
    """The event carries the payload and the identity of the call."""
    bus = MemoryEventBus()
    told = EventRecorder(bus)
    announce(Deps(artifacts=None, bus=bus), EventType.LLM_CONTEXT_LEAK, LEAK, who=WHO)
    (event,) = told.events
    assert (event.type, event.identity, event.payload) == (EventType.LLM_CONTEXT_LEAK, WHO, LEAK)


@pytest.mark.parametrize("bus", [None, BrokenBus()])
def test_a_bus_that_fails_stops_nothing(bus, caplog) -> None:
    """Without a bus nothing happens; one that fails is logged and no more."""
    announce(Deps(artifacts=None, bus=bus), EventType.LLM_CONTEXT_LEAK, LEAK, who=WHO)
    assert ("was not published" in caplog.text) == (bus is not None)


def test_the_caller_is_the_ambient_identity() -> None:
    """With a run when one is bound, else the identity without a run."""
    with bound(WHO):
        assert caller() == WHO
    with bound(Identity("t", "u", "s")):
        assert caller() == Quadruple("t", "u", "s", "")


def test_nobody_is_no_caller() -> None:
    """Without an identity there is no call."""
    with pytest.raises(IdentityMissingError):
        caller()
    with bound(WHO):
        bind(WHO.identity)
        assert caller() == WHO
