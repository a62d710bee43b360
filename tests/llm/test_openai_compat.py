"""The driver for Chat Completions as a whole: how it is made and closed, and what it says when it fails."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from harborage.identity import Identity, bound
from harborage.llm import (
    AuthenticationFailedError,
    BadRequestError,
    ChatMessage,
    CompleteRequest,
    ConfigSnapshot,
    ConnectionFailedError,
    Content,
    Deps,
    LLMConfigError,
    MalformedAnswerError,
    MissingAPIKeyError,
    ModelProfile,
    Role,
)
from harborage.llm.openai_compat import OpenAICompatDriver, make
from harborage.testing.clock import FakeClock
from harborage.testing.conformance.llm_bench import Answer, Break, Failure, ReceivedRequest, Refusal
from tests.kit.llm_server import LLMServer

pytestmark = pytest.mark.anyio

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]


@pytest.fixture(autouse=True)
def _me():
    with bound(Identity("tenant", "user", "session")):
        yield


@pytest.fixture
async def server() -> AsyncIterator[LLMServer]:
    async with LLMServer() as running:
        yield running


@pytest.fixture
async def opened() -> AsyncIterator[Callable[..., OpenAICompatDriver]]:
    """Makes drivers, and closes them behind the test."""
    drivers: list[OpenAICompatDriver] = []

    def open_driver(base_url: str, clock: FakeClock | None = None, **fields: Any) -> OpenAICompatDriver:
        cfg = ConfigSnapshot(base_url=base_url, **{"provider": "acme", "model": "m", **fields})
        drivers.append(make(cfg, Deps(artifacts=None, bus=None, clock=clock or FakeClock())))
        return drivers[-1]

    yield open_driver
    for driver in drivers:
        await driver.close()


def asking(**fields: Any) -> CompleteRequest:
    return CompleteRequest(messages=[ChatMessage(Role.USER, Content("hello"))], **fields)


async def test_a_key_is_sent_as_a_bearer(server, opened, monkeypatch):
    """The key comes from the setting, from the variable it names, or from the provider's own variable."""
    monkeypatch.setenv("MY_KEY", "from-my-variable")
    monkeypatch.setenv("GROQ_API_KEY", "from-the-usual-one")
    server.otherwise = "ok"
    for fields in ({"api_key": "given"}, {"api_key": "env.MY_KEY"}, {"provider": "groq"}, {}):
        await opened(server.base_url(), **fields).complete(asking())
    sent = [asked.headers.get("authorization") for asked in server.requests]
    assert sent == ["Bearer given", "Bearer from-my-variable", "Bearer from-the-usual-one", None]


async def test_a_missing_key_names_its_variable(opened, monkeypatch):
    """A provider that takes no call without a key is refused before the first one, with the variable to set."""
    monkeypatch.delenv("GROQ_API_KEY", raising=False)
    with pytest.raises(MissingAPIKeyError, match="GROQ_API_KEY"):
        opened("", provider="groq")
    with pytest.raises(MissingAPIKeyError, match="NO_SUCH_KEY"):
        opened("", provider="ollama", api_key="env.NO_SUCH_KEY")


async def test_a_known_provider_needs_no_address(opened):
    """The table of providers has the address; a server that runs on one's own machine needs no key either."""
    assert "127.0.0.1:11434" in repr(opened("", provider="ollama"))


@pytest.mark.parametrize(
    "address",
    [
        "",
        "localhost:8000",
        "ftp://a.example",
        "http://",
        "http://[",
        "http://a:99999999/v1",
        "http://a b/v1",
        "http://a:x",
    ],
)
async def test_an_address_that_is_none_names_the_setting(opened, address):
    """A custom server without an HTTP address fails when it is made, and says what to set."""
    with pytest.raises(LLMConfigError, match=r"acme needs an HTTP address.*llm\.base_url"):
        opened(address)


async def test_no_output_shows_the_key(opened):
    """The description of a driver has no key."""
    driver = opened("http://127.0.0.1:1/v1", api_key="topsecret")
    assert "topsecret" not in f"{driver!r}{driver!s}"


async def test_a_refused_key_names_where_it_came_from(server, opened, monkeypatch):
    """The error names the variable, or the setting when it holds the key itself."""
    monkeypatch.setenv("MY_KEY", "k")
    server.otherwise = Refusal(failure=Failure.BAD_KEY)
    with pytest.raises(AuthenticationFailedError, match=r"check the key in MY_KEY$"):
        await opened(server.base_url(), api_key="env.MY_KEY").complete(asking())
    with pytest.raises(AuthenticationFailedError, match=r"check llm\.api_key$"):
        await opened(server.base_url(), api_key="k").complete(asking())


