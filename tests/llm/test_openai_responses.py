"""The driver for OpenAI's Responses API: what it sends, what it reads, and every promise of a provider."""

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
    ReasoningEffort,
    ResponseFormat,
    ResponseFormatKind,
    Role,
    TextPart,
    ToolCallStructured,
    ToolChoice,
    ToolDeclaration,
)
from harborage.llm.openai_responses import ResponseReader, build_body, make
from harborage.llm.streaming import AnswerBuilder
from harborage.testing.conformance.llm import SCENARIOS, check
from harborage.testing.conformance.llm_bench import KEY, Ability, ProviderBench
from tests.kit.llm_dialects.responses import ResponsesDialect
from tests.kit.llm_server import LLMServer
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

PNG = "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n....").decode()
PDF = "data:application/pdf;base64," + base64.b64encode(b"%PDF-1.7").decode()
ADD = ToolDeclaration("add", "Add.", {"type": "object", "properties": {"a": {"type": "integer"}}})
CALLS = (ToolCallStructured("call_1", "add", b'{"a":1}'), ToolCallStructured("call_2", "add", b'{"a":2}', 1))


def body(model: str = "gpt-5", *messages: ChatMessage, **fields) -> dict:
    """The body for a request with these messages."""
    request = CompleteRequest(messages=messages or (ChatMessage(Role.USER, Content("Hi")),), **fields)
    return build_body(request, model, provider="openai", max_tokens=fields.get("max_tokens"))


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_a_provider_keeps_its_promises(scenario):
    """Each scenario of the suite holds against a server that speaks the protocol over loopback."""

    async def open_bench() -> ProviderBench:
        def config(url: str) -> ConfigSnapshot:
            return ConfigSnapshot(model="gpt-5", api_key=KEY, base_url=url)

        return await ProviderBench.open(
            make, LLMServer(ResponsesDialect()), config, without={Ability.PROVIDER_COST, Ability.STOPS}
        )

    await check(scenario, open_bench)


def test_a_history_becomes_input_items():
    """Calls and their answers are items of their own, paired by the call's id; nothing is stored with the provider."""
    sent = body(
        "gpt-5",
        ChatMessage(Role.SYSTEM, Content("Be brief.")),
        ChatMessage(Role.USER, Content("Add.")),
        ChatMessage(Role.ASSISTANT, Content("Both."), tool_calls=CALLS),
        ChatMessage(Role.TOOL, Content("one"), tool_call_id="call_1"),
        ChatMessage(Role.TOOL, Content(parts=[TextPart("two"), ImagePart(data_url=PNG)]), tool_call_id="call_2"),
        ChatMessage(Role.TOOL, Content("of nobody")),
    )
    assert sent == {
        "model": "gpt-5",
        "store": False,
        "input": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Add."},
            {"role": "assistant", "content": "Both."},
            {"type": "function_call", "call_id": "call_1", "name": "add", "arguments": '{"a":1}'},
            {"type": "function_call", "call_id": "call_2", "name": "add", "arguments": '{"a":2}'},
            {"type": "function_call_output", "call_id": "call_1", "output": "one"},
            {
                "type": "function_call_output",
                "call_id": "call_2",
                "output": [
                    {"type": "input_text", "text": "two"},
                    {"type": "input_image", "image_url": PNG, "detail": "auto"},
                ],
            },
            {"role": "user", "content": "of nobody"},
        ],
    }


def test_media_become_parts():
    """Pictures and files go inline or by address, and what is kept elsewhere goes as the text of its stub."""
    stub = ArtifactStub("art_1", "image/png", 99)
    parts = [
        ImagePart(url="https://example.org/a.png", detail="low"),
        FilePart(data_url=PDF, filename="a.pdf"),
        FilePart(url="https://example.org/b.pdf"),
        ImagePart(artifact=stub),
    ]
    (item,) = body("gpt-5", ChatMessage(Role.USER, Content(parts=parts)))["input"]
    assert item["content"] == [
        {"type": "input_image", "image_url": "https://example.org/a.png", "detail": "low"},
        {"type": "input_file", "filename": "a.pdf", "file_data": PDF},
        {"type": "input_file", "file_url": "https://example.org/b.pdf"},
        {"type": "input_text", "text": stub.text()},
    ]


def test_a_recording_is_refused():
    """The API takes no audio, and the error says so before anything is sent."""
    with pytest.raises(InvalidContentError, match="openai takes no audio"):
        body("gpt-5", ChatMessage(Role.USER, Content(parts=[AudioPart(url="https://example.org/a.wav")])))


def test_tools_and_their_choice():
    """Tools are functions; parallel calls are spoken of when they are wanted or when a choice is made."""
    sent = body(tools=[ADD], tool_choice=ToolChoice.REQUIRED)
    assert sent["tools"] == [
        {"type": "function", "name": "add", "description": "Add.", "parameters": ADD.schema, "strict": False}
    ]
    assert (sent["tool_choice"], sent["parallel_tool_calls"]) == ("required", False)
    assert "parallel_tool_calls" not in body(tools=[ADD])
    assert body(tools=[ADD], parallel_tool_calls=True)["parallel_tool_calls"] is True
    assert not {"tool_choice", "parallel_tool_calls"} & set(body(tool_choice=ToolChoice.AUTO, parallel_tool_calls=True))


