"""A turn with tools as a small model gets it."""

from __future__ import annotations

import json
from typing import Any

from harborage.llm import (
    ChatMessage,
    CompleteRequest,
    Content,
    ResponseFormat,
    ResponseFormatKind,
    Role,
    ToolCallStructured,
    ToolChoice,
    ToolDeclaration,
)
from harborage.llm.local.constrained import DEFAULT_MAX_TOKENS, answering, constrained, is_constrained, unconstrained
from harborage.llm.local.decisions import Answer, Call
from tests.kit.tables import each_row

ADD = ToolDeclaration(
    "add", "Add two numbers.", {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
)
NOW = ToolDeclaration("now", "Tell the time.")
WINDOW = 4096


def asked(*messages: ChatMessage, **fields: Any) -> CompleteRequest:
    """A request with two tools."""
    return CompleteRequest(messages=messages or [said(Role.USER, "Goal:\n1 + 2?")], **{"tools": [ADD, NOW], **fields})


def said(role: Role, text: str) -> ChatMessage:
    """A message of one text."""
    return ChatMessage(role, Content(text))


def schema_of(request: CompleteRequest) -> dict[str, Any]:
    """The schema that the answer is to follow."""
    assert request.response_format is not None
    assert request.response_format.kind is ResponseFormatKind.JSON_SCHEMA
    return json.loads(request.response_format.json_schema)


def names_of(request: CompleteRequest) -> list[str]:
    """What the schema lets the model call."""
    schema = schema_of(request)
    return [arm["properties"]["name"]["const"] for arm in schema.get("anyOf", [schema])]


def test_the_prompt_is_short_and_plain() -> None:
    """Instruction, an example of each tool, and the question, with nothing native left."""
    request = constrained(asked(), WINDOW).request
    assert [(str(message.role), message.content.text) for message in request.messages] == [
        ("system", "Choose the one tool that fits the request. Answer with JSON."),
        ("user", "Hello!"),
        ("assistant", '{"name": "final_answer", "arguments": {"text": "Hello! What can I do for you?"}}'),
        ("user", "Add two numbers: 2"),
        ("assistant", '{"name": "add", "arguments": {"a": 2}}'),
        ("user", "Tell the time."),
        ("assistant", '{"name": "now", "arguments": {}}'),
        ("user", "1 + 2?"),
    ]
    assert request.tools == ()
    assert request.tool_choice is ToolChoice.UNSET
    assert (request.temperature, request.max_tokens) == (0.0, DEFAULT_MAX_TOKENS)


def test_the_beginning_depends_on_the_tools_alone() -> None:
    """Other runs, later steps and the operator's words change nothing before the first question."""
    call = ChatMessage(Role.ASSISTANT, tool_calls=[ToolCallStructured("1", "now")])
    later = asked(
        said(Role.SYSTEM, "<identity>\nToday\n</identity>\nSpeak softly."),
        said(Role.USER, "Other question"),
        call,
        ChatMessage(Role.TOOL, Content("noon"), tool_call_id="1"),
    )
    first, second = constrained(asked(), WINDOW).request, constrained(later, WINDOW).request
    begins = len(first.messages) - 1
    assert second.messages[:begins] == first.messages[:begins]
    assert second.messages[begins].content.text == "Speak softly.\n\nOther question"


@each_row(
    "choice, names",
    [
        (ToolChoice.UNSET, ["add", "now", "final_answer"]),
        (ToolChoice.AUTO, ["add", "now", "final_answer"]),
        (ToolChoice.REQUIRED, ["add", "now"]),
    ],
)
def test_the_choice_is_kept(choice: ToolChoice, names: list[str]) -> None:
    """A demanded call leaves no room for an answer."""
    turn = constrained(asked(tool_choice=choice), WINDOW)
    assert names_of(turn.request) == names
    assert bool(turn.answer) == ("final_answer" in names)


def test_only_turns_that_may_call_are_constrained() -> None:
    """Without tools, and with a choice of none, the model just talks."""
    assert is_constrained(asked())
    assert not is_constrained(asked(tool_choice=ToolChoice.NONE))
    assert not is_constrained(asked(tools=[]))


def test_an_answer_is_asked_for_in_a_prompt_of_its_own() -> None:
    """The question, what was found, and what the operator says; nothing that looks like a call."""
    call = ChatMessage(Role.ASSISTANT, tool_calls=[ToolCallStructured("1", "now")])
    result = ChatMessage(Role.TOOL, Content('{"time":"noon"}'), tool_call_id="1")
    wanted = ResponseFormat(ResponseFormatKind.JSON_SCHEMA, b"{}")
    system, user = said(Role.SYSTEM, "Be kind."), said(Role.USER, "Goal:\nWhen?")
    request = answering(asked(system, user, call, result, response_format=wanted), WINDOW)
    assert [message.content.text for message in request.messages] == [
        "You are a helpful assistant. Answer the question in one sentence, from what was found.\nBe kind.",
        "Question: When?\n\nFound:\ntime: noon",
    ]
    assert (request.tools, request.response_format, request.temperature) == ((), wanted, 0.0)
    nothing = answering(asked(), WINDOW)
    assert [message.content.text for message in nothing.messages] == [
        "You are a helpful assistant. Answer the question in one sentence.",
        "Question: 1 + 2?",
    ]


def test_a_reply_is_read_by_the_turn_it_answers() -> None:
    """The turn knows what it allowed."""
    turn = constrained(asked(), WINDOW)
    assert turn.read('{"name": "final_answer", "arguments": {"text": "3"}}') == Answer("3")
    assert turn.read('{"name": "add", "arguments": {"a": 1}}') == Call("add", b'{"a": 1}')


def test_a_schema_for_the_answer_becomes_its_arguments() -> None:
    """Structured output and tools go together."""
    own = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    wanted = ResponseFormat(ResponseFormatKind.JSON_SCHEMA, json.dumps(own).encode())
    turn = constrained(asked(response_format=wanted), WINDOW)
    assert schema_of(turn.request)["anyOf"][-1]["properties"]["arguments"] == own
    assert turn.read('{"name": "final_answer", "arguments": {"n": 3}}') == Answer('{"n": 3}')


@each_row("text", [b"", b"broken", b"[]", b'{"type": "string"}'])
def test_a_schema_that_is_none_of_an_object_is_not_used(text: bytes) -> None:
    """The answer is then words."""
    turn = constrained(asked(response_format=ResponseFormat(ResponseFormatKind.JSON_SCHEMA, text)), WINDOW)
    assert not turn.is_object


def test_examples_give_way_to_the_conversation() -> None:
    """What is asked is worth more than how to answer."""
    request = constrained(asked(said(Role.USER, "x" * 2_600)), 1_400).request
    assert "Tell the time." not in {message.content.text for message in request.messages}
    assert request.messages[-1].content.text == "x" * 2_600
    assert len(constrained(asked(said(Role.USER, "x" * 9_000)), 1_400).request.messages) == 2


def test_a_tiny_model_sees_no_system_prompt() -> None:
    """What stands beside a question is a question to it."""
    messages = (said(Role.SYSTEM, "Be kind."), said(Role.USER, "1 + 2?"))
    turn, alone = constrained(asked(*messages), WINDOW, is_tiny=True), constrained(asked(messages[1]), WINDOW)
    assert turn.request.messages == alone.request.messages
    assert "kind" not in str(answering(asked(*messages), WINDOW, is_tiny=True).messages)


def test_the_reader_of_stored_results_is_offered_once_there_is_one() -> None:
    """Until then it is only one more tool to take for another."""
    fetch = ToolDeclaration("artifact_fetch", "Read an artifact.")
    call = ChatMessage(Role.ASSISTANT, tool_calls=[ToolCallStructured("1", "now")])
    heavy = ChatMessage(Role.TOOL, Content('excerpt … ref="a1"'), tool_call_id="1")
    user = said(Role.USER, "?")
    assert "artifact_fetch" not in names_of(constrained(asked(user, tools=[fetch, NOW]), WINDOW).request)
    assert "artifact_fetch" in names_of(constrained(asked(user, call, heavy, tools=[fetch, NOW]), WINDOW).request)
    assert "artifact_fetch" in names_of(constrained(asked(user, tools=[fetch]), WINDOW).request)


def test_more_tools_than_examples_are_listed() -> None:
    """A tool without an example is at least named."""
    tools = [ToolDeclaration(f"tool{number}", f"Does\nthing {number}.") for number in range(10)]
    system = constrained(asked(tools=tools), WINDOW).request.messages[0].content.text
    assert system is not None
    assert system.endswith("More tools:\n- tool8: Does thing 8.\n- tool9: Does thing 9.")


def test_the_operators_words_come_before_an_attachment() -> None:
    """A first message without a text of its own is left as it is."""
    request = constrained(
        asked(said(Role.SYSTEM, "Be kind."), ChatMessage(Role.USER, Content(parts=[]))), WINDOW
    ).request
    assert request.messages[-2] == said(Role.USER, "Be kind.")


def test_the_callers_own_settings_win() -> None:
    """Temperature and length are the caller's, where given."""
    request = constrained(asked(temperature=0.7, max_tokens=50), WINDOW).request
    assert (request.temperature, request.max_tokens) == (0.7, 50)
    assert unconstrained(asked(max_tokens=50), WINDOW).max_tokens == 50


def test_a_turn_that_may_not_call_keeps_its_prompt() -> None:
    """System messages stay, and calls of earlier turns are told in words."""
    system, question = said(Role.SYSTEM, "Be brief."), said(Role.USER, "?")
    call = ChatMessage(Role.ASSISTANT, tool_calls=[ToolCallStructured("1", "now")])
    result = ChatMessage(Role.TOOL, Content("noon"), tool_call_id="1")
    assert unconstrained(asked(system, question), WINDOW).messages == (system, question)
    told = unconstrained(asked(system, question, call, result, tool_choice=ToolChoice.NONE), WINDOW)
    assert told.tools == ()
    assert [message.content.text for message in told.messages] == [
        "Be brief.",
        "?",
        '{"name": "now", "arguments": {}}',
        "Result: noon",
    ]
