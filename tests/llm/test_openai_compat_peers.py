"""The driver for Chat Completions against servers from other projects."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from harborage.identity import Identity, bound
from harborage.llm import (
    AuthenticationFailedError,
    BadRequestError,
    ChatMessage,
    CompleteRequest,
    CompleteResponse,
    ConfigSnapshot,
    ConnectionFailedError,
    Content,
    ContextOverflowError,
    Deps,
    ImagePart,
    IncompleteAnswerError,
    LLMError,
    MalformedAnswerError,
    ModelNotFoundError,
    ProviderTimeoutError,
    ProviderUnavailableError,
    RateLimitedError,
    ResponseFormat,
    ResponseFormatKind,
    Role,
    TextPart,
    ToolDeclaration,
    TransportPolicy,
)
from harborage.llm.chain.retry import Resilient
from harborage.llm.openai_compat import OpenAICompatDriver, make
from harborage.testing.clock import settle

pytestmark = pytest.mark.anyio

WHO = Identity("tenant", "user", "session")
WEATHER = ToolDeclaration(
    name="get_weather",
    description="The weather in a city.",
    schema={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
SCHEMA = {
    "type": "object",
    "properties": {"town": {"type": "string"}, "people": {"type": "integer"}},
    "required": ["town", "people"],
    "additionalProperties": False,
}
# Where llmock has each provider's own copy of the protocol.
PATHS = {
    "openai": "/v1",
    "groq": "/groq/openai/v1",
    "mistral": "/mistral/v1",
    "together": "/together/v1",
    "xai": "/xai/v1",
}
DEPS = Deps(artifacts=None, bus=None)
IMPATIENT = TransportPolicy(base_s=0.02, max_s=0.1, first_byte_timeout_s=5.0, idle_timeout_s=0.3)


@pytest.fixture(autouse=True)
def _me():
    with bound(WHO):
        yield


@pytest.fixture
async def opened() -> AsyncIterator[Callable[..., OpenAICompatDriver]]:
    """Opens drivers, and closes them behind the test."""
    drivers: list[OpenAICompatDriver] = []

    def open_driver(base_url: str, **fields: Any) -> OpenAICompatDriver:
        fields = {"provider": "vllm", "model": "test-model", "api_key": "k", "transport": IMPATIENT, **fields}
        drivers.append(make(ConfigSnapshot(base_url=base_url, **fields), DEPS))
        return drivers[-1]

    yield open_driver
    for driver in drivers:
        await driver.close()


def asking(text: str = "What is the weather in Paris?", **fields: Any) -> CompleteRequest:
    return CompleteRequest(messages=[ChatMessage(Role.USER, Content(text))], **fields)


class Heard(list[str]):
    done = 0

    def __call__(self, delta: str, done: bool) -> None:
        self.done += done
        if delta:
            self.append(delta)


@pytest.mark.parametrize("provider", PATHS)
async def test_llmock_talks(llmock_url, opened, provider):
    """Every provider's own copy of the protocol gives text, pieces of it, tokens and tool calls."""
    driver = opened(llmock_url + PATHS[provider], provider=provider)
    received = Heard()
    streamed = await driver.complete(asking(stream=True, on_content=received, max_tokens=50))
    assert streamed.content == "".join(received) != ""
    assert len(received) > 1
    assert received.done == 1
    assert streamed.finish_reason == "stop"
    plain = await driver.complete(asking(max_tokens=50))
    assert plain.content == streamed.content
    # llmock counts only when it is asked to, which the real service refuses: it always counts.
    for answer in (plain,) if provider == "mistral" else (streamed, plain):
        assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 0
    for stream in (False, True):
        called = await driver.complete(asking(stream=stream, tools=[WEATHER]))
        assert [call.name for call in called.tool_calls] == ["get_weather"]
        assert set(msgspec.json.decode(called.tool_calls[0].args)) == {"city"}
        assert called.tool_calls[0].id


async def test_llmock_calls_two_tools_and_takes_their_answers(llmock_peer, opened):
    """Parallel calls come with different ids, and the conversation with their answers is accepted."""
    driver = opened(llmock_peer.url + "/v1")
    calls = [{"name": "get_weather", "arguments": {"city": city}} for city in ("Ghent", "Paris")]
    llmock_peer.script({"type": "reply", "tool_calls": calls})
    asked = asking(stream=True, tools=[WEATHER], parallel_tool_calls=True)
    called = (await driver.complete(asked)).tool_calls
    assert [msgspec.json.decode(call.args)["city"] for call in called] == ["Ghent", "Paris"]
    assert len({call.id for call in called}) == 2
    answers = [ChatMessage(Role.TOOL, Content("rain"), tool_call_id=call.id) for call in called]
    history = [*asked.messages, ChatMessage(Role.ASSISTANT, tool_calls=called), *answers]
    answer = await driver.complete(msgspec.structs.replace(asked, messages=history))
    assert answer.content
    assert answer.tool_calls == ()
    assert llmock_peer.findings() == []


