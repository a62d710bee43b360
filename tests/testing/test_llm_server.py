"""The scripted model server, as any client of OpenAI's API meets it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import httpx2
import msgspec
import pytest

from harborage.llm import ToolCallStructured
from harborage.testing.conformance.llm_bench import Answer, Break, Failure, Refusal, Silence
from tests.kit.llm_dialects.chat import ChatDialect
from tests.kit.llm_server import LLMServer
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio


@pytest.fixture
async def server() -> AsyncIterator[LLMServer]:
    async with LLMServer() as running:
        yield running


@pytest.fixture
async def client(server) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=server.base_url(), timeout=None, trust_env=False) as running:
        yield running


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}


async def ask(client, **fields):
    return await client.post("/chat/completions", json=body(**fields))


def events(answer: httpx2.Response) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    return [msgspec.json.decode(line) for line in lines]


async def test_a_script_is_followed_in_order(server, client):
    """Each call gets the next line; when none is left, the fallback, and without one a text that says so."""
    server.script("one", Answer(content="two"))
    assert [(await ask(client)).json()["choices"][0]["message"]["content"] for _ in range(2)] == ["one", "two"]
    assert "no line" in (await ask(client)).text
    server.otherwise = lambda asked: asked.body["messages"][0]["content"]
    assert (await ask(client)).json()["choices"][0]["message"]["content"] == "hi"
    assert [asked.path for asked in server.requests] == ["/v1/chat/completions"] * 4


async def test_a_whole_answer(server, client):
    """An answer in one piece has text, calls, thinking, usage and a reason."""
    call = ToolCallStructured("c", "add", b'{"a":1}')
    server.script(Answer(content="text", reasoning="hm", calls=[call], prompt_tokens=3, completion_tokens=4, cost=0.5))
    answer = (await ask(client)).json()
    message = answer["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == ("text", "hm")
    assert message["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a":1}'}
    assert answer["choices"][0]["finish_reason"] == "tool_calls"
    assert (answer["usage"]["total_tokens"], answer["usage"]["cost"]) == (7, 0.5)


async def test_a_streamed_answer(server, client):
    """A streamed answer comes in pieces of the length that is asked for, its usage only on request."""
    server.script(Answer(content="a long text", piece=4), Answer(content="x"))
    pieces = events(await ask(client, stream=True, stream_options={"include_usage": True}))
    deltas = [piece["choices"][0]["delta"].get("content") for piece in pieces if piece["choices"]]
    assert [delta for delta in deltas if delta] == ["a lo", "ng t", "ext"]
    assert pieces[-2]["choices"][0]["finish_reason"] == "stop"
    assert pieces[-1]["usage"]["total_tokens"] == 18
    assert all(piece["usage"] is None for piece in events(await ask(client, stream=True)))


async def test_parallel_calls_come_in_turn(server, client):
    """The arguments of two calls are interleaved, which a client must put apart again."""
    calls = [ToolCallStructured(f"c{at}", "add", b'{"number":%d}' % at, at) for at in range(2)]
    server.script(Answer(calls=calls, piece=4))
    deltas = [piece["choices"][0]["delta"] for piece in events(await ask(client, stream=True))]
    places = [delta["tool_calls"][0]["index"] for delta in deltas if "tool_calls" in delta]
    assert places[:2] == [0, 1]
    assert places[2:6] == [0, 1, 0, 1]


@pytest.mark.parametrize("failure", Failure)
async def test_refusals(server, client, failure):
    """Every failure has a status and a body in the protocol's own form; the connection stays."""
    server.script(Refusal(failure=failure, retry_after="3", says="because"), "ok")
    refused = await ask(client, stream=True)
    assert refused.status_code >= 400
    assert refused.headers["retry-after"] == "3"
    assert refused.json()["error"]["message"].endswith("because")
    assert (await ask(client)).status_code == 200
    assert server.connections == 1


async def test_another_path_is_not_found(server, client):
    """A protocol that no dialect speaks is not found."""
    assert (await client.post("/embeddings", json={})).status_code == 404


async def test_a_truncated_stream_ends_properly(server, client):
    """The body ends as HTTP wants it, and the answer does not."""
    server.script(Answer(content="a long answer", broken=Break.TRUNCATED))
    answer = await ask(client, stream=True)
    assert answer.text.count('"content"') == 3
    assert 'finish_reason":"' not in answer.text
    assert "[DONE]" not in answer.text


@pytest.mark.parametrize("stream", [True, False])
async def test_a_dropped_connection_is_a_broken_one(server, client, stream):
    """The client sees a connection that breaks in the middle."""
    server.script(Answer(content="a long answer", broken=Break.DROPPED))
    with pytest.raises(httpx2.TransportError):
        await ask(client, stream=stream)
    await server.until(lambda server: not server.connections)
    assert server.given_up == 0


@pytest.mark.parametrize("line", [Silence(), Answer(content="a long answer", broken=Break.STALLED)])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_silent_server_waits_for_the_caller_to_hang_up(server, client, line, stream):
    """A caller that gives up is counted, and the server is free again."""
    server.script(line)
    with pytest.raises(httpx2.ReadTimeout):
        await client.post("/chat/completions", json=body(stream=stream), timeout=httpx2.Timeout(None, read=0.05))
    await server.until(lambda server: server.given_up == 1 and not server.busy)


async def test_until_gives_up(server, monkeypatch):
    """What never comes true is reported, with what the server sees."""
    monkeypatch.setattr("tests.kit.llm_server._PATIENCE_S", 0.01)
    with pytest.raises(TimeoutError, match=r"a miracle: not within 0\.01 s \(0 requests, 0 busy, 0 connections\)"):
        await server.until(lambda server: False, "a miracle")


async def test_closing_hangs_up_on_all_clients(client, server):
    """A closed server leaves no task and no connection; closing it twice is fine."""
    server.script("ok")
    await ask(client)
    await server.aclose()
    await server.aclose()
    assert server.connections == 0


@each_row("turns", range(8))
async def test_closing_ends_while_a_caller_hangs_up(turns):
    """Closing ends at whatever point of their coming and going it finds the callers."""
    server = LLMServer()
    await server.start()
    port = urlsplit(server.url).port
    _, leaving = await asyncio.open_connection("127.0.0.1", port)
    leaving.close()
    _, coming = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(turns):
        await asyncio.sleep(0)
    async with asyncio.timeout(10):
        await server.aclose()
    assert server.connections == 0
    coming.transport.abort()


async def test_thinking_can_have_another_name():
    """Servers call the field of thinking differently."""
    async with LLMServer(ChatDialect(reasoning_field="reasoning")) as server:
        server.script(Answer(reasoning="hm"))
        async with httpx2.AsyncClient(base_url=server.base_url("chat"), trust_env=False) as client:
            assert (await ask(client)).json()["choices"][0]["message"]["reasoning"] == "hm"
