"""The driver around a server that is not there: turns into decisions, starting, waiting and closing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from harborage.errors import MissingExtraError
from harborage.identity import Identity, bound
from harborage.llm import (
    ChatMessage,
    ClientClosedError,
    CompleteRequest,
    CompleteResponse,
    ConfigSnapshot,
    Content,
    Deps,
    IdentityMissingError,
    ModelProfile,
    ResponseFormat,
    ResponseFormatKind,
    Role,
    ToolCallStructured,
    ToolChoice,
    ToolDeclaration,
    Usage,
)
from harborage.llm.errors import MalformedAnswerError
from harborage.llm.local import LocalServerError, WeightsMissingError, make
from harborage.llm.local import driver as room
from harborage.llm.local.driver import LocalDriver

pytestmark = pytest.mark.anyio

WHO = Identity("acme", "ada", "s1")
ADD = ToolDeclaration("add", "Add.", {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
CALL = '{"name": "add", "arguments": {"a": 1}}'
ANSWER = '{"name": "final_answer", "arguments": {"text": "It is 3."}}'
DEPS = Deps(artifacts=None, bus=None)


class Server:
    """A server that counts how often it is started and stopped, and fails to start when the test says so."""

    def __init__(self, path: Path, *, context_tokens: int, name: str) -> None:
        self.context_tokens = context_tokens
        self.base_url, self.key = "http://127.0.0.1:1/v1", "secret"
        self.parameters = 0
        self.starts = self.stops = 0
        self.fault: Exception | None = None

    def start(self) -> None:
        self.starts += 1
        if self.fault is not None:
            raise self.fault

    def stop(self) -> None:
        self.stops += 1


class Inner:
    """The way to the server: says the next line, in pieces when it streams, and remembers what it was asked."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = list(lines)
        self.asked: list[CompleteRequest] = []
        self.closed = self.under_way = self.most = 0
        self.gate: asyncio.Event | None = None
        self.is_asked = asyncio.Event()

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        self.asked.append(request)
        self.is_asked.set()
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await (asyncio.sleep(0) if self.gate is None else self.gate.wait())
        finally:
            self.under_way -= 1
        text = self.lines.pop(0)
        if request.stream and request.on_content is not None:
            for at in range(0, len(text), 5):
                request.on_content(text[at : at + 5], False)
            request.on_content("", True)
        return CompleteResponse(content=text, usage=Usage(3, 2, 0, 5), finish_reason="stop")

    async def close(self) -> None:
        self.closed += 1


Opened = Callable[..., tuple[LocalDriver, Inner, Server]]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    """Makes a driver whose server says the given lines."""

    def build(*lines: str, **config: Any) -> tuple[LocalDriver, Inner, Server]:
        inner = Inner(lines)
        monkeypatch.setattr(room, "LocalServer", Server)
        monkeypatch.setattr(room, "make_compatible", lambda cfg, deps: inner)
        driver = LocalDriver(Path("x.gguf"), ConfigSnapshot(driver="local", model="smollm2", **config), DEPS)
        server = driver._server
        assert isinstance(server, Server)
        return driver, inner, server

    return build


def asked(*more: ChatMessage, **fields: Any) -> CompleteRequest:
    """A question with a tool."""
    question = ChatMessage(Role.USER, Content("1 + 2?"))
    return CompleteRequest(messages=[question, *more], **{"tools": [ADD], **fields})


DONE = (
    ChatMessage(Role.ASSISTANT, tool_calls=[ToolCallStructured("1", "add", b'{"a":1}')]),
    ChatMessage(Role.TOOL, Content("3"), tool_call_id="1"),
)


async def ask(driver: LocalDriver, request: CompleteRequest) -> CompleteResponse:
    """One call, under an identity."""
    with bound(WHO):
        return await driver.complete(request)


async def test_a_constrained_reply_becomes_a_native_call(opened: Opened) -> None:
    """The planner sees a call with an id, as from any provider, and no text."""
    driver, inner, _ = opened(CALL, CALL)
    response, other = await ask(driver, asked()), await ask(driver, asked())
    (call,) = response.tool_calls
    assert (call.name, json.loads(call.args)) == ("add", {"a": 1})
    assert call.id
    assert call.id != other.tool_calls[0].id
    assert (response.content, response.finish_reason, response.usage.total_tokens) == ("", "tool_calls", 5)
    assert inner.asked[0].tools == ()
    assert inner.asked[0].response_format is not None


