"""Every layer closes what is inside it, and publishes events that never cost a caller its answer."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from harborage.events import EventType, LLMContextLeakPayload, MemoryEventBus
from harborage.identity import Identity, Quadruple, bind, bound
from harborage.llm import (
    ChatMessage,
    ClientClosedError,
    CompleteRequest,
    CompleteResponse,
    ConfigSnapshot,
    Content,
    Deps,
    IdentityMissingError,
    LLMClient,
    LLMConfigError,
    ModelProfile,
    Role,
)
from harborage.llm.chain.accounting import Governed
from harborage.llm.chain.layer import Layer, publish_event, require_caller
from harborage.llm.chain.safety import Safe
from harborage.testing.events import EventRecorder
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

WHO = Quadruple("t", "u", "s", "r")
LAYERS = [Layer, Safe, Governed]
REQUEST = CompleteRequest(messages=[ChatMessage(Role.USER, Content("hi"))])


class Inside:
    """A client that counts how often it is asked and closed."""

    def __init__(self) -> None:
        self.calls = self.closings = 0

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        self.calls += 1
        return CompleteResponse("inside")

    async def close(self) -> None:
        self.closings += 1
        await asyncio.sleep(0)


def stacked(layer: type[Layer], inner: LLMClient) -> Layer:
    """A layer around `inner` that knows one model."""
    cfg = ConfigSnapshot(model="m", profiles={"m": ModelProfile(context_window_tokens=1000)})
    return layer(inner, cfg, Deps(artifacts=None, bus=None))


@each_row("layer", LAYERS)
async def test_a_call_goes_through(layer: type[Layer]) -> None:
    """A layer is a client, and gives the answer of the one inside."""
    inside = Inside()
    client = stacked(layer, inside)
    assert isinstance(client, LLMClient)
    with bound(WHO):
        assert (await client.complete(REQUEST)).content == "inside"
    assert inside.calls == 1


@each_row("layer", LAYERS)
async def test_closing_closes_the_inside_once(layer: type[Layer]) -> None:
    """However often and by however many at once a layer is closed, the client inside is closed once."""
    inside = Inside()
    client = stacked(layer, inside)
    await asyncio.gather(client.close(), client.close())
    await client.close()
    assert inside.closings == 1


@each_row("layer", LAYERS)
async def test_a_closed_layer_answers_nothing(layer: type[Layer]) -> None:
    """After closing, a call fails before anything else is looked at, the identity included."""
    inside = Inside()
    client = stacked(layer, inside)
    await client.close()
    with pytest.raises(ClientClosedError):
        await client.complete(CompleteRequest())
    assert inside.calls == 0


@each_row("layer", LAYERS)
def test_a_layer_needs_a_client(layer: type[Layer]) -> None:
    """A layer around nothing is refused when it is made, and says which one it is."""
    with pytest.raises(LLMConfigError, match=layer.__name__):
        stacked(layer, None)  # type: ignore[arg-type]


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
    recorder = EventRecorder(bus)
    publish_event(Deps(artifacts=None, bus=bus), EventType.LLM_CONTEXT_LEAK, LEAK, who=WHO)
    (event,) = recorder.events
    assert (event.type, event.identity, event.payload) == (EventType.LLM_CONTEXT_LEAK, WHO, LEAK)


@pytest.mark.parametrize("bus", [None, BrokenBus()])
def test_a_bus_that_fails_stops_nothing(bus, caplog) -> None:
    """Without a bus nothing happens; one that fails is logged and no more."""
    publish_event(Deps(artifacts=None, bus=bus), EventType.LLM_CONTEXT_LEAK, LEAK, who=WHO)
    assert ("was not published" in caplog.text) == (bus is not None)


def test_the_caller_is_the_ambient_identity() -> None:
    """With a run when one is bound, else the identity without a run."""
    with bound(WHO):
        assert require_caller() == WHO
    with bound(Identity("t", "u", "s")):
        assert require_caller() == Quadruple("t", "u", "s", "")


def test_an_empty_identity_is_no_caller() -> None:
    """Without an identity there is no call."""
    with pytest.raises(IdentityMissingError):
        require_caller()
    with bound(WHO):
        bind(WHO.identity)
        assert require_caller() == WHO
