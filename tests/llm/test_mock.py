"""The mock makes up the same answer every time, and only when it is asked for by name."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage.artifacts import MemoryArtifactStore
from harborage.events import MemoryEventBus
from harborage.identity import Quadruple, bound
from harborage.llm import (
    ChatMessage,
    ClientClosedError,
    CompleteRequest,
    CompleteResponse,
    ConfigSnapshot,
    Content,
    Deps,
    IdentityMissingError,
    ImagePart,
    LLMConfigError,
    Role,
    TextPart,
)
from harborage.llm.mock import MockLLM, MockOptions, make
from harborage.testing.clock import FakeClock, settle
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

WHO = Quadruple("t", "u", "s", "r")
IMAGE = ImagePart(url="https://x/y.png")


def deps(clock: FakeClock | None = None) -> Deps:
    """What a driver works with."""
    return Deps(artifacts=MemoryArtifactStore(), bus=MemoryEventBus(), clock=clock or FakeClock())


async def ask(*messages: ChatMessage, mock: MockLLM | None = None, **fields) -> CompleteResponse:
    """The mock's answer."""
    with bound(WHO):
        return await (mock or MockLLM(deps())).complete(CompleteRequest(messages=messages, **fields))


def says(text: str, role: Role = Role.USER) -> ChatMessage:
    """A message of text."""
    return ChatMessage(role, Content(text))


@each_row(
    "messages, answer",
    [
        ([says("one"), says("two"), says("three", Role.ASSISTANT)], "mock:two"),
        ([ChatMessage(Role.USER, Content(parts=[IMAGE, TextPart("a"), TextPart("b")]))], "mock:a"),
        ([says("one"), ChatMessage(Role.USER, Content(parts=[IMAGE]))], "mock:multimodal"),
        ([says("be brief", Role.SYSTEM)], "mock:empty"),
        ([], "mock:empty"),
        ([says("")], "mock:"),
    ],
)
async def test_it_echoes_the_last_user(messages, answer: str) -> None:
    """Its text, else its first text part, else what there was instead."""
    assert (await ask(*messages)).content == answer


async def test_a_synthetic_answer_replaces_the_echo() -> None:
    """A synthetic answer replaces the echo; an empty one is an answer too."""
    for text in ("hello", ""):
        assert (await ask(says("one"), mock=MockLLM(deps(), MockOptions(synthetic_content=text)))).content == text


async def test_cost_and_usage_are_counted_in_characters() -> None:
    """A millionth an input character, two an output character; four characters are a token; it took a millisecond."""
    asked = [says("x" * 10, Role.SYSTEM), ChatMessage(Role.USER, Content(parts=[TextPart("y" * 10), IMAGE]))]
    answer = await ask(*asked)
    assert answer.content == "mock:" + "y" * 10
    cost, usage = answer.cost, answer.usage
    assert cost.input_cost == pytest.approx(20e-6)
    assert cost.output_cost == pytest.approx(30e-6)
    assert (cost.total_cost, cost.currency) == (pytest.approx(50e-6), "USD")
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens, usage.latency_ms) == (5, 3, 8, 1)
    assert await ask(*asked) == answer


@given(st.text(max_size=30), st.integers(-1, 8))
def test_a_stream_is_the_answer_in_pieces(text: str, most: int) -> None:
    """At most so many pieces, none empty, nearly of one length; together exactly the content; then `done`, once."""
    received: list[tuple[str, bool]] = []
    mock = MockLLM(deps(), MockOptions(synthetic_content=text, stream_chunks=most))
    answer = asyncio.run(ask(says("x"), mock=mock, stream=True, on_content=lambda *delta: received.append(delta)))
    *pieces, last = received
    assert last == ("", True)
    assert "".join(piece for piece, _ in pieces) == answer.content == text
    assert len(pieces) == min(len(text), most if most > 0 else 4)
    lengths = [len(piece) for piece, _ in pieces]
    assert not lengths or max(lengths) - min(lengths) <= 1
    assert not any(done for _, done in pieces)


async def test_a_stream_thinks_first() -> None:
    """The reasoning callback gets one delta and `done`."""
    received: list[tuple[str, bool]] = []
    answer = await ask(says("x"), stream=True, on_reasoning=lambda *delta: received.append(delta))
    assert received == [("mock-thinking", False), ("", True)]
    assert answer.reasoning == "mock-thinking"


async def test_nothing_is_streamed_unasked() -> None:
    """Without `stream` the callbacks get nothing."""
    received: list[object] = []
    await ask(says("x"), on_content=lambda *delta: received.append(delta), on_reasoning=lambda *d: received.append(d))
    assert not received


async def test_a_forced_error_is_raised_as_it_is() -> None:
    """The very same object, each time; the callback gets `done`."""
    error, received = ZeroDivisionError("on purpose"), []
    mock = MockLLM(deps(), MockOptions(forced_error=error))
    for _ in range(2):
        with pytest.raises(ZeroDivisionError) as caught:
            await ask(says("x"), mock=mock, stream=True, on_content=lambda *delta: received.append(delta))
        assert caught.value is error
    assert received == [("", True)] * 2


async def test_identities_are_seen() -> None:
    """The callback gets the identity of each call; no identity is refused."""
    seen: list[Quadruple] = []
    mock = MockLLM(deps(), MockOptions(seen_identity=seen.append))
    await ask(says("x"), mock=mock)
    assert seen == [WHO]
    with pytest.raises(IdentityMissingError):
        await mock.complete(CompleteRequest())


async def test_a_delay_runs_on_the_clock_and_can_be_cancelled() -> None:
    """The answer comes when the time is up; a cancelled call raises the cancellation as it is."""
    clock = FakeClock()
    mock = MockLLM(deps(clock), MockOptions(pre_stream_delay_s=5))
    calls = [asyncio.ensure_future(ask(says("x"), mock=mock)) for _ in range(2)]
    await settle()
    calls[0].cancel()
    await clock.run_for(4)
    assert not calls[1].done()
    await clock.run_for(1)
    assert (await calls[1]).content == "mock:x"
    with pytest.raises(asyncio.CancelledError):
        await calls[0]


async def test_closing() -> None:
    """A closed mock answers nothing; closing twice does nothing."""
    mock = MockLLM(deps())
    await mock.close()
    await mock.close()
    with pytest.raises(ClientClosedError):
        await ask(says("x"), mock=mock)


async def test_options_come_from_the_configuration() -> None:
    """`extra` speaks the words of the options; an error may be given as a text."""
    mock = make(ConfigSnapshot(extra={"synthetic_content": "hello", "stream_chunks": None}), deps())
    assert (await ask(says("x"), mock=mock)).content == "hello"
    with pytest.raises(ConnectionError, match="no line"):
        await ask(says("x"), mock=make(ConfigSnapshot(extra={"forced_error": "no line"}), deps()))


@each_row(
    "extra, text",
    [
        ({"content": "x"}, r"llm\.extra has no content; the mock knows synthetic_content"),
        ({"stream_chunks": "many"}, r"llm\.extra\.stream_chunks is a str"),
        ({"synthetic_content": 3}, r"llm\.extra\.synthetic_content is a int"),
    ],
)
def test_an_option_that_is_none_is_refused(extra: dict, text: str) -> None:
    """Unknown names and wrong types are refused when the mock is opened."""
    with pytest.raises(LLMConfigError, match=text):
        make(ConfigSnapshot(extra=extra), deps())