@each_row(
    "model, effort, sent",
    [
        ("gpt-5", ReasoningEffort.HIGH, {"effort": "high", "summary": "auto"}),
        ("gpt-5", ReasoningEffort.UNSET, None),
        ("gpt-5", ReasoningEffort.OFF, {"effort": "minimal"}),
        ("o4-mini", ReasoningEffort.OFF, {"effort": "low"}),
        ("gpt-5.6", ReasoningEffort.OFF, {"effort": "none"}),
        ("gpt-4o", ReasoningEffort.OFF, None),
        ("gpt-4o", ReasoningEffort.LOW, None),
    ],
)
def test_how_much_a_model_thinks(model, effort, sent):
    """The effort is sent to models that think; the lowest of each family replaces none."""
    assert body(model, reasoning_effort=effort).get("reasoning") == sent


def test_an_effort_among_the_extra_fields_is_an_effort():
    """A correction that routes the effort through `extra` reaches the same field; the rest goes through as it is."""
    sent = body(extra={"reasoning_effort": "low", "user": "me"})
    assert (sent["reasoning"]["effort"], sent["user"]) == ("low", "me")
    assert "reasoning_effort" not in sent


def test_a_thinking_model_gets_no_temperature():
    """Models that think refuse a temperature, so it is sent only to others, or when thinking is switched off."""
    assert "temperature" not in body(temperature=0.0)
    assert body("gpt-4o", temperature=0.0)["temperature"] == 0.0
    assert body("gpt-5.6", temperature=0.5, reasoning_effort=ReasoningEffort.OFF)["temperature"] == 0.5


def test_a_schema_is_strict_when_it_can_be():
    """The provider is to hold its model to a schema whose objects are closed and whose properties are required."""
    strict = b'{"type":"object","properties":{"a":{}},"required":["a"],"additionalProperties":false,"strict":true}'
    sent = body(response_format=ResponseFormat(ResponseFormatKind.JSON_SCHEMA, strict))["text"]["format"]
    assert (sent["type"], sent["name"], sent["strict"]) == ("json_schema", "answer", True)
    assert "strict" not in sent["schema"]
    loose = ResponseFormat(ResponseFormatKind.JSON_SCHEMA, b'{"type":"object","properties":{"a":{}}}')
    assert body(response_format=loose)["text"]["format"]["strict"] is False
    plain = ResponseFormat(ResponseFormatKind.JSON_OBJECT)
    assert body(response_format=plain)["text"] == {"format": {"type": "json_object"}}


def read(*events: dict):
    """The answer that these events make."""
    answer = AnswerBuilder(CompleteRequest(stream=True), provider="openai")

    def wrong(data: bytes, model: str) -> Exception:
        return AssertionError(data)

    reading = ResponseReader(answer, wrong, wrong, model="gpt-5")
    for event in events:
        reading.read_event(msgspec.json.encode(event))
    return answer.answer()


def test_arguments_that_come_only_at_the_end_are_kept():
    """A server that sends a call in one piece, without deltas, loses nothing."""
    item = {"type": "function_call", "id": "fc", "call_id": "c", "name": "add", "arguments": '{"a":1}'}
    done = {"type": "response.completed", "response": {"status": "completed", "output": [item]}}
    answer = read({"type": "response.output_item.done", "output_index": 0, "item": item}, done)
    assert [(call.id, call.name, call.args) for call in answer.tool_calls] == [("c", "add", b'{"a":1}')]
    assert answer.finish_reason == "tool_calls"


def test_summaries_are_paragraphs_and_messages_too():
    """Several summaries of thinking are joined by a blank line, and so are several messages."""
    answer = read(
        {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "One"},
        {"type": "response.reasoning_summary_text.done", "output_index": 0, "text": "One"},
        {"type": "response.reasoning_summary_text.done", "output_index": 0, "text": "Two"},
        {"type": "response.output_text.delta", "output_index": 1, "delta": "Let me see."},
        {"type": "response.output_text.delta", "output_index": 2, "delta": "Done."},
        {"type": "response.completed", "response": {"status": "completed"}},
    )
    assert (answer.reasoning, answer.content) == ("One\n\nTwo", "Let me see.\n\nDone.")


def test_what_a_refusal_and_a_cut_are_called():
    """A model that declines ends as `content_filter`, one that is cut short as `length`; the words are kept."""
    refusal = {"type": "response.refusal.delta", "output_index": 0, "delta": "No."}
    declined = read(refusal, {"type": "response.completed", "response": {"status": "completed"}})
    assert (declined.content, declined.finish_reason) == ("No.", "content_filter")
    details = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    assert read({"type": "response.incomplete", "response": details}).finish_reason == "length"


def test_cached_tokens_are_reported():
    """What was read from a cache is counted among the tokens of the prompt, and reported beside them."""
    usage = {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 8},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 15,
    }
    counted = read({"type": "response.completed", "response": {"status": "completed", "usage": usage}}).usage
    assert (counted.prompt_tokens, counted.completion_tokens, counted.reasoning_tokens) == (10, 5, 3)
    assert counted.provider_extras == {"cached_tokens": 8}


def test_a_driver_without_a_key_is_not_made(monkeypatch):
    """The error names the variable to set."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(MissingAPIKeyError, match="OPENAI_API_KEY"):
        make(ConfigSnapshot(model="gpt-5"), Deps(artifacts=None, bus=None))
