"""The real weights on the real server, through the whole driver.

One server serves all of these tests, so that what it has read of a prompt is read once. They are synchronous, because
it lives on an event loop that outlives each of them.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import runpy
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import jsonschema_rs
import pytest

from harborage.artifacts.memory import MemoryArtifactStore
from harborage.events.memory_bus import MemoryEventBus
from harborage.events.redaction import PatternRedactor
from harborage.identity import Quadruple, bound
from harborage.llm import (
    ChatMessage,
    ClientClosedError,
    CompleteRequest,
    CompleteResponse,
    ConfigSnapshot,
    Content,
    Deps,
    ResponseFormat,
    ResponseFormatKind,
    Role,
    ToolDeclaration,
)
from harborage.llm.local import LocalServerError, make
from harborage.llm.local.driver import LocalDriver, LocalServer
from harborage.llm.opening import open_llm
from harborage.llm.providers import config_for, parse_model
from harborage.tools.standard import standard_tools

T = TypeVar("T")

WHO = Quadruple("acme", "ada", "s1", "r1")
FIXED = runpy.run_path(str(Path(__file__).with_name("questions.py")))


class Model:
    """A driver on a loop of its own."""

    def __init__(self, config: ConfigSnapshot) -> None:
        self.config = config
        self.runner = asyncio.Runner()
        self.driver = self.open()

    def open(self) -> LocalDriver:
        """Another driver of the same model."""
        return make(self.config, Deps(artifacts=None, bus=None))

    @property
    def server(self) -> LocalServer:
        """The server behind it."""
        return self.driver._server

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, on the loop of the driver."""
        with bound(WHO):
            return self.runner.run(work)

    def ask(self, text: str, **fields: Any) -> CompleteResponse:
        """The answer to one question."""
        return self.run(self.driver.complete(question(text, **fields)))


def question(text: str, **fields: Any) -> CompleteRequest:
    """A request of one message, at temperature 0."""
    return CompleteRequest(messages=[ChatMessage(Role.USER, Content(text))], **{"temperature": 0.0, **fields})


@pytest.fixture(scope="module")
def model(embedded: Path) -> Iterator[Model]:
    """The embedded model, closed after the last of these tests."""
    found = Model(config_for(parse_model(f"local:{embedded}"), environ={}))
    yield found
    found.runner.run(found.driver.close())
    found.runner.close()


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> tuple[ToolDeclaration, ...]:
    """The six standard tools of the fixed set."""
    found = {one.tool.name: one.tool for one in standard_tools(tmp_path_factory.mktemp("root"))}
    return tuple(ToolDeclaration(name, found[name].description, found[name].args_schema) for name in FIXED["TOOLS"])


def test_it_talks(model: Model) -> None:
    """A plain question gets words, and what they took is counted."""
    response = model.ask("Say hello.", max_tokens=8)
    assert response.content.strip()
    assert response.tool_calls == ()
    assert response.finish_reason in {"stop", "length"}
    assert 0 < response.usage.completion_tokens <= 8
    assert response.usage.prompt_tokens > 0


def test_it_streams(model: Model) -> None:
    """The words come one by one, are in sum the answer, and end once."""
    received: list[tuple[str, bool]] = []
    listener = {"stream": True, "on_content": lambda delta, done: received.append((delta, done))}
    response = model.ask("Say hello.", max_tokens=8, **listener)
    assert "".join(delta for delta, _ in received) == response.content
    assert len(received) > 3
    assert [done for _, done in received] == [False] * (len(received) - 1) + [True]


