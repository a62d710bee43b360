"""The drivers over the providers' own libraries against servers from other projects, alone and behind retries."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import import_module

import msgspec
import pytest

from harborage.identity import Identity, bound
from harborage.llm import (
    ChatMessage,
    CompleteRequest,
    ConfigSnapshot,
    ConnectionFailedError,
    Content,
    Deps,
    IncompleteAnswerError,
    LLMClient,
    MalformedAnswerError,
    ProviderUnavailableError,
    RateLimitedError,
    ReasoningEffort,
    ResponseFormat,
    ResponseFormatKind,
    Role,
    ToolDeclaration,
    TransportPolicy,
)
from harborage.llm.chain.retry import Resilient

pytestmark = pytest.mark.anyio

ADD = ToolDeclaration("add", "Add two numbers.", {"type": "object", "properties": {"a": {"type": "integer"}}})
SCHEMA = b'{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}'
# Driver, model, and the path of its protocol on llmock and on aimock.
DRIVERS = [
    pytest.param("openai_responses", "gpt-5", "/v1", "/v1", id="openai"),
    pytest.param("anthropic", "claude-sonnet-4-5", "/anthropic", "", id="anthropic"),
    pytest.param("google", "gemini-2.5-flash", "/gemini/v1beta", "/v1beta", id="google"),
    pytest.param("pydantic_ai", "openai-chat:gpt-4o", "/v1", "/v1", id="any"),
]


@asynccontextmanager
async def opened(driver: str, model: str, base_url: str, **fields) -> AsyncIterator[LLMClient]:
    """The driver, and the caller's identity, for a block."""
    config = ConfigSnapshot(model=model, api_key="k", base_url=base_url, transport=TransportPolicy(base_s=0.02))
    deps = Deps(artifacts=None, bus=None, random=random.Random(1).random)
    wrap: Callable[..., LLMClient] = fields.get("wrap", lambda inner, *_: inner)
    client = wrap(import_module(f"harborage.llm.{driver}").make(config, deps), config, deps)
    try:
        with bound(Identity("t", "u", "s")):
            yield client
    finally:
        await client.close()


def asking(text: str = "add one", **fields) -> CompleteRequest:
    return CompleteRequest(messages=[ChatMessage(Role.USER, Content(text))], **fields)


@pytest.mark.parametrize(("driver", "model", "path", "other"), DRIVERS)
async def test_a_conversation_with_a_tool(llmock_peer, driver, model, path, other):
    """A tool is called, its answer is taken, and a schema is followed, streamed or not."""
    async with opened(driver, model, llmock_peer.url + path) as client:
        for stream in (True, False):
            request = asking(tools=[ADD], stream=stream)
            called = await client.complete(request)
            assert [call.name for call in called.tool_calls] == ["add"]
            assert called.finish_reason == "tool_calls"
            answer = ChatMessage(Role.TOOL, Content("2"), tool_call_id=called.tool_calls[0].id)
            history = [*request.messages, ChatMessage(Role.ASSISTANT, tool_calls=called.tool_calls), answer]
            answer = await client.complete(msgspec.structs.replace(request, messages=history))
            assert (bool(answer.content), answer.finish_reason) == (True, "stop")
            wanted = ResponseFormat(ResponseFormatKind.JSON_SCHEMA, SCHEMA)
            shape_request = await client.complete(asking("fill it in", response_format=wanted, stream=stream))
            assert isinstance(msgspec.json.decode(shape_request.content)["a"], int)


@pytest.mark.parametrize(("driver", "model", "path", "other"), DRIVERS)
async def test_faults_are_raised_and_not_repeated(llmock_peer, driver, model, path, other):
    """Every fault is an error of ours after one request: the library behind the driver repeats nothing."""
    faults = [
        ({"type": "fail", "status": 429, "retry_after": 3}, RateLimitedError),
        ({"type": "fail", "status": 529}, ProviderUnavailableError),
        ({"type": "stream_fault", "kind": "disconnect", "after_chunks": 2}, ConnectionFailedError),
        ({"type": "stream_fault", "kind": "truncate", "after_chunks": 2}, IncompleteAnswerError),
        ({"type": "stream_fault", "kind": "malformed", "after_chunks": 2}, MalformedAnswerError),
    ]
    async with opened(driver, model, llmock_peer.url + path) as client:
        for fault, kind in faults:
            llmock_peer.script(fault)
            with pytest.raises(kind):
                await client.complete(asking("Tell me a story.", stream=True))
    assert len(llmock_peer.requests()) == len(faults)


@pytest.mark.parametrize(("driver", "model", "path", "other"), DRIVERS)
async def test_behind_retries_no_fault_is_left(llmock_peer, driver, model, path, other):
    """With the retries of the chain around it the driver has nothing to be blamed for, in llmock's judgement."""
    async with opened(driver, model, llmock_peer.url + path, wrap=Resilient) as client:
        for number, fault in enumerate(
            (
                {"type": "fail", "status": 429, "retry_after": 0.05},
                {"type": "fail", "status": 503, "retry_after": 0.05},
                {"type": "stream_fault", "kind": "truncate", "after_chunks": 2},
                {"type": "stream_fault", "kind": "disconnect", "after_chunks": 2},
            )
        ):
            llmock_peer.script(fault)
            assert (await client.complete(asking(f"Tell me story {number}.", stream=True))).finish_reason == "stop"
    assert llmock_peer.findings() == []


@pytest.mark.parametrize(("driver", "model", "path", "other"), DRIVERS)
async def test_thinking_is_kept_apart_from_the_answer(aimock, driver, model, path, other):
    """The thinking of aimock's model is streamed as thinking, beside parallel calls."""
    if driver == "pydantic_ai":
        pytest.skip("the bridge leaves it to its library which fields are thinking")
    aimock.answer({"content": "Five.", "reasoning": "Two and three."})
    received: list[str] = []
    async with opened(driver, model, aimock.url + other) as client:
        request = asking("2 + 3?", stream=True, reasoning_effort=ReasoningEffort.LOW)
        request = msgspec.structs.replace(request, on_reasoning=lambda delta, done: received.append(delta))
        answer = await client.complete(request)
    assert (answer.content, answer.reasoning, "".join(received)) == ("Five.", "Two and three.", "Two and three.")


# aimock's own word for the end of an answer with calls, which Google's library does not know.
@pytest.mark.filterwarnings("ignore:FUNCTION_CALL is not a valid FinishReason:UserWarning")
@pytest.mark.parametrize(("driver", "model", "path", "other"), DRIVERS)
async def test_parallel_calls_of_a_foreign_server(aimock, driver, model, path, other):
    """Two calls at once, in aimock's way of streaming them, stay apart."""
    aimock.answer({"toolCalls": [{"name": "add", "arguments": '{"a":1}'}, {"name": "add", "arguments": '{"a":2}'}]})
    async with opened(driver, model, aimock.url + other) as client:
        answer = await client.complete(asking("both", stream=True, tools=[ADD], parallel_tool_calls=True))
    assert [msgspec.json.decode(call.args) for call in answer.tool_calls] == [{"a": 1}, {"a": 2}]
    assert len({call.id for call in answer.tool_calls}) == 2
