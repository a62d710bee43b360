"""A request is about a quarter of its bytes in tokens, counted piece by piece."""

from __future__ import annotations

import pytest

from harborage import codec
from harborage.llm import (
    AudioPart,
    ChatMessage,
    CompleteRequest,
    Content,
    FilePart,
    ImagePart,
    ResponseFormat,
    ResponseFormatKind,
    Role,
    TextPart,
    ToolCallStructured,
    ToolDeclaration,
)
from harborage.llm.chain.tokens import message_tokens, tokens_beside_messages


def tokens(*messages: ChatMessage, **fields) -> int:
    """The estimate for a request."""
    return sum(map(message_tokens, messages)) + tokens_beside_messages(CompleteRequest(messages=messages, **fields))


def user(text: str, **fields) -> ChatMessage:
    """A user's message."""
    return ChatMessage(Role.USER, Content(text), **fields)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (user(""), 4 + 1),
        (user("abc"), 4 + 1),
        (user("abcd"), 4 + 2),
        (user("éé"), 4 + 2),
        (user("abcd", name="abcd"), 4 + 2 + 2),
        (ChatMessage(Role.USER, Content(parts=[])), 4),
        (ChatMessage(Role.USER, Content(parts=[TextPart("abcd"), TextPart("")])), 4 + 2 + 1),
        (
            ChatMessage(Role.USER, Content(parts=[ImagePart(url="x"), AudioPart(url="x"), FilePart(url="x")])),
            4 + 3 * 256,
        ),
        (ChatMessage(Role.ASSISTANT, tool_calls=[ToolCallStructured("a", "echo", b'{"a": 1}')]), 4 + 4),
    ],
)
def test_each_kind_of_message(message: ChatMessage, expected: int) -> None:
    """Texts count their bytes, other media a flat sum, tool calls their name and arguments."""
    assert tokens(message) == expected


def test_everything_beside_the_messages_counts() -> None:
    """Schema, stops, extra fields and tool declarations are sent too."""
    schema, extra = b'{"type":"object"}', {"a": [1, 2, 3]}
    tool = ToolDeclaration("echo", "says it again", {"type": "object"})
    assert tokens(response_format=ResponseFormat(ResponseFormatKind.JSON_SCHEMA, schema)) == len(schema) // 4 + 1
    assert tokens(response_format=ResponseFormat(ResponseFormatKind.JSON_OBJECT)) == 0
    assert tokens(stops=["abcd", ""]) == 2 + 1
    assert tokens(extra=extra) == len(codec.encode(extra)) // 4 + 1
    declared = len("echo") + len("says it again") + len(codec.encode(tool.schema))
    assert tokens(tools=[tool, tool]) == 2 * (declared // 4 + 1)
    assert tokens() == 0


def test_tools_are_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A declaration is known again, however many requests bring it."""
    tool = ToolDeclaration("echo", schema={"type": "object"})
    first = tokens(tools=[tool])
    monkeypatch.setattr("harborage.codec.encode", lambda *_: pytest.fail("measured again"))
    assert tokens(tools=[tool, tool]) == 2 * first


def test_a_schema_without_a_json_form_is_named() -> None:
    """The error says which tool it belongs to."""
    with pytest.raises(codec.UnserializableError, match="tool echo"):
        tokens(tools=[ToolDeclaration("echo", schema={"x": object()})])
