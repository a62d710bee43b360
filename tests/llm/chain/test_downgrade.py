"""When a provider does not take a mode of structured output, a weaker one is tried."""

from __future__ import annotations

import asyncio

import pytest

from harborage.events import LLMModeDowngradedPayload, MemoryEventBus
from harborage.identity import Quadruple, bound
from harborage.llm import (
    BadRequestError,
    ChatMessage,
    ClientClosedError,
    CompleteRequest,
    CompleteResponse,
    ConfigSnapshot,
    Content,
    ContextLeakError,
    ContextWindowExceededError,
    Deps,
    DowngradeExhaustedError,
    InvalidJSONSchemaError,
    LLMConfigError,
    LLMError,
    ModelProfile,
    OutputMode,
    ProviderUnavailableError,
    RateLimitedError,
    ResponseFormat,
    ResponseFormatKind,
    Role,
    ToolsUnsupportedError,
)
from harborage.llm.chain.retry import (
    LADDERS,
    Downgrading,
    is_invalid_json_schema_error,
    shape_request,
    unwrap_answer,
)
from harborage.testing.clock import FakeClock
from harborage.testing.events import EventRecorder
from harborage.testing.llm import ScriptedLLM, says
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

WHO = Quadruple("t", "u", "s", "r")
MODEL = "m"
QUESTION = ChatMessage(Role.USER, Content(text="the question"))
SCHEMA = b'{ "type": "object",\n "properties": {"a": {"type": "integer"}} }'
COMPACT = '{"type":"object","properties":{"a":{"type":"integer"}}}'
FORMAT = ResponseFormat(ResponseFormatKind.JSON_SCHEMA, SCHEMA)
REFUSED = BadRequestError("response_format is not supported")


class Bench:
    """A downgrading client over a script, and its events."""

    def __init__(self, *script, mode: str = OutputMode.NATIVE) -> None:
        self.inner = ScriptedLLM(script)
        bus = MemoryEventBus()
        self.published = EventRecorder(bus)
        cfg = ConfigSnapshot(model=MODEL, profiles={MODEL: ModelProfile(context_window_tokens=9, output_mode=mode)})
        self.client = Downgrading(self.inner, cfg, Deps(artifacts=None, bus=bus, clock=FakeClock()))

    async def ask(self, **fields) -> CompleteResponse:
        """The answer to a question with a schema."""
        request = CompleteRequest(**{"messages": [QUESTION], "response_format": FORMAT, **fields})
        with bound(WHO):
            return await self.client.complete(request)

    @property
    def events(self) -> list[LLMModeDowngradedPayload]:
        return self.published.payloads(LLMModeDowngradedPayload)


# --- which failures count


@each_row(
    "text",
    [
        "Unknown parameter: JSON_SCHEMA",
        "bad JSON Schema",
        "invalid schema for x",
        "Schema validation failed",
        "response_format unsupported",
        "no response format",
        "Structured Output is off",
        "JSON mode needs the word json",
        "json_object only",
    ],
)
def test_texts_that_speak_of_schemas(text):
    """An error is of this class when its text names schemas or modes, in any case."""
    assert is_invalid_json_schema_error(Exception(text))
    assert is_invalid_json_schema_error(BadRequestError(text))
    assert is_invalid_json_schema_error(ProviderUnavailableError(text))


def test_no_error_and_other_errors():
    """Nothing is no such error, nor is one that speaks of something else."""
    assert not is_invalid_json_schema_error(None)
    assert not is_invalid_json_schema_error(Exception("the moon is full"))
    assert not is_invalid_json_schema_error(BadRequestError("temperature out of range"))


def test_the_sentinel_among_the_causes():
    """An error that was raised from an InvalidJSONSchemaError counts with any text."""
    outer = LLMError("call failed")
    outer.__cause__ = RuntimeError("wrapped")
    outer.__cause__.__cause__ = InvalidJSONSchemaError("no")
    assert is_invalid_json_schema_error(outer)
    assert is_invalid_json_schema_error(InvalidJSONSchemaError())


def test_the_text_among_the_causes():
    """The text of a cause counts as well."""
    outer = LLMError("call failed")
    outer.__cause__ = RuntimeError("response_format?")
    assert is_invalid_json_schema_error(outer)


def test_a_chain_that_bites_its_tail():
    """Causes that form a ring are walked once."""
    one, other = RuntimeError("a"), RuntimeError("b")
    one.__cause__, other.__cause__ = other, one
    assert not is_invalid_json_schema_error(one)


