"""The driver for Anthropic's Messages API: what it sends, what it reads, and every promise of a provider."""

from __future__ import annotations

import base64

import msgspec
import pytest

from harborage.llm import (
    ArtifactStub,
    AudioPart,
    ChatMessage,
    CompleteRequest,
    ConfigSnapshot,
    Content,
    Deps,
    FilePart,
    ImagePart,
    InvalidContentError,
    MissingAPIKeyError,
    ProviderUnavailableError,
    ReasoningEffort,
    ResponseFormat,
    ResponseFormatKind,
    Role,
    TextPart,
    ToolCallStructured,
    ToolChoice,
    ToolDeclaration,
)
from harborage.llm.anthropic import ResponseReader, make
from harborage.llm.anthropic.request import ANSWER_TOOL, Quirks, build_body, quirks_of
from harborage.llm.http_errors import error_in_stream
from harborage.llm.streaming import AnswerBuilder
from harborage.testing.conformance.llm import SCENARIOS, check
from harborage.testing.conformance.llm_bench import KEY, Ability, ProviderBench
from tests.kit.llm_dialects.anthropic import MessagesDialect
from tests.kit.llm_server import LLMServer
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

OLD, NEW, NEWEST = "claude-sonnet-4-5", "claude-opus-4-7", "claude-opus-5-5"
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n....").decode()
PDF = base64.b64encode(b"%PDF-1.7").decode()
ADD = ToolDeclaration("add", "Add.", {"type": "object", "properties": {"a": {"type": "integer"}}})
CALLS = (ToolCallStructured("call_1", "add", b'{"a":1}'), ToolCallStructured("call|2", "add", b'{"a":2', 1))
HELLO = ChatMessage(Role.USER, Content("Hi"))
CACHED = {"type": "ephemeral"}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


def body(model: str = OLD, *messages: ChatMessage, **fields) -> dict:
    """The body for a request with these messages."""
    request = CompleteRequest(messages=messages or (HELLO,), **fields)
    return build_body(request, model, provider="anthropic", max_tokens=fields.get("max_tokens"))


def text(what: str, **more) -> dict:
    return {"type": "text", "text": what, **more}


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_a_provider_keeps_its_promises(scenario):
    """Each scenario of the suite holds against a server that speaks the protocol over loopback."""

    async def open_bench() -> ProviderBench:
        def config(url: str) -> ConfigSnapshot:
            return ConfigSnapshot(model=OLD, api_key=KEY, base_url=url)

        return await ProviderBench.open(make, LLMServer(MessagesDialect()), config, without={Ability.PROVIDER_COST})

    await check(scenario, open_bench)


def test_a_history_becomes_turns():
    """All answers to one turn's calls stand in one user message, before what the user says next."""
    sent = body(
        OLD,
        ChatMessage(Role.SYSTEM, Content("Be brief.")),
        ChatMessage(Role.SYSTEM, Content("Be kind.")),
        ChatMessage(Role.USER, Content("Add.")),
        ChatMessage(Role.ASSISTANT, Content("Both."), tool_calls=CALLS),
        ChatMessage(Role.TOOL, Content("one"), tool_call_id="call_1"),
        ChatMessage(Role.TOOL, Content(""), tool_call_id="call|2"),
        ChatMessage(Role.SYSTEM, Content("Now be quick.")),
        ChatMessage(Role.USER, Content("And?")),
    )
    assert sent["system"] == [text("Be brief."), text("Be kind.", cache_control=CACHED), text("Now be quick.")]
    assert sent["messages"] == [
        {"role": "user", "content": [text("Add.")]},
        {
            "role": "assistant",
            "content": [
                text("Both."),
                {"type": "tool_use", "id": "call_1", "name": "add", "input": {"a": 1}},
                {"type": "tool_use", "id": "call_2", "name": "add", "input": {"malformed": '{"a":2'}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "call_1", "content": [text("one")]},
                {"type": "tool_result", "tool_use_id": "call_2"},
                text("And?"),
            ],
        },
    ]
    assert (sent["max_tokens"], "thinking" in sent, "stream" in sent) == (8192, False, False)


def test_a_conversation_begins_and_ends_with_the_user():
    """A history that does not is completed, and text that shows nothing is left out, as the API refuses both."""
    assistant = ChatMessage(Role.ASSISTANT, Content("I said."))
    go_on = {"role": "user", "content": [text("Continue.")]}
    said = {"role": "assistant", "content": [text("I said.")]}
    assert body(OLD, assistant)["messages"] == [go_on, said, go_on]
    blank = ChatMessage(Role.USER, Content(" \n"))
    assert body(OLD, HELLO, blank, assistant, HELLO)["messages"][0] == {"role": "user", "content": [text("Hi")]}
    assert body(OLD, ChatMessage(Role.SYSTEM, Content("Only this.")))["messages"] == [go_on]


