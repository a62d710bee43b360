"""What is sent for a call: every field of a request in the words of Chat Completions, and each server's own ways."""

from __future__ import annotations

import base64

import msgspec
import pytest

from harborage import codec
from harborage.llm import (
    ArtifactStub,
    AudioPart,
    BadRequestError,
    ChatMessage,
    CompleteRequest,
    Content,
    FetchHint,
    FilePart,
    ImagePart,
    InvalidContentError,
    InvalidJSONSchemaError,
    ReasoningEffort,
    ResponseFormat,
    ResponseFormatKind,
    Role,
    TextPart,
    ToolCallStructured,
    ToolChoice,
    ToolDeclaration,
)
from harborage.llm.openai_compat.request import build_body
from tests.kit.tables import each_row

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 8
ADD = ToolDeclaration("add", "Add.", {"type": "object", "properties": {"a": {"type": "integer"}}})
HELLO = ChatMessage(Role.USER, Content("hello"))


def url(data: bytes, mime: str) -> str:
    return f"data:{mime};base64,{base64.b64encode(data).decode()}"


def body(provider: str = "acme", model: str = "m", *, extra=None, max_tokens=None, **fields):
    fields.setdefault("messages", [HELLO])
    request = CompleteRequest(extra=extra or {}, **fields)
    made = build_body(request, model, provider=provider, max_tokens=max_tokens)
    return codec.decode(codec.encode(made))


def sent(message: ChatMessage, provider: str = "acme"):
    return body(provider, messages=[message])["messages"][0]


def parts(*made, role=Role.USER, provider="acme"):
    return sent(ChatMessage(role, Content(parts=made)), provider)["content"]


def test_a_bare_request_sends_nothing_that_was_not_asked_for():
    """Unset fields leave the choice to the server."""
    assert body() == {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


def test_zero_is_a_value():
    """A temperature of zero and an empty limit are sent as they are."""
    sampling = body(temperature=0.0, max_tokens=0, stops=["a", "b"])
    assert (sampling["temperature"], sampling["max_tokens"], sampling["stop"]) == (0.0, 0, ["a", "b"])


@each_row("model", ["o1", "o3-mini", "gpt-5-mini", "gpt-5.2"])
def test_a_thinking_model_of_openai_has_other_fields(model):
    """It takes another limit, no temperature, and no word about parallel calls unless they are wanted."""
    fields = body("openai", model, max_tokens=5, temperature=0.0, tools=[ADD], tool_choice=ToolChoice.AUTO)
    assert fields["max_completion_tokens"] == 5
    assert not {"max_tokens", "temperature", "parallel_tool_calls"} & set(fields)


@each_row("provider, model", [("openai", "gpt-4o"), ("openai", "gpt-5-chat-latest"), ("groq", "o3")])
def test_any_other_model_has_the_common_fields(provider, model):
    """Models that do not think, and other servers, take the common fields."""
    fields = body(provider, model, max_tokens=5, temperature=0.0)
    assert (fields["max_tokens"], fields["temperature"]) == (5, 0.0)


def test_a_stream_asks_for_its_bill():
    """A stream asks for usage at its end, unless the server refuses the question."""
    assert body(stream=True)["stream_options"] == {"include_usage": True}
    assert "stream_options" not in body("mistral", stream=True)
    assert "stream" not in body()


def test_tools_are_declared():
    """A tool has name, description and schema; without a schema it takes no arguments."""
    declared = body(tools=[ADD, ToolDeclaration("now")])["tools"]
    assert declared[0] == {
        "type": "function",
        "function": {"name": "add", "description": "Add.", "parameters": ADD.schema},
    }
    assert declared[1]["function"] == {"name": "now", "parameters": {"type": "object", "properties": {}}}


@each_row(
    "parallel, choice, wanted",
    [
        (False, ToolChoice.UNSET, {}),
        (True, ToolChoice.UNSET, {"parallel_tool_calls": True}),
        (False, ToolChoice.REQUIRED, {"tool_choice": "required", "parallel_tool_calls": False}),
        (True, ToolChoice.NONE, {"tool_choice": "none", "parallel_tool_calls": True}),
    ],
)
def test_the_choice_of_tools(parallel, choice, wanted):
    """Parallel calls are mentioned when they are wanted or a choice is made, and only beside tools."""
    fields = body(tools=[ADD], tool_choice=choice, parallel_tool_calls=parallel)
    assert {name: fields[name] for name in fields if name in ("tool_choice", "parallel_tool_calls")} == wanted
    assert set(body(tool_choice=choice, parallel_tool_calls=parallel)) == {"model", "messages"}


@each_row(
    "tool",
    [
        ToolDeclaration(""),
        ToolDeclaration("x", "", {"type": "string"}),
        ToolDeclaration("x", "", {"type": "object", "properties": []}),  # type: ignore[dict-item]
        ToolDeclaration("x", "", ["no", "object"]),  # type: ignore[arg-type]
    ],
)
def test_a_malformed_tool_never_leaves(tool):
    """A tool without a name, or whose arguments are no object, fails before the network."""
    with pytest.raises(BadRequestError, match="acme: "):
        body(tools=[tool])


def schema(value: object) -> ResponseFormat:
    return ResponseFormat(ResponseFormatKind.JSON_SCHEMA, msgspec.json.encode(value))


def test_the_format_of_the_answer():
    """Text is not mentioned, JSON is asked for, and a schema is sent with a name."""
    assert "response_format" not in body(response_format=ResponseFormat())
    assert body(response_format=ResponseFormat(ResponseFormatKind.JSON_OBJECT))["response_format"] == {
        "type": "json_object"
    }
    assert body(response_format=schema({"type": "object"}))["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": {"type": "object"}},
    }