async def test_llmock_fills_a_schema(llmock_url, opened):
    """An answer that is to follow a schema follows it."""
    driver = opened(llmock_url + "/v1")
    wanted = ResponseFormat(ResponseFormatKind.JSON_SCHEMA, msgspec.json.encode(SCHEMA))
    for stream in (False, True):
        town = msgspec.json.decode((await driver.complete(asking(response_format=wanted, stream=stream))).content)
        assert (type(town["town"]), type(town["people"]), len(town)) == (str, int, 2)


REFUSALS = [
    ({"status": 429, "retry_after": 3}, RateLimitedError),
    ({"status": 500}, ProviderUnavailableError),
    ({"status": 503}, ProviderUnavailableError),
    ({"status": 401}, AuthenticationFailedError),
    ({"status": 400}, BadRequestError),
    ({"status": 404, "code": "model_not_found", "message": "The model does not exist"}, ModelNotFoundError),
    ({"status": 400, "code": "context_length_exceeded", "message": "maximum context length"}, ContextOverflowError),
]


@pytest.mark.parametrize("provider", PATHS)
@pytest.mark.parametrize(("fault", "kind"), REFUSALS)
async def test_llmock_refuses(llmock_peer, opened, provider, fault, kind):
    """A refusal in each provider's own form is the error it means."""
    driver = opened(llmock_peer.url + PATHS[provider], provider=provider)
    for stream in (False, True):
        llmock_peer.script({"type": "fail", **fault})
        with pytest.raises(kind) as caught:
            await driver.complete(asking(stream=stream))
        if "retry_after" in fault:
            assert caught.value.retry_after_s == pytest.approx(3, abs=0.5)


BREAKS = [
    ({"type": "stream_fault", "kind": "disconnect"}, ConnectionFailedError),
    ({"type": "stream_fault", "kind": "truncate"}, IncompleteAnswerError),
    ({"type": "stream_fault", "kind": "malformed"}, MalformedAnswerError),
    ({"type": "stream_fault", "kind": "stall", "stall_seconds": 20}, ProviderTimeoutError),
]


@pytest.mark.parametrize(("fault", "kind"), BREAKS)
@pytest.mark.parametrize("after", [1, 3])
async def test_llmock_breaks_a_stream(llmock_peer, opened, fault, kind, after):
    """A stream that breaks is a failed call, never half an answer, and the callback gets `done` once."""
    driver = opened(llmock_peer.url + "/v1")
    llmock_peer.script({**fault, "after_chunks": after})
    received = Heard()
    with pytest.raises(kind):
        await driver.complete(asking(stream=True, on_content=received))
    assert received.done == 1
    assert (await driver.complete(asking(stream=True))).finish_reason == "stop"


class Unhurried:
    """A driver that tells of a failed call once llmock has it in its books: a second one before that is, to llmock, no
    repetition of the first."""

    def __init__(self, driver: OpenAICompatDriver, peer: Any) -> None:
        self._driver = driver
        self._peer = peer

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        known = len(self._peer.requests())
        try:
            return await self._driver.complete(request)
        except LLMError:
            while len(self._peer.requests()) == known:
                await settle()
            raise

    async def close(self) -> None: ...


@pytest.mark.parametrize(
    "fault", [fault for fault, _ in BREAKS] + [{"type": "fail", "status": 429, "retry_after": 0.1}]
)
async def test_llmock_finds_nothing_wrong_with_a_client_that_repeats(llmock_peer, opened, fault):
    """Behind the layer that repeats safe calls, every fault is survived in the way that llmock asks for."""
    driver = Unhurried(opened(llmock_peer.url + "/v1"), llmock_peer)
    client = Resilient(driver, ConfigSnapshot(model="test-model", transport=IMPATIENT), DEPS)
    llmock_peer.script(fault)
    answer = await client.complete(asking(stream=True))
    assert answer.content
    asked = llmock_peer.requests()
    assert len(asked) == 2
    assert asked[-1]["status"] == 200
    # Whoever was slow to hang up got the broken answer whole, and looks like somebody who takes it.
    is_whole = asked[0]["completed"] and fault.get("kind") == "malformed"
    assert llmock_peer.findings() == (["malformed_chunk_ignored"] if is_whole else [])