def test_media_become_blocks():
    """Pictures and documents go inline or by address, and what is kept elsewhere goes as the text of its stub."""
    stub = ArtifactStub("art_1", "image/png", 99)
    parts = [
        ImagePart(data_url=f"data:image/png;base64,{PNG}"),
        ImagePart(url="https://example.org/a.png"),
        FilePart(data_url=f"data:application/pdf;base64,{PDF}", filename="a.pdf"),
        FilePart(data_url="data:text/csv;base64," + base64.b64encode("a;ü".encode()).decode()),
        TextPart("What is this?"),
        ImagePart(artifact=stub),
    ]
    (turn,) = body(OLD, ChatMessage(Role.USER, Content(parts=parts)))["messages"]
    assert turn["content"] == [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
            "title": "a.pdf",
        },
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a;ü"}},
        text("What is this?"),
        text(stub.text()),
    ]


@pytest.mark.parametrize(
    "part", [AudioPart(url="https://example.org/a.wav"), FilePart(data_url="data:application/zip;base64,UEs=")]
)
def test_other_media_are_refused(part):
    """What the API has no place for is an error that says so before anything is sent."""
    with pytest.raises(InvalidContentError, match="anthropic takes no"):
        body(OLD, ChatMessage(Role.USER, Content(parts=[part])))


@each_row(
    "effort, budget",
    [(ReasoningEffort.LOW, 1024), (ReasoningEffort.MEDIUM, 4096), (ReasoningEffort.HIGH, 16384)],
)
def test_an_effort_is_a_budget_of_the_older_models(effort, budget):
    """The answer's own length comes on top of the budget, and no temperature is sent beside thinking."""
    sent = body(OLD, reasoning_effort=effort, max_tokens=100, temperature=0.0)
    assert sent["thinking"] == {"type": "enabled", "budget_tokens": budget}
    assert (sent["max_tokens"], "temperature" in sent) == (budget + 100, False)


def test_an_effort_is_an_effort_of_the_newer_models():
    """Models that decide for themselves how long to think get an effort, and are asked for a summary."""
    sent = body(NEW, reasoning_effort=ReasoningEffort.HIGH, temperature=0.0)
    assert sent["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert (sent["output_config"], sent["max_tokens"], "temperature" in sent) == ({"effort": "high"}, 32_000, False)


def test_thinking_is_off_where_the_api_would_refuse_it():
    """A budget is not sent while the model goes on with a turn of calls, nor where a tool is forced."""
    history = (HELLO, ChatMessage(Role.ASSISTANT, tool_calls=CALLS[:1]), _answer("call_1"))
    high = ReasoningEffort.HIGH
    assert body(OLD, *history, reasoning_effort=high)["thinking"] == {"type": "disabled"}
    assert body(NEW, *history, reasoning_effort=high)["thinking"]["type"] == "adaptive"
    later = (*history, ChatMessage(Role.ASSISTANT, Content("Two.")), HELLO)
    assert body(OLD, *later, reasoning_effort=high)["thinking"]["type"] == "enabled"
    forced = body(OLD, reasoning_effort=high, tools=[ADD], tool_choice=ToolChoice.REQUIRED)
    assert forced["thinking"] == {"type": "disabled"}


def _answer(call_id: str) -> ChatMessage:
    return ChatMessage(Role.TOOL, Content("2"), tool_call_id=call_id)


@each_row(
    "model, sent",
    [
        (OLD, {"thinking": {"type": "disabled"}}),
        (NEW, {"thinking": {"type": "disabled"}}),
        ("claude-sonnet-5-5", {"thinking": {"type": "between_tools"}}),
        (NEWEST, {"output_config": {"effort": "low"}}),
    ],
)
def test_thinking_is_switched_off_in_each_model_s_way(model, sent):
    """Some models have another word for it, and some cannot stop; those are asked for the least."""
    wanted = body(model, reasoning_effort=ReasoningEffort.OFF)
    assert {name: wanted.get(name) for name in sent} == sent


def test_tools_and_their_choice():
    """One call at a time unless parallel ones are wanted; models that cannot be forced are left to choose."""
    sent = body(OLD, tools=[ADD, ToolDeclaration("now")], tool_choice=ToolChoice.REQUIRED)
    assert sent["tools"] == [
        {"name": "add", "description": "Add.", "input_schema": ADD.schema},
        {"name": "now", "description": "", "input_schema": {"type": "object"}},
    ]
    assert sent["tool_choice"] == {"type": "any", "disable_parallel_tool_use": True}
    several = body(OLD, tools=[ADD], tool_choice=ToolChoice.AUTO, parallel_tool_calls=True)
    assert several["tool_choice"] == {"type": "auto"}
    assert body(OLD, tools=[ADD], tool_choice=ToolChoice.NONE)["tool_choice"] == {"type": "none"}
    assert body(NEWEST, tools=[ADD], tool_choice=ToolChoice.REQUIRED)["tool_choice"]["type"] == "auto"
    assert "tool_choice" not in body(OLD, tools=[ADD])
    assert "tools" not in body(OLD)


@pytest.mark.parametrize(
    "fields",
    [
        {"extra": {"anthropic_tool_schema": SCHEMA}},
        {"response_format": ResponseFormat(ResponseFormatKind.JSON_SCHEMA, msgspec.json.encode(SCHEMA))},
    ],
)
def test_a_schema_is_the_input_of_a_forced_tool(fields):
    """However the schema arrives, the model must call the answer tool, or one of the tools beside it."""
    sent = body(OLD, **fields)
    assert sent["tool_choice"] == {"type": "tool", "name": ANSWER_TOOL, "disable_parallel_tool_use": True}
    assert [tool["input_schema"] for tool in sent["tools"]] == [SCHEMA]
    assert "anthropic_tool_schema" not in sent
    assert body(OLD, tools=[ADD], **fields)["tool_choice"]["type"] == "any"
    newest = body(NEWEST, **fields)
    closed = {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False}
    assert newest["output_config"] == {"format": {"type": "json_schema", "schema": closed}}
    assert "tools" not in newest


@each_row(
    "model, quirks",
    [
        ("claude-3-haiku-20240307", Quirks(max_tokens=4096)),
        ("claude-3-7-sonnet-20250219", Quirks()),
        ("claude-opus-4-20250514", Quirks()),
        ("claude-haiku-4-5-20251001", Quirks()),
        ("anthropic/claude-sonnet-4.6", Quirks(decides_itself=True, max_tokens=32_000)),
        ("claude-haiku-5-5", Quirks(decides_itself=True, takes_temperature=False, max_tokens=32_000)),
        (
            "claude-fable-5-1",
            Quirks(decides_itself=True, off="", takes_temperature=False, can_be_forced=False, max_tokens=32_000),
        ),
        ("somebody-else", Quirks()),
    ],
)
def test_quirks_are_read_off_the_name(model, quirks):
    """A family and a version are found in the names of providers and of gateways; a date is no version."""
    assert quirks_of(model) == quirks


def reader() -> tuple[AnswerBuilder, ResponseReader]:
    answer = AnswerBuilder(CompleteRequest(stream=True), provider="anthropic")

    def broke_off(data: bytes, model: str) -> Exception:
        return error_in_stream(data, provider="anthropic", model=model)

    return answer, ResponseReader(answer, broke_off, broke_off, model=OLD)


def read(*events: dict):
    """The answer that these events make."""
    answer, reading = reader()
    for event in events:
        reading.read_event(msgspec.json.encode(event))
    return answer.answer()


ENDED = {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}}


