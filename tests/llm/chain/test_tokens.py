"""A request is about a quarter of its bytes in tokens, counted piece by piece."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from harborage.llm.chain.tokens import ToolTokens, estimate_tokens, most_tokens


def tokens(*messages: ChatMessage, **fields) -> int:
    """The estimate for a request."""
    return estimate_tokens(CompleteRequest(messages=messages, **fields), ToolTokens())


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


def test_tools_are_measured_once() -> None:
    """A declaration is known again, however many requests bring it, and what is kept of them is bounded."""
    known = ToolTokens()
    tools = [ToolDeclaration(f"t{at}", schema={"n": "x" * at}) for at in range(1200)]
    assert known.of(tools) == known.of(tools) == sum(map(ToolTokens().of, ([tool] for tool in tools)))
    assert len(known._known) <= 1024


def test_a_schema_without_a_json_form_is_named() -> None:
    """The error says which tool it belongs to."""
    with pytest.raises(codec.UnserializableError, match="tool echo"):
        tokens(tools=[ToolDeclaration("echo", schema={"x": object()})])


@given(st.lists(st.tuples(st.text(max_size=20), st.text(max_size=5)), max_size=5))
def test_the_quick_bound_is_never_below_the_estimate(texts: list[tuple[str, str]]) -> None:
    """What is counted without encoding is at least what counting every byte gives."""
    parts = ChatMessage(Role.USER, Content(parts=[TextPart(text) for text, _ in texts]))
    request = CompleteRequest(messages=[*(user(text, name=name) for text, name in texts), parts])
    assert most_tokens(request, ToolTokens()) >= estimate_tokens(request, ToolTokens())