async def test_aimock_thinks_aloud(aimock, opened):
    """Reasoning deltas are streamed and answered apart from the text."""
    aimock.answer({"content": "It is raining in Ghent.", "reasoning": "Ghent is in Belgium, so it must rain."})
    driver = opened(aimock.url + "/v1")
    content, reasoning = Heard(), Heard()
    answer = await driver.complete(asking(stream=True, on_content=content, on_reasoning=reasoning))
    assert answer.content == "".join(content) == "It is raining in Ghent."
    assert answer.reasoning == "".join(reasoning) == "Ghent is in Belgium, so it must rain."
    assert (content.done, reasoning.done) == (1, 1)
    assert answer.usage.total_tokens > 0
    plain = await driver.complete(asking())
    assert (plain.content, plain.reasoning) == (answer.content, answer.reasoning)


async def test_aimock_calls_tools_before_it_speaks(aimock, opened):
    """Calls and text in any order are put together, arguments streamed in pieces and all."""
    cities = ["Ghent", "a city with a name that is much longer than one piece"]
    calls = [{"type": "toolCall", "name": "get_weather", "arguments": {"city": city}} for city in cities]
    aimock.answer({"blocks": [calls[0], {"type": "text", "text": "And then:"}, calls[1]]})
    driver = opened(aimock.url + "/v1")
    for stream in (False, True):
        answer = await driver.complete(asking(stream=stream, tools=[WEATHER]))
        assert [msgspec.json.decode(call.args)["city"] for call in answer.tool_calls] == cities
        assert [call.index for call in answer.tool_calls] == [0, 1]
        assert answer.content == "And then:"
        assert answer.finish_reason == "tool_calls"


async def test_aimock_takes_a_picture_and_a_conversation(aimock, opened):
    """A message in parts and a tool's answer arrive as the server expects them."""
    aimock.answer({"content": "A cat."}, match={"toolCallId": "c1"})
    driver = opened(aimock.url + "/v1")
    called = await _call(aimock, driver)
    png = "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n\0\0").decode()
    messages = [
        ChatMessage(Role.USER, Content(parts=[TextPart("Look:"), ImagePart(data_url=png, detail="low")])),
        ChatMessage(Role.ASSISTANT, tool_calls=[msgspec.structs.replace(called, id="c1")]),
        ChatMessage(Role.TOOL, Content("rain"), tool_call_id="c1"),
    ]
    assert (await driver.complete(CompleteRequest(messages=messages, tools=[WEATHER]))).content == "A cat."
    sent = aimock.requests()[-1]["body"]["messages"]
    assert sent[0]["content"][1] == {"type": "image_url", "image_url": {"url": png, "detail": "low"}}
    assert sent[1]["content"] is None
    assert sent[2] == {"role": "tool", "tool_call_id": "c1", "content": "rain"}


async def _call(aimock, driver):
    aimock.answer(
        {"toolCalls": [{"name": "get_weather", "arguments": {"city": "Ghent"}}]}, match={"userMessage": "Call"}
    )
    return (await driver.complete(asking("Call it.", tools=[WEATHER]))).tool_calls[0]


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (429, {"message": "Slow down", "type": "rate_limit_error"}, RateLimitedError),
        (529, {"message": "Overloaded", "type": "overloaded_error"}, ProviderUnavailableError),
        (400, {"message": "Your prompt is too long", "code": "context_length_exceeded"}, ContextOverflowError),
    ],
)
async def test_aimock_refuses(aimock, opened, status, error, kind):
    """An error of another server is typed all the same."""
    aimock.answer({"error": error, "status": status})
    for stream in (False, True):
        with pytest.raises(kind):
            await opened(aimock.url + "/v1").complete(asking(stream=stream))


async def test_aimock_breaks_off(aimock, opened):
    """A stream that is cut after a few pieces is a failed call."""
    aimock.answer(
        {"content": "A long answer that comes in quite a few pieces."}, chunkSize=4, truncateAfterChunks=4, latency=5
    )
    received = Heard()
    with pytest.raises((IncompleteAnswerError, ConnectionFailedError)):
        await opened(aimock.url + "/v1").complete(asking(stream=True, on_content=received))
    assert received
    assert received.done == 1


async def test_aimock_names_its_price(aimock, opened):
    """The cost that OpenRouter reports with its usage is the answer's cost."""
    usage = {"prompt_tokens": 10, "completion_tokens": 20, "total_tokens": 30, "cost": 0.25}
    aimock.answer({"content": "Expensive.", "usage": usage})
    driver = opened(aimock.url + "/api/v1", provider="openrouter")
    for stream in (False, True):
        answer = await driver.complete(asking(stream=stream))
        assert (answer.cost.total_cost, answer.cost.currency) == (0.25, "USD")
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (10, 20)