def test_the_input_of_the_answer_tool_is_the_answer():
    """The input of the answer tool is streamed as text, and is no tool call."""
    block = {"type": "tool_use", "id": "t", "name": ANSWER_TOOL, "input": {}}
    answer = read(
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": '{"a"'}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": ":1}"}},
        {"type": "content_block_stop", "index": 0},
        ENDED,
    )
    assert (answer.content, answer.tool_calls, answer.finish_reason) == ('{"a":1}', (), "stop")


def test_a_call_without_arguments_is_an_empty_object():
    """A model that streams no input at all calls the tool with nothing."""
    block = {"type": "tool_use", "id": "t", "name": "now", "input": {}}
    start = {"type": "content_block_start", "index": 1, "content_block": block}
    answer = read(start, {"type": "content_block_stop", "index": 1}, ENDED)
    assert [(call.id, call.args) for call in answer.tool_calls] == [("t", b"{}")]
    assert answer.finish_reason == "tool_calls"


def test_what_a_cache_read_and_kept_is_counted():
    """The prompt counts all of it; tokens read from and written to the cache are reported beside it."""
    started = {"input_tokens": 3, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 100, "output_tokens": 1}
    usage = read({"type": "message_start", "message": {"usage": started}}, ENDED).usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (123, 9, 132)
    assert usage.provider_extras == {"cache_creation_input_tokens": 20, "cache_read_input_tokens": 100}


@each_row(
    "word, reason",
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("refusal", "content_filter"),
        ("pause_turn", "pause_turn"),
    ],
)
def test_why_an_answer_ended(word, reason):
    """The provider's words become the common ones; one without a common word stays."""
    assert read({"type": "message_delta", "delta": {"stop_reason": word}}).finish_reason == reason


def test_an_overloaded_provider_says_so_in_the_stream():
    """An error inside a stream that began well is an error that may be tried again."""
    _, reading = reader()
    event = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    with pytest.raises(ProviderUnavailableError, match="Overloaded"):
        reading.read_event(msgspec.json.encode(event))


def test_a_driver_without_a_key_is_not_made(monkeypatch):
    """The error names the variable to set."""
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(MissingAPIKeyError, match="ANTHROPIC_API_KEY"):
        make(ConfigSnapshot(model=OLD), Deps(artifacts=None, bus=None))