def test_a_strict_schema_says_so_beside_itself():
    """The marks of the strict correction become the one flag that the protocol has; a property of that name stays."""
    inner = {"type": "object", "strict": True, "properties": {"strict": {"type": "boolean"}}}
    marked = {"type": "object", "strict": True, "properties": {"a": inner}, "anyOf": [inner]}
    plain = {"type": "object", "properties": {"strict": {"type": "boolean"}}}
    assert body(response_format=schema(marked))["response_format"]["json_schema"] == {
        "name": "answer",
        "strict": True,
        "schema": {"type": "object", "properties": {"a": plain}, "anyOf": [plain]},
    }


@each_row("text", [b"", b"{", b"[]", b"\xff", b"null"])
def test_a_schema_that_is_none_never_leaves(text):
    """A missing or broken schema fails before the network, as a failure of schemas."""
    with pytest.raises(InvalidJSONSchemaError):
        body(response_format=ResponseFormat(ResponseFormatKind.JSON_SCHEMA, text))


@each_row(
    "provider, effort, wanted",
    [
        ("acme", ReasoningEffort.UNSET, {}),
        ("acme", ReasoningEffort.LOW, {"reasoning_effort": "low"}),
        ("openai", ReasoningEffort.OFF, {"reasoning_effort": "none"}),
        ("openrouter", ReasoningEffort.HIGH, {"reasoning": {"effort": "high"}, "usage": {"include": True}}),
        ("openrouter", ReasoningEffort.OFF, {"reasoning": {"enabled": False}, "usage": {"include": True}}),
        ("vllm", ReasoningEffort.MEDIUM, {"reasoning_effort": "medium"}),
        ("llamacpp", ReasoningEffort.OFF, {"chat_template_kwargs": {"enable_thinking": False}}),
        ("deepseek", ReasoningEffort.OFF, {"thinking": {"type": "disabled"}}),
        ("deepseek", ReasoningEffort.LOW, {"thinking": {"type": "enabled"}}),
    ],
)
def test_thinking_is_asked_for_in_the_server_s_way(provider, effort, wanted):
    """The effort, and its absence, are sent in the field of each server, also when they are an extra field."""
    assert body(provider, reasoning_effort=effort).items() >= wanted.items()
    moved = body(provider, extra={"reasoning_effort": effort.value} if effort else {})
    assert {name: moved[name] for name in moved if name not in ("model", "messages")} == wanted


