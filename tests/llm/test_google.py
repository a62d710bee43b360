"""The driver for Google's Gemini API: what it sends, what it reads, and every promise of a provider."""

from __future__ import annotations

import base64
from types import SimpleNamespace

import pytest

from harborage.llm import (
    ChatMessage,
    CompleteRequest,
    ConfigSnapshot,
    Content,
    Deps,
    FilePart,
    ImagePart,
    MalformedAnswerError,
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
from harborage.llm.google import ResponseReader, make
from harborage.llm.google.request import Call, accepted_schema, build_call
from harborage.llm.streaming import AnswerBuilder
from harborage.testing.conformance.llm import SCENARIOS, check
from harborage.testing.conformance.llm_bench import KEY, Ability, ProviderBench
from tests.kit.llm_dialects.gemini import GeminiDialect
from tests.kit.llm_server import LLMServer
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n....").decode()
ADD = ToolDeclaration("add", "Add.", {"type": "object", "properties": {"a": {"type": "integer", "default": 1}}})
CALLS = (ToolCallStructured("call_1", "add", b'{"a":1}'), ToolCallStructured("call_2", "sub", b'{"a":2}', 1))
HELLO = ChatMessage(Role.USER, Content("Hi"))


def call(model: str = "gemini-2.5-flash", *messages: ChatMessage, **fields) -> Call:
    """The call for a request with these messages."""
    request = CompleteRequest(messages=messages or (HELLO,), **fields)
    return build_call(request, model, provider="google", max_tokens=fields.get("max_tokens"))


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_a_provider_keeps_its_promises(scenario):
    """Each scenario of the suite holds against a server that speaks the protocol over loopback."""

    async def open_bench() -> ProviderBench:
        def config(url: str) -> ConfigSnapshot:
            return ConfigSnapshot(model="gemini-2.5-flash", api_key=KEY, base_url=url)

        return await ProviderBench.open(make, LLMServer(GeminiDialect()), config, without={Ability.PROVIDER_COST})

    await check(scenario, open_bench)


HISTORY = (
    ChatMessage(Role.SYSTEM, Content("Be brief.")),
    HELLO,
    ChatMessage(Role.ASSISTANT, Content("Both."), tool_calls=CALLS),
    ChatMessage(Role.TOOL, Content("two"), tool_call_id="call_2"),
    ChatMessage(
        Role.TOOL,
        Content(parts=[TextPart("one"), ImagePart(data_url=f"data:image/png;base64,{PNG}")]),
        tool_call_id="call_1",
    ),
)


def test_a_history_becomes_turns():
    """Answers are paired with their calls by name and id, in any order, and are in one user turn."""
    asked = call("gemini-2.5-flash", *HISTORY)
    assert asked.config["system_instruction"] == [{"text": "Be brief."}]
    assert asked.contents == [
        {"role": "user", "parts": [{"text": "Hi"}]},
        {
            "role": "model",
            "parts": [
                {"text": "Both."},
                {"function_call": {"id": "call_1", "name": "add", "args": {"a": 1}}},
                {"function_call": {"id": "call_2", "name": "sub", "args": {"a": 2}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"function_response": {"id": "call_2", "name": "sub", "response": {"output": "two"}}},
                {"function_response": {"id": "call_1", "name": "add", "response": {"output": "one"}}},
                {"inline_data": {"mime_type": "image/png", "data": PNG}},
            ],
        },
    ]


def test_later_models_want_a_signature():
    """The first call of a turn carries the word for thinking that is not kept; older models get none."""
    parts = call("gemini-3-pro-preview", *HISTORY).contents[1]["parts"]
    signature = base64.b64encode(b"skip_thought_signature_validator").decode()
    assert [part.get("thought_signature") for part in parts] == [None, signature, None]


def test_a_conversation_begins_and_ends_with_the_user():
    """A history that does not is completed."""
    contents = call("gemini-2.5-flash", ChatMessage(Role.ASSISTANT, Content("I said."))).contents
    assert [turn["role"] for turn in contents] == ["user", "model", "user"]
    assert call("gemini-2.5-flash", HISTORY[0]).contents == [{"role": "user", "parts": [{"text": "Continue."}]}]


def test_media_by_address():
    """What has only an address is sent as one, with the kind that it says it is of."""
    message = ChatMessage(
        Role.USER, Content(parts=[FilePart(url="gs://b/a", mime="text/csv"), ImagePart(url="gs://i")])
    )
    assert call("gemini-2.5-flash", message).contents[0]["parts"] == [
        {"file_data": {"mime_type": "text/csv", "file_uri": "gs://b/a"}},
        {"file_data": {"mime_type": "image/png", "file_uri": "gs://i"}},
    ]


@each_row(
    "model, effort, sent",
    [
        ("gemini-2.5-flash", ReasoningEffort.LOW, {"thinking_budget": 1024, "include_thoughts": True}),
        ("gemini-2.5-flash", ReasoningEffort.OFF, {"thinking_budget": 0}),
        ("gemini-2.5-pro", ReasoningEffort.OFF, {"thinking_budget": 128}),
        ("gemini-3-flash", ReasoningEffort.HIGH, {"thinking_level": "HIGH", "include_thoughts": True}),
        ("gemini-3-flash", ReasoningEffort.OFF, {"thinking_level": "MINIMAL"}),
        ("gemini-3.1-pro-preview", ReasoningEffort.OFF, {"thinking_level": "LOW"}),
        ("gemini-2.0-flash", ReasoningEffort.HIGH, None),
        ("gemini-2.5-flash", ReasoningEffort.UNSET, None),
    ],
)
def test_how_much_a_model_thinks(model, effort, sent):
    """The effort is a number of tokens, a level, or nothing, by the model's generation."""
    assert call(model, reasoning_effort=effort).config.get("thinking_config") == sent


def test_options_tools_and_schema():
    """Options are named as the library names them, schemas cut to what the API knows, and extra fields kept apart."""
    wanted = ResponseFormat(ResponseFormatKind.JSON_SCHEMA, b'{"type":"object","$schema":"x","properties":{}}')
    fields = {"temperature": 0.0, "stops": ["END"], "extra": {"labels": {"a": "b"}}, "max_tokens": 5}
    asked = call(
        "gemini-2.5-flash",
        tools=[ADD, ToolDeclaration("now", "Now.")],
        tool_choice=ToolChoice.REQUIRED,
        response_format=wanted,
        **fields,
    )
    assert asked.config == {
        "automatic_function_calling": {"disable": True},
        "temperature": 0.0,
        "max_output_tokens": 5,
        "stop_sequences": ["END"],
        "response_mime_type": "application/json",
        "response_json_schema": {"type": "object", "properties": {}},
        "tools": [
            {
                "function_declarations": [
                    {
                        "name": "add",
                        "description": "Add.",
                        "parameters_json_schema": {"type": "object", "properties": {"a": {"type": "integer"}}},
                    },
                    {"name": "now", "description": "Now."},
                ]
            }
        ],
        "tool_config": {"function_calling_config": {"mode": "ANY"}},
    }
    assert asked.extra == {"labels": {"a": "b"}}


def test_a_schema_is_said_in_the_words_that_are_known():
    """Constants become choices, joined schemas one, old definitions new ones; a property may be called like a word."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "definitions": {"x": {"const": 1}},
        "allOf": [{"type": "object", "properties": {"strict": {"$ref": "#/definitions/x"}}, "required": ["strict"]}],
        "properties": {"b": {"type": "array", "items": {"type": "string", "pattern": "a+"}}},
        "required": ["b"],
    }
    assert accepted_schema(schema) == {
        "$defs": {"x": {"enum": [1]}},
        "type": "object",
        "properties": {"strict": {"$ref": "#/$defs/x"}, "b": {"type": "array", "items": {"type": "string"}}},
        "required": ["strict", "b"],
    }


def ended(reason: str = "", blocked: str = "", **usage: int) -> SimpleNamespace:
    """A response of the library without content."""
    counts = dict.fromkeys(
        (
            "prompt_token_count",
            "candidates_token_count",
            "thoughts_token_count",
            "total_token_count",
            "tool_use_prompt_token_count",
            "cached_content_token_count",
        )
    )
    candidate = SimpleNamespace(content=None, finish_reason=SimpleNamespace(value=reason) if reason else None)
    return SimpleNamespace(
        usage_metadata=SimpleNamespace(**{**counts, **usage}) if usage else None,
        candidates=[candidate] if reason else None,
        prompt_feedback=SimpleNamespace(block_reason=blocked) if blocked else None,
    )


def read(response: SimpleNamespace):
    """The answer that a response makes."""
    answer = AnswerBuilder(CompleteRequest(), provider="google")
    ResponseReader(answer, provider="google", model="gemini-2.5-flash").read_chunk(response)
    return answer.answer()


@each_row(
    "response, reason",
    [
        (ended("STOP"), "stop"),
        (ended("MAX_TOKENS"), "length"),
        (ended("SAFETY"), "content_filter"),
        (ended("OTHER"), "other"),
        (ended(blocked="SAFETY"), "content_filter"),
    ],
)
def test_why_an_answer_ended(response, reason):
    """The provider's words become the common ones; a prompt that is blocked ends its answer too."""
    assert read(response).finish_reason == reason


def test_a_call_that_cannot_be_read_may_be_tried_again():
    """A model that wrote a broken call gave no answer."""
    with pytest.raises(MalformedAnswerError, match="malformed_function_call"):
        read(ended("MALFORMED_FUNCTION_CALL"))


def test_thinking_is_counted_with_the_answer():
    """The provider counts thinking and cached tokens apart; the sums hold here."""
    usage = read(
        ended(
            "STOP",
            prompt_token_count=10,
            cached_content_token_count=8,
            candidates_token_count=5,
            thoughts_token_count=3,
            total_token_count=18,
        )
    ).usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.reasoning_tokens, usage.total_tokens) == (10, 8, 3, 18)
    assert usage.provider_extras == {"cached_content_token_count": 8}


def test_a_driver_without_a_key_is_not_made(monkeypatch):
    """The error names the variable to set."""
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    monkeypatch.delenv("GOOGLE_API_KEY", raising=False)
    with pytest.raises(MissingAPIKeyError, match="GEMINI_API_KEY"):
        make(ConfigSnapshot(model="gemini-2.5-flash"), Deps(artifacts=None, bus=None))