@pytest.mark.parametrize(
    ("provider", "hint"),
    [
        ("ollama", r"is `ollama serve` running at http://127\.0\.0\.1:\d+/v1\?"),
        ("vllm", r"is `vllm serve` running at"),
        ("llamacpp", r"is `llama-server` running at"),
        ("acme", r"check llm\.base_url"),
    ],
)
async def test_a_server_that_does_not_run_is_named(opened, provider, hint):
    """A refused connection says whom to start, and where it was looked for."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        driver = opened(f"http://127.0.0.1:{taken.getsockname()[1]}/v1", provider=provider)
        with pytest.raises(ConnectionFailedError, match=hint):
            await driver.complete(asking())


async def test_no_model_is_an_error_of_the_setting(server, opened):
    """Neither the request nor the configuration names a model: nothing is sent."""
    with pytest.raises(LLMConfigError, match=r"llm\.model"):
        await opened(server.base_url(), model="").complete(asking())
    assert server.requests == []


async def test_headers_and_a_query_are_kept(server, opened):
    """Configured headers are sent, and a query of the address stays behind the method's path."""
    server.script("ok", "ok")
    driver = opened(f" {server.base_url()}/?version=1", headers={"X-Team": "blue", "User-Agent": "mine"})
    await driver.complete(asking())
    (asked,) = server.requests
    assert asked.path == "/v1/chat/completions?version=1"
    assert (asked.headers["x-team"], asked.headers["user-agent"]) == ("blue", "mine")
    await opened(server.base_url() + "/chat/completions").complete(asking())
    assert server.requests[1].path == "/v1/chat/completions"


async def test_a_server_on_this_machine_is_asked_without_a_proxy(server, opened, monkeypatch):
    """A proxy of the environment is for servers elsewhere."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    server.script("ok")
    assert (await opened(server.base_url()).complete(asking())).content == "ok"


async def test_extra_fields_and_the_profile_reach_the_server(server, opened):
    """Extra fields of the configuration and the profile's limit of tokens are sent; those of a request win."""
    server.script("ok", "ok")
    profiles = {"m": ModelProfile(context_window_tokens=1000, default_max_tokens=77)}
    driver = opened(server.base_url(), extra={"top_k": 5}, profiles=profiles)
    await driver.complete(asking())
    await driver.complete(asking(extra={"top_k": 6}, max_tokens=7))
    assert server.requests[0].body.items() >= {"top_k": 5, "max_tokens": 77, "model": "m"}.items()
    assert server.requests[1].body.items() >= {"top_k": 6, "max_tokens": 7}.items()


async def test_a_connection_is_used_again(server, opened):
    """Calls one behind the other share a connection, streams and refusals included."""
    driver = opened(server.base_url())
    server.script("a", Refusal(failure=Failure.SERVER_ERROR), "b", "c")
    await driver.complete(asking(stream=True))
    with pytest.raises(Exception, match="status 500"):
        await driver.complete(asking())
    await driver.complete(asking())
    await driver.complete(asking(stream=True))
    assert server.connections == 1
    await driver.close()
    await server.until(lambda server: not server.connections)


def test_each_event_loop_has_its_own_connections():
    """A driver serves one event loop after another."""
    driver: OpenAICompatDriver | None = None

    async def once(port: int | None) -> None:
        nonlocal driver
        async with LLMServer(otherwise="ok") as server:
            driver = driver or make(
                ConfigSnapshot(provider="acme", model="m", base_url=server.base_url()), Deps(artifacts=None, bus=None)
            )
            driver._connection._url = server.base_url() + "/chat/completions"
            assert (await driver.complete(asking())).content == "ok"
            await driver._connection.close()

    for _ in range(2):
        asyncio.run(once(None))


async def serving(serve: Serve) -> tuple[asyncio.Server, str]:
    running = await asyncio.start_server(serve, "127.0.0.1", 0)
    return running, f"http://127.0.0.1:{running.sockets[0].getsockname()[1]}/v1"