async def test_only_the_words_of_an_answer_are_streamed(opened: Opened) -> None:
    """A callback gets the answer without the JSON around it, then `done` once."""
    driver, _, _ = opened(ANSWER)
    received: list[tuple[str, bool]] = []
    response = await ask(driver, asked(stream=True, on_content=lambda delta, done: received.append((delta, done))))
    assert response.content == "It is 3."
    assert "".join(delta for delta, _ in received) == response.content
    assert [done for _, done in received] == [False] * (len(received) - 1) + [True]
    assert len(received) > 2


async def test_a_call_streams_nothing_but_its_end(opened: Opened) -> None:
    """The JSON of a call is never shown."""
    driver, _, _ = opened(CALL)
    received: list[tuple[str, bool]] = []
    await ask(driver, asked(stream=True, on_content=lambda delta, done: received.append((delta, done))))
    assert received == [("", True)]


@pytest.mark.parametrize("first", [CALL, '{"name": "add", "arguments": {"a": 11111'])
async def test_what_leads_nowhere_is_followed_by_the_answer(opened: Opened, first: str) -> None:
    """A call that has its result already, and one that was not finished, are answered by a second question."""
    driver, inner, server = opened(first, "It is 3.")
    server.parameters = 500_000_000
    received: list[tuple[str, bool]] = []
    response = await ask(
        driver, asked(*DONE, stream=True, on_content=lambda delta, done: received.append((delta, done)))
    )
    assert response.content == "It is 3."
    assert response.tool_calls == ()
    assert response.usage == Usage(6, 4, 0, 10)
    assert "".join(delta for delta, _ in received) == "It is 3."
    assert [done for _, done in received].count(True) == 1
    assert inner.asked[1].messages[-1].content.text == "Question: 1 + 2?\n\nFound:\n3"
    assert inner.asked[1].response_format is None


async def test_a_tiny_model_answers_as_soon_as_it_can(opened: Opened) -> None:
    """After a result that is no failure it is asked for words; after a failure it may call again."""
    driver, inner, _ = opened("It is 3.", CALL, CALL)
    assert (await ask(driver, asked(*DONE))).content == "It is 3."
    failed = ChatMessage(Role.TOOL, Content("error: too large"), tool_call_id="1")
    other = ChatMessage(Role.ASSISTANT, tool_calls=[ToolCallStructured("1", "add", b'{"a":7}')])
    assert (await ask(driver, asked(other, failed))).tool_calls
    assert (await ask(driver, asked(*DONE, tool_choice=ToolChoice.REQUIRED))).tool_calls
    assert [request.response_format is None for request in inner.asked] == [True, False, False]


async def test_a_demanded_call_is_made_again_or_fails(opened: Opened) -> None:
    """Where no answer is allowed there is no way out of a repeat, and none out of a call that was not finished."""
    driver, _, _ = opened(CALL, '{"name": "add", "arguments": {')
    demanded = asked(*DONE, tool_choice=ToolChoice.REQUIRED)
    assert (await ask(driver, demanded)).tool_calls[0].name == "add"
    with pytest.raises(MalformedAnswerError, match="max_tokens"):
        await ask(driver, demanded)


async def test_an_answer_that_was_cut_off_says_so(opened: Opened) -> None:
    """Its words are kept, and the reason is its length."""
    driver, _, _ = opened(ANSWER[:-4])
    response = await ask(driver, asked())
    assert (response.content, response.finish_reason) == ("It is 3", "length")


async def test_an_answer_with_a_schema_is_its_object(opened: Opened) -> None:
    """The content is JSON of the asked shape, and a listener gets it in one piece."""
    driver, _, _ = opened('{"name": "final_answer", "arguments": {"n": 3}}')
    wanted = ResponseFormat(ResponseFormatKind.JSON_SCHEMA, b'{"type": "object", "properties": {"n": {}}}')
    received: list[tuple[str, bool]] = []
    listener = {"stream": True, "on_content": lambda delta, done: received.append((delta, done))}
    response = await ask(driver, asked(response_format=wanted, **listener))
    assert response.content == '{"n": 3}'
    assert received == [('{"n": 3}', False), ("", True)]


