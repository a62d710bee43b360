"""The check of requests finds each broken rule, and passes what keeps them all."""

from __future__ import annotations

import pytest

from harborage.llm import ChatMessage, CompleteRequest, Content, ImagePart, Role, TextPart, ToolCallStructured
from harborage.llm import ToolDeclaration as Declared
from tests.kit.provider_rules import ProviderRuleError, broken_rules, check_request
from tests.kit.tables import each_row


def call(id: str = "1", name: str = "t", args: bytes = b"{}") -> ToolCallStructured:
    """One call."""
    return ToolCallStructured(id, name, args)


def system(text: str = "s") -> ChatMessage:
    """A system message."""
    return ChatMessage(Role.SYSTEM, Content(text=text))


def user(text: str = "u") -> ChatMessage:
    """A user's message."""
    return ChatMessage(Role.USER, Content(text=text))


def says(text: str | None = "a", *calls: ToolCallStructured) -> ChatMessage:
    """An assistant's message."""
    return ChatMessage(Role.ASSISTANT, Content(text=text), tool_calls=calls)


def tool(id: str | None = "1", text: str = "r") -> ChatMessage:
    """A tool's answer."""
    return ChatMessage(Role.TOOL, Content(text=text), tool_call_id=id)


LEGAL = [
    [user()],
    [system(), system(), user(), user()],
    [user(), says(None, call()), tool()],
    [user(), says("a", call("1"), call("2")), tool("1"), tool("2"), user()],
    [user(), says(None, call(name="t")), ChatMessage(Role.TOOL, Content(text="r"), name="t", tool_call_id="1")],
    [user(), says(), user()],
    [user(), says(None, call("1")), tool("1"), says(None, call("2")), tool("2")],
    [ChatMessage(Role.USER, Content(parts=[TextPart("u"), ImagePart(url="https://x")]))],
]

ILLEGAL = {
    "nothing but system": ([system()], "no message besides"),
    "late system": ([user(), system(), user()], "system message inside"),
    "begins with the assistant": ([says(), user()], "begins with assistant"),
    "ends with the assistant": ([user(), says()], "ends with assistant"),
    "no answer": ([user(), says(None, call()), user()], "comes before the answer to '1'"),
    "no answer at the end": ([user(), says(None, call("1"), call("2")), tool("1")], "the answer to '2'"),
    "something between": ([user(), says(None, call()), user(), tool()], "comes before the answer to '1'"),
    "an orphan": ([user(), tool()], "answers '1', which is not open"),
    "a late answer": ([user(), says(None, call()), tool(), user(), tool()], "answers '1', which is not open"),
    "two answers": ([user(), says(None, call()), tool(), tool()], "answers '1', which is not open"),
    "an id twice": ([user(), says(None, call()), tool(), says(None, call()), tool()], "'1' is used twice"),
    "an id twice at once": ([user(), says(None, call(), call()), tool(), tool()], "'1' is used twice"),
    "no id": ([user(), says(None, call("")), tool("")], "has no id"),
    "no name": ([user(), says(None, call(name="")), tool()], "names no tool"),
    "arguments that are no object": ([user(), says(None, call(args=b"[]")), tool()], "no JSON object"),
    "arguments that are no JSON": ([user(), says(None, call(args=b"{")), tool()], "no JSON object"),
    "an empty answer": ([user(), says(None, call()), tool(text="")], "is empty"),
    "an empty user": ([user(" ")], "is empty"),
    "empty parts": ([ChatMessage(Role.USER, Content(parts=[TextPart("")]))], "is empty"),
    "a silent assistant": ([user(), says(""), user()], "says nothing and calls nothing"),
    "no content at all": ([user(), says(None), user()], "neither text nor parts"),
    "empty text beside a call": ([user(), says("", call()), tool()], "leave it out"),
    "both contents": ([ChatMessage(Role.USER, Content(text="u", parts=[]))], "both text and parts"),
    "a user who calls": ([ChatMessage(Role.USER, Content(text="u"), tool_calls=[call()]), tool()], "only an assistant"),
    "a user who answers": ([ChatMessage(Role.USER, Content(text="u"), tool_call_id="1")], "names the call it answers"),
    "an answer to nothing": ([user(), tool(None)], "names the call it answers"),
    "the assistant twice": ([user(), says(), says("b"), user()], "message 2: the assistant follows itself"),
    "answers out of order": ([user(), says(None, call("1"), call("2")), tool("2"), tool("1")], "'2' before '1'"),
    "ids that some cannot tell apart": (
        [user(), says(None, call("a.1")), tool("a.1"), says(None, call("a+1")), tool("a+1")],
        "'a+1' is used twice",
    ),
    "another's name": (
        [user(), says(None, call()), ChatMessage(Role.TOOL, Content(text="r"), name="x", tool_call_id="1")],
        "is named 'x' and answers a call of 't'",
    ),
    "an empty part": (
        [ChatMessage(Role.USER, Content(parts=[TextPart("u"), TextPart(" ")]))],
        "a part of it is empty",
    ),
    "a picture of the assistant": (
        [user(), ChatMessage(Role.ASSISTANT, Content(parts=[ImagePart(url="https://x")])), user()],
        "only a user attaches a ImagePart",
    ),
    "what is no text": ([user("a\udc80")], "cannot be encoded"),
    "an unknown role": ([user(), ChatMessage("robot", Content(text="x"))], "role is unknown"),
}


@each_row("messages", LEGAL)
def test_what_is_legal_passes(messages):
    """A request that keeps the rules is accepted."""
    check_request(CompleteRequest(messages=messages))


@each_row("name", ILLEGAL)
def test_what_is_not_is_named(name):
    """Each broken rule is named with its place."""
    messages, rule = ILLEGAL[name]
    with pytest.raises(ProviderRuleError) as caught:
        check_request(CompleteRequest(messages=messages))
    assert any(rule in one for one in caught.value.rules), caught.value.rules


def test_declarations():
    """Declared tools have names, each its own."""
    schema = {"type": "object"}
    tools = [Declared("a", "", schema), Declared("a", "", schema), Declared("", "", schema), Declared("b")]
    assert broken_rules(CompleteRequest(messages=[user()], tools=tools)) == [
        "the tool 'a' is declared 2 times",
        "a declared tool has no name",
        "the schema of the tool 'b' is not that of an object",
    ]