def says(*pieces: bytes, kind: str = "text/event-stream", close: bool = True, status: int = 200) -> Serve:
    """A server that reads one request and sends these bytes as its body."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
        await reader.readexactly(int(length.partition(b":")[2]))
        writer.write(f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\n\r\n".encode())
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        if not close:
            await reader.read()
        writer.close()

    return serve


@pytest.fixture
async def raw(opened) -> AsyncIterator[Callable[..., Any]]:
    """Makes a driver for a server that sends these bytes."""
    running: list[asyncio.Server] = []

    async def begin(*pieces: bytes, clock: FakeClock | None = None, **fields: Any) -> OpenAICompatDriver:
        server, address = await serving(says(*pieces, **fields))
        running.append(server)
        return opened(address, clock)

    yield begin
    for server in running:
        server.close()


FINISHED = b'data: {"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"


async def test_a_web_page_is_no_answer(raw):
    """An address that answers with a web page is most likely the wrong one."""
    driver = await raw(b"<html>Welcome to nginx</html>", kind="text/html; charset=utf-8")
    with pytest.raises(MalformedAnswerError, match=r"web page; check llm\.base_url"):
        await driver.complete(asking(stream=True))


async def test_an_answer_in_one_piece_to_a_stream_is_an_answer(raw):
    """The answer of a server that does not stream comes in one delta."""
    received: list[tuple[str, bool]] = []
    driver = await raw(b'{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}', kind="application/json")
    answer = await driver.complete(asking(stream=True, on_content=lambda *said: received.append(said)))
    assert answer.content == "hi"
    assert received == [("hi", False), ("", True)]


async def test_a_stream_without_a_type_is_read(raw):
    """Some servers do not say that they stream."""
    driver = await raw(FINISHED + DONE, kind="text/plain")
    assert (await driver.complete(asking(stream=True))).content == "hi"


async def test_what_comes_behind_the_end_is_not_missed(raw):
    """An answer that was finished stays one when the connection breaks before its bill comes."""
    driver = await raw(FINISHED, b"data: {")
    assert (await driver.complete(asking(stream=True))).content == "hi"


async def test_a_bill_that_does_not_come_is_not_waited_for_for_ever(raw):
    """A finished answer whose stream stays open is given when the pause is too long."""
    clock = FakeClock()
    received = asyncio.Event()
    driver = await raw(FINISHED, close=False, clock=clock)
    call = asyncio.ensure_future(driver.complete(asking(stream=True, on_content=lambda *_: received.set())))
    await received.wait()
    await clock.run_for(61)
    assert (await call).content == "hi"


async def test_a_server_that_does_not_hang_up_behind_the_end_is_left(raw):
    """Behind `[DONE]` nothing is waited for."""
    clock = FakeClock()
    received = asyncio.Event()
    driver = await raw(FINISHED + DONE, close=False, clock=clock)
    call = asyncio.ensure_future(driver.complete(asking(stream=True, on_content=lambda *_: received.set())))
    await received.wait()
    await clock.run_for(0.2)
    assert (await call).content == "hi"


async def test_a_last_event_without_its_blank_line_counts(raw):
    """A body may end right behind its last event."""
    driver = await raw(FINISHED.rstrip(b"\n"))
    assert (await driver.complete(asking(stream=True))).content == "hi"


async def test_an_event_without_an_end_is_given_up(raw, monkeypatch):
    """A server that sends on and on does not fill the memory."""
    monkeypatch.setattr("harborage.llm.openai_compat._LONGEST_EVENT", 10_000)
    monkeypatch.setattr("harborage.llm.openai_compat._LONGEST_ANSWER", 10_000)
    with pytest.raises(MalformedAnswerError, match="more than 10,000 bytes"):
        await (await raw(b"data: " + b"x" * 50_000, close=False)).complete(asking(stream=True))
    with pytest.raises(MalformedAnswerError, match="more than 10,000 bytes"):
        await (await raw(b"x" * 50_000, kind="application/json", close=False)).complete(asking())


async def test_an_endless_refusal_is_read_no_further_than_it_is_shown(raw, monkeypatch):
    """A refusal keeps its status, however much is sent with it."""
    monkeypatch.setattr("harborage.llm.openai_compat._LONGEST_REFUSAL", 10_000)
    with pytest.raises(BadRequestError, match="status 418"):
        await (await raw(b"x" * 50_000, kind="text/plain", close=False, status=418)).complete(asking())


async def test_compressed_answers_are_read(opened):
    """A server or a proxy may compress what it sends."""
    import gzip

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip\r\n\r\n")
        writer.write(gzip.compress(FINISHED + DONE))
        writer.close()

    server, address = await serving(serve)
    assert (await opened(address).complete(asking(stream=True))).content == "hi"
    server.close()


async def test_the_server_sees_the_disconnect_of_a_cancelled_call(server, opened):
    """Cancelling closes the connection rather than reading on, and the next call has another."""
    server.script(Answer(content="a long answer", broken=Break.STALLED))
    received = asyncio.Event()
    driver = opened(server.base_url())
    call = asyncio.ensure_future(driver.complete(asking(stream=True, on_content=lambda *_: received.set())))
    await received.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await server.until(lambda server: server.given_up == 1 and not server.connections)


async def test_timers_are_called_off(server, opened):
    """A call leaves no timer behind."""
    clock = FakeClock()
    server.script("ok", Refusal(failure=Failure.SERVER_ERROR))
    driver = opened(server.base_url(), clock)
    await driver.complete(asking(stream=True))
    with pytest.raises(Exception, match="status 500"):
        await driver.complete(asking())
    clock.advance(1000)
    assert clock.armed == 0


async def test_models_of_requests_are_asked(server, opened):
    """What a request asks for is what a scripted function sees."""

    def answer(asked: ReceivedRequest) -> str:
        return f"{asked.body['model']} says {asked.body['messages'][-1]['content']}"

    server.otherwise = answer
    assert (await opened(server.base_url()).complete(asking(model="other"))).content == "other says hello"