@pytest.mark.parametrize("fields", [{"tools": []}, {"tool_choice": ToolChoice.NONE}])
async def test_a_turn_without_tools_is_passed_on(opened: Opened, fields: dict[str, Any]) -> None:
    """The model just talks; its own JSON schema travels as it is."""
    driver, inner, _ = opened("Hello.")
    received: list[tuple[str, bool]] = []
    wanted = ResponseFormat(ResponseFormatKind.JSON_SCHEMA, b"{}")
    listener = {"stream": True, "on_content": lambda delta, done: received.append((delta, done))}
    response = await ask(driver, asked(response_format=wanted, **fields, **listener))
    assert response.content == "Hello."
    assert received == [("Hello", False), (".", False), ("", True)]
    assert inner.asked[0].response_format == wanted
    assert inner.asked[0].tools == ()


async def test_the_window_is_the_one_of_the_profile(opened: Opened) -> None:
    """What the guard lets pass is what the server has room for."""
    profiles = {"smollm2": ModelProfile(context_window_tokens=1234)}
    assert opened(profiles=profiles)[2].context_tokens == 1234
    assert opened()[2].context_tokens == room.DEFAULT_CONTEXT_TOKENS


async def test_the_server_is_started_once_and_asked_one_at_a_time(opened: Opened) -> None:
    """However many runs ask at once; nothing is started before the first call."""
    driver, inner, server = opened(*[ANSWER] * 8)
    assert server.starts == 0
    answers = await asyncio.gather(*(ask(driver, asked()) for _ in range(8)))
    assert {answer.content for answer in answers} == {"It is 3."}
    assert server.starts == 1
    assert inner.most == 1


async def test_no_server_starts_without_a_name(opened: Opened) -> None:
    """The identity is checked first; a callback still gets `done`."""
    driver, _, server = opened(ANSWER)
    received: list[tuple[str, bool]] = []
    with pytest.raises(IdentityMissingError):
        await driver.complete(asked(stream=True, on_content=lambda delta, done: received.append((delta, done))))
    assert server.starts == 0
    assert received == [("", True)]


async def test_a_server_that_does_not_start_may_be_tried_again(opened: Opened) -> None:
    """The caller gets the error; the next call starts it again."""
    driver, _, server = opened(ANSWER)
    server.fault = LocalServerError("broken")
    received: list[tuple[str, bool]] = []
    with pytest.raises(LocalServerError, match="broken"):
        await ask(driver, asked(stream=True, on_content=lambda delta, done: received.append((delta, done))))
    assert received == [("", True)]
    server.fault = None
    assert (await ask(driver, asked())).content == "It is 3."
    assert server.starts == 2


async def test_a_cancelled_call_makes_room_for_the_next(opened: Opened) -> None:
    """A cancelled call, waiting or at work, does not block the others."""
    driver, inner, _ = opened(ANSWER, ANSWER)
    inner.gate = asyncio.Event()
    working, waiting, last = (asyncio.create_task(ask(driver, asked())) for _ in range(3))
    await inner.is_asked.wait()
    waiting.cancel()
    working.cancel()
    inner.gate.set()
    assert (await last).content == "It is 3."
    assert working.cancelled()
    assert waiting.cancelled()


async def test_closing_ends_the_calls_then_the_server(opened: Opened) -> None:
    """A call at work, and a waiting one, end as closed; later ones too; closing twice does nothing more."""
    driver, inner, server = opened(ANSWER)
    inner.gate = asyncio.Event()
    calls = [asyncio.create_task(ask(driver, asked())) for _ in range(2)]
    await inner.is_asked.wait()
    await driver.close()
    for call in calls:
        with pytest.raises(ClientClosedError):
            await call
    assert (inner.under_way, inner.closed, server.stops) == (0, 1, 1)
    with pytest.raises(ClientClosedError):
        await ask(driver, asked())
    await driver.close()
    assert inner.closed == 1
    assert server.starts == 1


async def test_closing_an_unused_driver_starts_nothing(opened: Opened) -> None:
    """There is nothing to end."""
    driver, _, server = opened()
    await driver.close()
    assert server.starts == 0


async def test_the_key_is_never_shown(opened: Opened) -> None:
    """A driver ends up in logs."""
    driver, _, _ = opened()
    assert "secret" not in repr(driver)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to install, before any weights are looked for."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"harborage\[local\]"):
        make(ConfigSnapshot(driver="local", model="smollm2"), DEPS)


def test_missing_weights_are_named_when_the_client_is_opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A missing model is an error before the first call."""
    monkeypatch.setenv("HARBORAGE_DATA", str(tmp_path))
    with pytest.raises(WeightsMissingError, match="harborage models pull smollm2"):
        make(ConfigSnapshot(driver="local", model="smollm2"), DEPS)
