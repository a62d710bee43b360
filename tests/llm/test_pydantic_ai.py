"""The bridge over pydantic-ai: what it hands over, what it takes back, and every promise of a provider."""

from __future__ import annotations

import base64
from types import SimpleNamespace

import pytest

from harborage.identity import Identity, bound
from harborage.llm import (
    ChatMessage,
    CompleteRequest,
    ConfigSnapshot,
    Content,
    Deps,
    ImagePart,
    IncompleteAnswerError,
    LLMConfigError,
    ReasoningEffort,
    ResponseFormat,
    ResponseFormatKind,
    Role,
    TextPart,
    ToolCallStructured,
    ToolChoice,
    ToolDeclaration,
)
from harborage.llm.pydantic_ai import PydanticAIDriver, build_call, make, read_response
from harborage.llm.streaming import AnswerBuilder
from harborage.testing.conformance.llm import SCENARIOS, check
from harborage.testing.conformance.llm_bench import KEY, Ability, ProviderBench
from tests.kit.llm_dialects.chat import ChatDialect
from tests.kit.llm_server import LLMServer

pytestmark = pytest.mark.anyio

PNG = "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n....").decode()
ADD = ToolDeclaration("add", "Add.", {"type": "object", "properties": {"a": {"type": "integer"}}})
CALL = ToolCallStructured("call_1", "add", b'{"a":1}')
HELLO = ChatMessage(Role.USER, Content("Hi"))


def bridge(model: str = "test") -> PydanticAIDriver:
    """A bridge that no key is needed for."""
    return make(ConfigSnapshot(model=model), Deps(artifacts=None, bus=None))


def asked(*messages: ChatMessage, **fields):
    """What the library is called with for a request with these messages."""
    request = CompleteRequest(messages=messages or (HELLO,), **fields)
    return build_call(request, bridge()._library, provider="any", max_tokens=fields.get("max_tokens"))


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_a_provider_keeps_its_promises(scenario):
    """Each scenario of the suite holds for the bridge to a model that pydantic-ai speaks to."""

    async def open_bench() -> ProviderBench:
        def config(url: str) -> ConfigSnapshot:
            return ConfigSnapshot(provider="openai-chat", model="gpt-4o", api_key=KEY, base_url=url)

        return await ProviderBench.open(make, LLMServer(ChatDialect()), config, without={Ability.PROVIDER_COST})

    await check(scenario, open_bench)


def test_a_history_becomes_its_messages():
    """Requests and responses take turns, and answers are paired with their calls by name and id."""
    messages = asked(
        ChatMessage(Role.SYSTEM, Content("Be brief.")),
        HELLO,
        ChatMessage(Role.ASSISTANT, Content("Sure."), tool_calls=[CALL]),
        ChatMessage(Role.TOOL, Content("2"), tool_call_id="call_1"),
        ChatMessage(
            Role.USER, Content(parts=[TextPart("See"), ImagePart(data_url=PNG), ImagePart(url="https://e.org/i")])
        ),
    ).messages
    assert [message.kind for message in messages] == ["request", "response", "request"]
    first, said, last = (message.parts for message in messages)
    assert [(part.part_kind, part.content) for part in first] == [("system-prompt", "Be brief."), ("user-prompt", "Hi")]
    assert said[0].content == "Sure."
    assert (said[1].tool_name, said[1].args, said[1].tool_call_id) == ("add", '{"a":1}', "call_1")
    assert (last[0].tool_name, last[0].content, last[0].tool_call_id) == ("add", "2", "call_1")
    words, picture, address = last[1].content
    assert (words, picture.media_type, address.url) == ("See", "image/png", "https://e.org/i")


def test_settings_and_parameters():
    """Its retries are off, and every option that was given has its place; what was not given has none."""
    assert asked().settings == {"max_retries": 0}
    wanted = ResponseFormat(ResponseFormatKind.JSON_SCHEMA, b'{"type":"object"}')
    options = {"stops": ["END"], "tool_choice": ToolChoice.AUTO, "reasoning_effort": ReasoningEffort.OFF}
    given = asked(temperature=0.0, max_tokens=5, tools=[ADD], response_format=wanted, extra={"seed": 1}, **options)
    assert given.settings == {
        "max_retries": 0,
        "max_tokens": 5,
        "temperature": 0.0,
        "stop_sequences": ["END"],
        "thinking": False,
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "extra_body": {"seed": 1},
    }
    assert [tool.name for tool in given.parameters.function_tools] == ["add"]
    assert (given.parameters.output_mode, given.parameters.output_object.json_schema) == ("native", {"type": "object"})


async def test_its_own_stand_in_answers():
    """A model of pydantic-ai that needs no network answers through the bridge, streamed or not."""
    driver = bridge("any:test")
    with bound(Identity("t", "u", "s")):
        for stream in (False, True):
            answer = await driver.complete(CompleteRequest(messages=[HELLO], stream=stream))
            assert (answer.content, answer.finish_reason) == ("success (no tool calls)", "stop")
        called = await driver.complete(CompleteRequest(messages=[HELLO], tools=[ADD]))
        assert [(call.name, call.args) for call in called.tool_calls] == [("add", b"{}")]
        assert called.finish_reason == "tool_calls"
    await driver.close()


async def test_an_unknown_model():
    """A wrong model string is the configuration's mistake, and the error names it."""
    driver = bridge("nowhere:model")
    with bound(Identity("t", "u", "s")), pytest.raises(LLMConfigError, match="no provider 'nowhere'"):
        await driver.complete(CompleteRequest(messages=[HELLO]))
    await driver.close()


def response(**fields) -> SimpleNamespace:
    """A response of the library, without a price."""

    def cost() -> None:
        raise LookupError

    usage = SimpleNamespace(details={"reasoning_tokens": 2}, input_tokens=3, output_tokens=4, cache_read_tokens=1)
    known = {"parts": [], "usage": usage, "finish_reason": None, "provider_name": "p", "model_name": "m"}
    return SimpleNamespace(**{**known, "provider_details": None, "cost": cost, **fields})


def test_a_guessed_reason_is_none():
    """For a stream that just broke off the library guesses that it ended well; only the provider's own word counts."""
    answer = AnswerBuilder(CompleteRequest(stream=True), provider="any")
    read_response(response(finish_reason="stop"), answer, is_streamed=True)
    with pytest.raises(IncompleteAnswerError):
        answer.answer()
    read_response(response(finish_reason="stop", provider_details={"finish_reason": "stop"}), answer, is_streamed=True)
    assert answer.answer().finish_reason == "stop"


def test_counts_and_price_are_kept():
    """Usage is renamed, and what its table says the call cost wins over ours."""
    price = SimpleNamespace(input_price=1, output_price=2, total_price=3)
    answer = AnswerBuilder(CompleteRequest(), provider="any")
    read_response(response(finish_reason="tool_call", cost=lambda: price), answer)
    whole = answer.answer()
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens, whole.usage.reasoning_tokens) == (3, 4, 2)
    assert whole.usage.provider_extras == {"cache_read_tokens": 1}
    assert (whole.cost.total_cost, whole.cost.currency) == (3.0, "USD")


def test_a_driver_shows_no_key():
    """Neither the driver nor the settings it is shown with name the key."""
    driver = make(ConfigSnapshot(model="openai-chat:gpt-4o", api_key=KEY), Deps(artifacts=None, bus=None))
    assert KEY not in repr(driver)
