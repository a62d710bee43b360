"""Several models: which failures the next one is asked after, and whose answer, usage and price it is."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest

from harborage import Agent, Model, Runtime
from harborage.artifacts import MemoryArtifactStore
from harborage.identity import Identity, Quadruple, bound
from harborage.llm import ChatMessage, CompleteRequest, CompleteResponse, ConfigSnapshot, Content, Deps, Role, Usage
from harborage.llm.account import PriceUnknownError
from harborage.llm.chain.fallback import Fallback
from harborage.llm.errors import (
    AuthenticationFailedError,
    BadRequestError,
    LLMError,
    ProviderUnavailableError,
    QuotaExceededError,
    RateLimitedError,
)
from harborage.llm.opening import check_price
from harborage.runtime.durable.engine import RunFailedError
from harborage.runtime.effects.options import RuntimeOptions
from harborage.testing.clock import FakeClock
from harborage.testing.llm import ScriptedLLM, says
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

WHO = Quadruple("t", "u", "s", "r")
ASKED = CompleteRequest(model="gpt-5", messages=[ChatMessage(Role.USER, Content("hi"))])
DOWN = ProviderUnavailableError("down", provider="openai", status=503)


def deps(clock: FakeClock | None = None) -> Deps:
    return Deps(artifacts=MemoryArtifactStore(), bus=None, clock=FakeClock() if clock is None else clock)


async def answer_of(*clients: ScriptedLLM, request: CompleteRequest = ASKED) -> CompleteResponse:
    with bound(WHO):
        return await Fallback(clients, ConfigSnapshot(), deps()).complete(request)


@each_row("error", [DOWN, RateLimitedError("slow down"), QuotaExceededError("no credit")])
async def test_the_next_model_is_asked_when_one_is_down(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """It is asked what the first was, without the name of the first one's model; the log says so."""
    first, second = ScriptedLLM([error]), ScriptedLLM([says("from the second")])
    with caplog.at_level(logging.WARNING, "harborage"):
        assert (await answer_of(first, second)).content == "from the second"
    assert (first.requests[0].model, second.requests[0].model) == ("gpt-5", "")
    assert "asking the next model" in caplog.text


@each_row("error", [AuthenticationFailedError("wrong key"), BadRequestError("malformed")])
async def test_a_failure_that_a_person_must_see_is_passed_on(error: LLMError) -> None:
    """A wrong key or a malformed request is no reason to ask another provider."""
    second = ScriptedLLM([says("never")])
    with pytest.raises(type(error)):
        await answer_of(ScriptedLLM([error]), second)
    assert second.requests == []


async def test_the_failure_of_the_last_model_is_passed_on() -> None:
    """There is no further one to ask."""
    with pytest.raises(RateLimitedError):
        await answer_of(ScriptedLLM([DOWN]), ScriptedLLM([RateLimitedError("slow down")]))


async def test_no_further_model_is_asked_after_the_deadline() -> None:
    """The caller does not wait any more."""
    clock, second = FakeClock(), ScriptedLLM([says("never")])
    late = CompleteRequest(messages=ASKED.messages, deadline=clock.now() - timedelta(seconds=1))
    with bound(WHO), pytest.raises(ProviderUnavailableError):
        await Fallback([ScriptedLLM([DOWN]), second], ConfigSnapshot(), deps(clock)).complete(late)
    assert second.requests == []


async def test_cost_is_only_limited_where_each_model_has_a_price() -> None:
    """One without a price would spend what nobody counts."""
    with pytest.raises(PriceUnknownError):
        await check_price(Fallback([ScriptedLLM()], ConfigSnapshot(), deps()))


async def test_a_run_goes_on_with_the_model_that_answers_and_replays() -> None:
    """Each step asks the first model anew; usage is that of the answers, and a replay asks no model."""
    used = Usage(prompt_tokens=7, completion_tokens=3, total_tokens=10)
    first = ScriptedLLM([DOWN])
    second = ScriptedLLM([CompleteResponse("hello", usage=used, finish_reason="stop")])
    agent = Agent("a", model=[first, second])
    async with Runtime([agent]) as runtime:
        run = await runtime.start(agent, "hi", who=Identity("t", "u", "s"))
        result = await run.result()
        assert (result.output, result.usage.prompt_tokens, result.usage.completion_tokens) == ("hello", 7, 3)
        replayed = await runtime.replay(await run.history())
    assert (replayed.is_whole, replayed.difference) == (True, None)
    assert (len(first.requests), len(second.requests)) == (1, 1)


async def test_a_run_may_choose_other_models_to_fall_back_on() -> None:
    """In the place of the agent's, for this run alone; with none left it fails with the last failure."""
    at_once = RuntimeOptions(provider_patience=timedelta())
    agent = Agent("a", model=ScriptedLLM([says("own")]), options=at_once)
    assert (await agent.run("hi", model=[ScriptedLLM([DOWN]), ScriptedLLM([says("other")])])).output == "other"
    with pytest.raises(RunFailedError):
        await agent.run("hi", model=[ScriptedLLM([DOWN]), ScriptedLLM([DOWN])])
    assert (await agent.run("hi", model=Model("mock:", temperature=0.5))).output
