"""Agents as models, and who may ask: real tokens, and refusals in the shape of OpenAI."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from harborage import Agent, Runtime
from harborage.events.redaction import PatternRedactor
from harborage.server.auth.gate import TokenGate
from harborage.server.auth.minting import development_mint, sign_development_token, verifier_of
from harborage.testing.llm import ScriptedLLM
from tests.kit.openai_client import sdk, serving_sdk
from tests.kit.wire import ADA


def agent(name: str) -> Any:
    """An agent that says hello."""
    return Agent(name, model=ScriptedLLM(["hello"]))


async def test_agents_are_models() -> None:
    """Listed, and one by its name."""
    async with Runtime([agent("a"), agent("b")], storage="memory:") as runtime, sdk(runtime) as client:
        assert [one.id async for one in client.models.list()] == ["a", "b"]
        assert (await client.models.retrieve("b")).owned_by == "harborage"
        for ask in (client.models.retrieve("c"), client.responses.create(model="c", input="hi")):
            with pytest.raises(openai.NotFoundError) as caught:
                await ask
            assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


async def test_the_key_of_a_client_is_its_token() -> None:
    """The session is that of the header, else the token's; another key is refused."""
    mint = development_mint()
    gate = TokenGate(verifier_of(mint), redactor=PatternRedactor())
    async with Runtime([agent("a")], storage="memory:") as runtime, serving_sdk(runtime, gate=gate) as served:
        client = served.client(None, api_key=sign_development_token(mint))
        made = await client.responses.create(model="a", input="hi")
        again = await client.responses.create(model="a", input="hi", extra_headers={"X-Harbor-Session": "other"})
        sessions = [(await runtime.parts.engine.status(one.id)).who.session_id for one in (made, again)]
        assert sessions == ["dev", "other"]
        for ask in (
            served.client(None, api_key="nonsense").models.list(),
            client.models.list(extra_headers={"Authorization": ""}),
        ):
            with pytest.raises(openai.AuthenticationError):
                await ask


async def test_a_body_that_is_no_json_is_refused() -> None:
    """In the same shape."""
    async with Runtime([agent("a")], storage="memory:") as runtime, serving_sdk(runtime) as served:
        client = served.client(ADA)
        with pytest.raises(openai.BadRequestError) as caught:
            await client.post("/responses", cast_to=object, content=b"{", options={"max_retries": 0})
        assert caught.value.type == "invalid_request_error"