def test_extra_fields_are_passed_through():
    """Extra fields go in unchanged and win over ours; the stream does not."""
    fields = body(extra={"top_k": 1, "seed": 1, "stream": True}, temperature=1.0)
    assert (fields["top_k"], fields["seed"], "stream" in fields) == (1, 1, False)
    request = CompleteRequest(messages=[HELLO], extra={"seed": 2, "temperature": 0.5}, temperature=1.0)
    fields = build_body(request, "m", provider="acme")
    assert (fields["seed"], fields["temperature"]) == (2, 0.5)
    assert body(extra={"reasoning_effort": "minimal"})["reasoning_effort"] == "minimal"


def test_the_words_of_corrections_are_no_fields():
    """A hint is not sent, and a schema that was set aside for another protocol is sent in this one."""
    fields = body(extra={"schema_hint": {"a": 1}, "anthropic_tool_schema": {"type": "object"}})
    assert set(fields) == {"model", "messages", "response_format"}
    assert fields["response_format"]["json_schema"]["schema"] == {"type": "object"}


def test_roles_and_names():
    """Each role keeps its name, and a speaker's name is sent."""
    assert sent(ChatMessage(Role.SYSTEM, Content("be brief"))) == {"role": "system", "content": "be brief"}
    assert sent(ChatMessage(Role.USER, Content("hi"), name="ann")) == {"role": "user", "name": "ann", "content": "hi"}
    assert sent(ChatMessage(Role.ASSISTANT, Content("hi"))) == {"role": "assistant", "content": "hi"}


def test_calls_and_their_answers():
    """Calls are functions with their arguments as text; empty text beside them is null; answers name their call."""
    calls = [ToolCallStructured("c1", "add", b'{"a":1}'), ToolCallStructured("c2", "now", b"", 1)]
    wanted = [
        {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}},
        {"id": "c2", "type": "function", "function": {"name": "now", "arguments": "{}"}},
    ]
    for content in (Content(), Content("")):
        message = sent(ChatMessage(Role.ASSISTANT, content, tool_calls=calls))
        assert message == {"role": "assistant", "content": None, "tool_calls": wanted}
    assert sent(ChatMessage(Role.ASSISTANT, Content("so"), tool_calls=calls))["content"] == "so"
    assert sent(ChatMessage(Role.TOOL, Content("2"), tool_call_id="c1")) == {
        "role": "tool",
        "tool_call_id": "c1",
        "content": "2",
    }


def test_an_answer_to_no_call_is_the_user_s():
    """A tool's message without the id of a call becomes a user's."""
    assert sent(ChatMessage(Role.TOOL, Content("2"))) == {"role": "user", "content": "2"}


@pytest.mark.parametrize(("provider", "call_id"), [("mistral", "call_1"), ("openai", "c" * 41)])
def test_an_id_that_the_server_does_not_take_is_replaced(provider, call_id):
    """The same other id replaces it in the call and in its answer, and different ids stay different."""
    call = ChatMessage(Role.ASSISTANT, tool_calls=[ToolCallStructured(call_id, "add")])
    new = sent(call, provider)["tool_calls"][0]["id"]
    assert new != call_id
    assert len(new) == 9
    assert new.isalnum()
    assert sent(ChatMessage(Role.TOOL, Content("2"), tool_call_id=call_id), provider)["tool_call_id"] == new
    assert sent(ChatMessage(Role.TOOL, Content("2"), tool_call_id=f"{call_id}x"), provider)["tool_call_id"] != new
    assert sent(ChatMessage(Role.TOOL, Content("2"), tool_call_id="abcdef123"), provider)["tool_call_id"] == "abcdef123"