def test_it_keeps_to_a_schema(model: Model) -> None:
    """Structured output is enforced by the server, against the model's preference."""
    schema = {
        "type": "object",
        "properties": {"city": {"enum": ["Paris", "Rome"]}, "year": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["city", "year"],
        "additionalProperties": False,
    }
    wanted = ResponseFormat(ResponseFormatKind.JSON_SCHEMA, json.dumps(schema).encode())
    response = model.ask("Where is the tower of Eiffel?", response_format=wanted, max_tokens=40)
    jsonschema_rs.validate(schema, json.loads(response.content))


def test_every_question_of_the_fixed_set_is_decided(model: Model, tools: tuple[ToolDeclaration, ...]) -> None:
    """Each of sixteen questions ends in a call that its tool would take, or in an answer; most name the right tool."""
    right = 0
    for text, wanted in FIXED["QUESTIONS"]:
        response = model.ask(text, tools=tools)
        if not response.tool_calls:
            assert response.content, text
            continue
        (call,) = response.tool_calls
        declared = next(tool for tool in tools if tool.name == call.name)
        jsonschema_rs.validate(declared.schema, json.loads(call.args))
        right += call.name == wanted
    # Twelve at the time of writing; processors round differently.
    assert right >= 8


def test_a_result_is_answered_in_words(model: Model, tools: tuple[ToolDeclaration, ...]) -> None:
    """Through the whole chain: a call, its result, and an answer whose words stream as they are."""

    async def converse() -> tuple[CompleteResponse, list[tuple[str, bool]]]:
        client = await open_llm(model.config, Deps(artifacts=MemoryArtifactStore(), bus=bus()))
        received: list[tuple[str, bool]] = []
        try:
            first = question("What is 17 * 23?", tools=tools[:2])
            call = (await client.complete(first)).tool_calls[0]
            said = ChatMessage(Role.ASSISTANT, tool_calls=[call])
            result = ChatMessage(Role.TOOL, Content("391"), tool_call_id=call.id)
            second = CompleteRequest(
                messages=[*first.messages, said, result],
                tools=tools[:2],
                stream=True,
                on_content=lambda delta, done: received.append((delta, done)),
            )
            return await client.complete(second), received
        finally:
            await client.close()

    response, received = model.run(converse())
    assert "391" in response.content
    assert "".join(delta for delta, _ in received) == response.content
    assert "{" not in response.content
    assert received[-1] == ("", True)


def bus() -> MemoryEventBus:
    """A bus of its own."""
    return MemoryEventBus(redactor=PatternRedactor())


def test_a_cancelled_call_gives_back_the_server(model: Model) -> None:
    """A client that hangs up stops the model, which is free for the next call."""

    async def give_up() -> None:
        begun = asyncio.Event()
        listener = {"stream": True, "on_content": lambda delta, done: begun.set()}
        call = asyncio.create_task(model.driver.complete(question("Tell a long story.", max_tokens=2_000, **listener)))
        await begun.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    model.run(give_up())
    # Each look goes through the server's queue, between two words of the story if there still were one.
    assert not all(any(slot.is_processing for slot in model.server._slots()) for _ in range(200))
    assert model.ask("Say hello.", max_tokens=2).content


def test_the_server_answers_only_with_its_key(model: Model) -> None:
    """It listens on the loopback address alone, shows no page, and answers no request without the key."""
    model.ask("Say hello.", max_tokens=1)
    address = urlsplit(model.server.address)
    assert address.hostname == "127.0.0.1"
    assert status(model.server, "GET", "/") == 404
    assert status(model.server, "POST", "/v1/chat/completions") == 401
    assert status(model.server, "GET", "/slots", "wrong") == 401


def status(server: LocalServer, method: str, path: str, key: str = "") -> int:
    """The status of a request."""
    connection = http.client.HTTPConnection(urlsplit(server.address).netloc, timeout=10)
    try:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        connection.request(method, path, body=b"{}" if method == "POST" else None, headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_closing_ends_the_call_and_the_server(model: Model, capfd: pytest.CaptureFixture[str]) -> None:
    """No thread and no port is left, a call under way ends as closed, and nothing was printed meanwhile."""
    threads = native_threads()
    second = model.open()

    async def close_while_busy() -> str:
        begun = asyncio.Event()
        listener = {"stream": True, "on_content": lambda delta, done: begun.set()}
        call = asyncio.create_task(second.complete(question("Tell a long story.", max_tokens=2_000, **listener)))
        await begun.wait()
        address = second._server.address
        await second.close()
        with pytest.raises(ClientClosedError):
            await call
        return address

    address = model.run(close_while_busy())
    with pytest.raises(ConnectionRefusedError):
        http.client.HTTPConnection(urlsplit(address).netloc, timeout=10).connect()
    # The loop's own helper threads stay.
    assert native_threads() <= threads + 4
    assert capfd.readouterr() == ("", "")


def native_threads() -> int:
    """How many threads this process has, those of the server included; 0 where that cannot be seen."""
    return len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 0


def test_a_file_that_is_no_model_is_named(tmp_path: Path, embedded: Path) -> None:
    """Weights that were cut off say so instead of ending the process."""
    cut = tmp_path / "cut.gguf"
    with embedded.open("rb") as whole:
        cut.write_bytes(whole.read(1 << 20))
    with pytest.raises(LocalServerError, match="cannot be served"):
        LocalServer(cut, context_tokens=256).start()
