"""What every layer shares: a client inside, and an end that comes once."""

from __future__ import annotations

import asyncio

import pytest

from harborage.identity import Quadruple, bound
from harborage.llm import (
    ChatMessage,
    ClientClosedError,
    CompleteRequest,
    CompleteResponse,
    ConfigSnapshot,
    Content,
    Deps,
    InvalidConfigError,
    LLMClient,
    ModelProfile,
    Role,
)
from harborage.llm.chain.governance import Governed
from harborage.llm.chain.layer import Layer
from harborage.llm.chain.safety import Safe

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


@pytest.mark.parametrize("layer", LAYERS)
async def test_a_call_goes_through(layer: type[Layer]) -> None:
    """A layer is a client, and gives the answer of the one inside."""
    inside = Inside()
    client = stacked(layer, inside)
    assert isinstance(client, LLMClient)
    with bound(WHO):
        assert (await client.complete(REQUEST)).content == "inside"
    assert inside.calls == 1


@pytest.mark.parametrize("layer", LAYERS)
async def test_closing_closes_the_inside_once(layer: type[Layer]) -> None:
    """However often and by however many at once a layer is closed, the client inside is closed once."""
    inside = Inside()
    client = stacked(layer, inside)
    await asyncio.gather(client.close(), client.close())
    await client.close()
    assert inside.closings == 1


@pytest.mark.parametrize("layer", LAYERS)
async def test_a_closed_layer_answers_nothing(layer: type[Layer]) -> None:
    """After closing, a call fails before anything else is looked at, the identity included."""
    inside = Inside()
    client = stacked(layer, inside)
    await client.close()
    with pytest.raises(ClientClosedError):
        await client.complete(CompleteRequest())
    assert inside.calls == 0


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_needs_a_client(layer: type[Layer]) -> None:
    """A layer around nothing is refused when it is made, and says which one it is."""
    with pytest.raises(InvalidConfigError, match=layer.__name__):
        stacked(layer, None)  # type: ignore[arg-type]