def test_parts_are_blocks():
    """Text, pictures, recordings and files each have their block; MIME types come from the bytes or the part."""
    assert parts(
        TextPart("look"),
        ImagePart(url="https://example.com/a.png", detail="low"),
        ImagePart(data_url=url(PNG, "image/jpeg")),
        AudioPart(data_url=url(b"RIFF", "audio/wav")),
        AudioPart(data_url=url(b"ID3", "audio/mpeg")),
        FilePart(data_url=url(b"%PDF", "application/pdf")),
        FilePart(data_url=url(b"x", "text/plain"), filename="notes.txt"),
    ) == [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "low"}},
        {"type": "image_url", "image_url": {"url": url(PNG, "image/png")}},
        {"type": "input_audio", "input_audio": {"data": base64.b64encode(b"RIFF").decode(), "format": "wav"}},
        {"type": "input_audio", "input_audio": {"data": base64.b64encode(b"ID3").decode(), "format": "mp3"}},
        {"type": "file", "file": {"filename": "file.pdf", "file_data": url(b"%PDF", "application/pdf")}},
        {"type": "file", "file": {"filename": "notes.txt", "file_data": url(b"x", "text/plain")}},
    ]


@each_row("kind", [ImagePart, AudioPart, FilePart])
def test_a_stored_artifact_is_its_stub(kind):
    """A stored part of any medium is the text of its stub."""
    stub = ArtifactStub("default_0", "image/png", 5, fetch=FetchHint("artifact_fetch", "default_0"))
    assert parts(kind(artifact=stub)) == [{"type": "text", "text": stub.text()}]


def test_text_in_parts_is_text_for_others_than_the_user():
    """Many servers read blocks only from the user: of the others, blocks of text are joined."""
    text = (TextPart("a"), TextPart("b"))
    assert parts(*text, role=Role.SYSTEM) == "a\nb"
    assert parts(*text, role=Role.TOOL) == "a\nb"
    assert parts(*text) == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]


def test_an_address_is_sent_where_it_is_fetched():
    """Recordings and files by address go to the servers that fetch them; others refuse them before the network."""
    part = FilePart(url="https://example.com/a.pdf")
    assert parts(part, provider="openrouter")[0]["file"]["file_data"] == "https://example.com/a.pdf"
    assert parts(AudioPart(url="https://a/b.wav"), provider="vllm") == [
        {"type": "audio_url", "audio_url": {"url": "https://a/b.wav"}}
    ]
    for refused in (part, AudioPart(url="https://a/b.wav")):
        with pytest.raises(InvalidContentError, match="acme does not fetch"):
            parts(refused)


def test_an_attachment_that_is_too_large_never_leaves():
    """The refusal names the limit of the provider."""
    big = ImagePart(data_url=url(PNG + b"\0" * 3 * 1024 * 1024, "image/png"))
    assert parts(big)
    with pytest.raises(InvalidContentError, match="3,145,728 that groq takes"):
        parts(big, provider="groq")


def test_bytes_that_are_no_picture_never_leave():
    """An image part that holds something else fails before the network."""
    with pytest.raises(InvalidContentError, match="no PNG, JPEG, GIF or WebP"):
        parts(ImagePart(data_url=url(b"<html>", "image/png")))


def test_a_message_is_encoded_once(monkeypatch):
    """A run's next request has the same messages, which are sent as they were; each provider has its own wording."""
    call = ToolCallStructured("call_1", "add", b"{}")
    turn = [ChatMessage(Role.ASSISTANT, tool_calls=[call]), ChatMessage(Role.TOOL, Content("3"), tool_call_id="call_1")]
    first, mistral = body(messages=[HELLO, *turn]), body("mistral", messages=[HELLO, *turn])
    assert mistral["messages"][2]["tool_call_id"] != first["messages"][2]["tool_call_id"]
    monkeypatch.setattr("harborage.llm.openai_compat.request.wire_message", lambda *_: pytest.fail("made again"))
    assert body(messages=[HELLO, *turn])["messages"] == first["messages"]
    assert body("mistral", messages=[HELLO, *turn])["messages"] == mistral["messages"]


def test_an_attachment_is_not_kept_twice():
    """A message that holds one is encoded each time."""
    message = ChatMessage(Role.USER, Content(parts=[TextPart("see"), ImagePart(data_url=url(PNG, "image/png"))]))
    assert sent(message) == sent(message)
    assert vars(message) == {}


def test_a_text_that_cannot_be_sent_is_named():
    """The error says which message holds it."""
    with pytest.raises(codec.UnserializableError, match=r"request\.messages\[1\]\.content"):
        body(messages=[HELLO, ChatMessage(Role.USER, Content("\ud800"))])