@each_row("kind", [RateLimitedError, ToolsUnsupportedError, ContextLeakError, ContextWindowExceededError])
def test_an_error_whose_class_says_otherwise(kind):
    """A rate limit that mentions JSON mode is a rate limit."""
    error = kind("json mode is slow today")
    assert not is_invalid_json_schema_error(error)


# --- what a request looks like in each mode


def test_native_is_the_request_itself():
    """Native mode sends what was asked for."""
    request = CompleteRequest(messages=[QUESTION], response_format=FORMAT)
    assert shape_request(request, OutputMode.NATIVE) is request


@each_row(
    "mode, kind, words",
    [
        (OutputMode.TOOLS, ResponseFormatKind.JSON_OBJECT, ("only", '{"name":"respond_with","arguments":')),
        (OutputMode.PROMPTED, ResponseFormatKind.JSON_OBJECT, ("only", "JSON")),
        (OutputMode.TEXT, None, ("where that comes naturally", "plain text will do")),
    ],
)
def test_the_other_modes(mode, kind, words):
    """Each weaker mode puts a system message with the compact schema in front, and asks for less."""
    made = shape_request(CompleteRequest(messages=[QUESTION], response_format=FORMAT), mode)
    instruction, question = made.messages
    assert question is QUESTION
    assert instruction.role is Role.SYSTEM
    for word in (*words, COMPACT):
        assert word in (instruction.content.text or "")
    assert (made.response_format and made.response_format.kind) == kind
    assert made.response_format is None or made.response_format.json_schema == b""


@each_row("mode", [OutputMode.TOOLS, OutputMode.PROMPTED, OutputMode.TEXT])
def test_without_a_schema_nothing_is_added(mode):
    """A request for any JSON object gets no extra message in any mode."""
    request = CompleteRequest(messages=[QUESTION], response_format=ResponseFormat(ResponseFormatKind.JSON_OBJECT))
    assert shape_request(request, mode).messages == (QUESTION,)


def test_a_schema_that_is_no_json():
    """It is quoted as it is."""
    request = CompleteRequest(response_format=ResponseFormat(ResponseFormatKind.JSON_SCHEMA, b"{ not json \xff"))
    assert "{ not json �" in (shape_request(request, OutputMode.PROMPTED).messages[0].content.text or "")


def test_the_ladders():
    """Every mode steps down to plain text, in at most three attempts."""
    assert LADDERS == {
        "native": ("native", "prompted", "text"),
        "tools": ("tools", "prompted", "text"),
        "prompted": ("prompted", "text"),
        "text": ("text",),
    }


@each_row(
    "content, expected",
    [
        ('{"name":"respond_with","arguments":{"a": 1}}', '{"a": 1}'),
        ('{"a": 1}', '{"a": 1}'),
        ('{"name":"other","arguments":{}}', '{"name":"other","arguments":{}}'),
        ('{"name":"respond_with","arguments":{},"more":1}', '{"name":"respond_with","arguments":{},"more":1}'),
        ("plain", "plain"),
    ],
)
def test_the_wrapper_of_tools_mode_is_taken_off(content, expected):
    """The caller gets what is inside the wrapper it did not ask for; anything else stays."""
    assert unwrap_answer(says(content), OutputMode.TOOLS).content == expected
    assert unwrap_answer(says(content), OutputMode.PROMPTED).content == content


# --- the ladder


async def test_native_fails_and_prompted_succeeds():
    """Two calls and one event; the caller's messages stay as they were."""
    bench = Bench(REFUSED, '{"a":1}')
    messages = [QUESTION]
    assert (await bench.ask(messages=messages)).content == '{"a":1}'
    assert messages == [QUESTION]
    assert [len(request.messages) for request in bench.inner.requests] == [1, 2]
    [event] = bench.events
    assert (event.from_mode, event.to_mode) == ("native", "prompted")
    assert (event.from_, event.to) == ("json_schema", "json_object")
    assert (event.identity, event.model, event.reason) == (WHO, MODEL, str(REFUSED))


async def test_down_to_text():
    """Each step down is one event, and each shape is made from the original request."""
    bench = Bench(REFUSED, REFUSED, "plain", mode=OutputMode.TOOLS)
    assert (await bench.ask()).content == "plain"
    assert [(event.from_mode, event.to_mode) for event in bench.events] == [("tools", "prompted"), ("prompted", "text")]
    assert [(event.from_, event.to) for event in bench.events] == [
        ("json_object", "json_object"),
        ("json_object", "text"),
    ]
    assert [len(request.messages) for request in bench.inner.requests] == [2, 2, 2]
    assert bench.inner.requests[-1].response_format is None


async def test_every_mode_is_refused():
    """The error lists modes and errors; the final failure is no event."""
    long = BadRequestError("json_schema " + "z" * 500)
    bench = Bench(REFUSED, long, REFUSED)
    with pytest.raises(DowngradeExhaustedError) as caught:
        await bench.ask()
    text = str(caught.value)
    assert text.count("mode=") == 3
    assert "mode=native error=response_format is not supported" in text
    assert "z" * 148 + "…" in text
    assert "z" * 149 not in text
    assert caught.value.__cause__ is REFUSED
    assert len(bench.events) == 2
    assert len(bench.events[1].reason.encode()) == 256 + len("…".encode())


@each_row("error", [RateLimitedError("slow"), ContextLeakError("x", 9, 9), ContextWindowExceededError(9)])
async def test_other_errors_come_out_at_once(error):
    """Only a refused schema leads to another attempt; everything else is raised as it is."""
    bench = Bench(error, "never")
    with pytest.raises(type(error)) as caught:
        await bench.ask()
    assert caught.value is error
    assert len(bench.inner.requests) == 1


async def test_an_error_on_the_way_down():
    """An error of another kind ends the ladder at once."""
    bench = Bench(REFUSED, RateLimitedError("slow"), "never")
    with pytest.raises(RateLimitedError):
        await bench.ask()
    assert len(bench.events) == 1


@pytest.mark.parametrize("wanted", [None, ResponseFormat(ResponseFormatKind.TEXT)])
async def test_nothing_to_step_down_from(wanted):
    """Without a format, or for text, the request passes and its error too."""
    bench = Bench(REFUSED)
    with pytest.raises(BadRequestError):
        await bench.ask(response_format=wanted)
    assert bench.events == []


async def test_without_a_profile_or_a_mode():
    """A model that nothing is known of, and one whose mode is not set, get the request as it is."""
    for bench, model in ((Bench("ok"), "stranger"), (Bench("ok", mode=""), MODEL)):
        await bench.ask(model=model)
        assert bench.inner.requests[0].messages == (QUESTION,)
        assert bench.inner.requests[0].response_format == FORMAT


async def test_a_profile_in_prompted_mode_starts_there():
    """The first attempt is already shape_request by the profile's mode."""
    bench = Bench('{"a":1}', mode=OutputMode.PROMPTED)
    await bench.ask()
    assert bench.inner.requests[0].response_format == ResponseFormat(ResponseFormatKind.JSON_OBJECT)
    assert bench.events == []


async def test_nothing_is_remembered():
    """The next call starts at the profile's mode again."""
    bench = Bench(REFUSED, "1", "2")
    await bench.ask()
    await bench.ask()
    assert bench.inner.requests[2].response_format == FORMAT


async def test_cancelled_before_an_attempt():
    """A caller that was asked to stop gets no weaker attempt."""

    def refuse_and_cancel(request):
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        raise REFUSED

    bench = Bench(refuse_and_cancel, "never")
    task = asyncio.ensure_future(bench.ask())
    await asyncio.wait([task])
    assert task.cancelled()
    assert len(bench.inner.requests) == 1


async def test_streaming_listeners_get_a_reset():
    """What a refused attempt streamed is void before the next one begins, and `done` comes once."""

    def stream_and_refuse(request):
        request.on_content("half", False)
        request.on_content("", True)
        raise REFUSED

    received = []
    await Bench(stream_and_refuse, "whole").ask(
        stream=True,
        on_content=lambda delta, done: received.append("done" if done else delta),
        on_reset=lambda: received.append("reset"),
    )
    assert received == ["half", "reset", "whole", "done"]


async def test_many_at_once():
    """128 calls step down side by side, each with its own question and identity."""
    inner_answer = lambda request: says(request.messages[-1].content.text)  # noqa: E731
    bench = Bench(REFUSED, inner_answer)

    async def one(number: int) -> str:
        request = CompleteRequest(messages=[ChatMessage(Role.USER, Content(text=str(number)))], response_format=FORMAT)
        with bound(Quadruple("t", "u", "s", f"r-{number}")):
            return (await bench.client.complete(request)).content

    answers = await asyncio.gather(*(one(number) for number in range(128)))
    assert answers == [str(number) for number in range(128)]
    assert {event.identity.run_id for event in bench.events} == {f"r-{number}" for number in range(128)}


async def test_closing():
    """Closing closes the client inside, and nothing is asked afterwards; a layer around nothing is refused."""
    bench = Bench("ok")
    await bench.client.close()
    assert bench.inner.is_closed
    with pytest.raises(ClientClosedError):
        await bench.ask()
    with pytest.raises(LLMConfigError):
        Downgrading(None, ConfigSnapshot(), Deps(artifacts=None, bus=None))
