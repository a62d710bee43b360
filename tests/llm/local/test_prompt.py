"""The prompt of a small model: what a turn with tools sends, and the conversation without native calls."""

from __future__ import annotations

import json
from typing import Any

from harborage.llm import (
    ArtifactStub,
    ChatMessage,
    CompleteRequest,
    Content,
    ImagePart,
    ResponseFormat,
    ResponseFormatKind,
    Role,
    TextPart,
    ToolCallStructured,
    ToolChoice,
    ToolDeclaration,
)
from harborage.llm.local.decisions import Answer, Call
from harborage.llm.local.prompt import (
    DEFAULT_MAX_TOKENS,
    answer_request,
    clip,
    compact_prompt,
    decision_turn,
    is_answerable,
    is_repeat,
    may_call_tools,
    plain_messages,
    plain_request,
    question_and_results,
    system_notes,
    to_readable,
)
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
    request = decision_turn(asked(), WINDOW).request
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
    first, second = decision_turn(asked(), WINDOW).request, decision_turn(later, WINDOW).request
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
    turn = decision_turn(asked(tool_choice=choice), WINDOW)
    assert names_of(turn.request) == names
    assert bool(turn.answer) == ("final_answer" in names)


def test_only_turns_that_may_call_are_constrained() -> None:
    """Without tools, and with a choice of none, the model just talks."""
    assert may_call_tools(asked())
    assert not may_call_tools(asked(tool_choice=ToolChoice.NONE))
    assert not may_call_tools(asked(tools=[]))


def test_an_answer_is_asked_for_in_a_prompt_of_its_own() -> None:
    """The question, the results, and what the operator says; nothing that looks like a call."""
    call = ChatMessage(Role.ASSISTANT, tool_calls=[ToolCallStructured("1", "now")])
    result = ChatMessage(Role.TOOL, Content('{"time":"noon"}'), tool_call_id="1")
    wanted = ResponseFormat(ResponseFormatKind.JSON_SCHEMA, b"{}")
    system, user = said(Role.SYSTEM, "Be kind."), said(Role.USER, "Goal:\nWhen?")
    request = answer_request(asked(system, user, call, result, response_format=wanted), WINDOW)
    assert [message.content.text for message in request.messages] == [
        "You are a helpful assistant. Answer the question in one sentence, from what was found.\nBe kind.",
        "Question: When?\n\nFound:\ntime: noon",
    ]
    assert (request.tools, request.response_format, request.temperature) == ((), wanted, 0.0)
    nothing = answer_request(asked(), WINDOW)
    assert [message.content.text for message in nothing.messages] == [
        "You are a helpful assistant. Answer the question in one sentence.",
        "Question: 1 + 2?",
    ]


def test_a_reply_is_read_by_the_turn_it_answers() -> None:
    """The turn knows what it allowed."""
    turn = decision_turn(asked(), WINDOW)
    assert turn.read('{"name": "final_answer", "arguments": {"text": "3"}}') == Answer("3")
    assert turn.read('{"name": "add", "arguments": {"a": 1}}') == Call("add", b'{"a": 1}')


def test_a_schema_for_the_answer_becomes_its_arguments() -> None:
    """Structured output and tools go together."""
    own = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    wanted = ResponseFormat(ResponseFormatKind.JSON_SCHEMA, json.dumps(own).encode())
    turn = decision_turn(asked(response_format=wanted), WINDOW)
    assert schema_of(turn.request)["anyOf"][-1]["properties"]["arguments"] == own
    assert turn.read('{"name": "final_answer", "arguments": {"n": 3}}') == Answer('{"n": 3}')


@each_row("text", [b"", b"broken", b"[]", b'{"type": "string"}'])
def test_a_schema_that_is_none_of_an_object_is_not_used(text: bytes) -> None:
    """The answer is then words."""
    turn = decision_turn(asked(response_format=ResponseFormat(ResponseFormatKind.JSON_SCHEMA, text)), WINDOW)
    assert not turn.is_object


def test_examples_give_way_to_the_conversation() -> None:
    """What is asked is worth more than how to answer."""
    request = decision_turn(asked(said(Role.USER, "x" * 2_600)), 1_400).request
    assert "Tell the time." not in {message.content.text for message in request.messages}
    assert request.messages[-1].content.text == "x" * 2_600
    assert len(decision_turn(asked(said(Role.USER, "x" * 9_000)), 1_400).request.messages) == 2


def test_a_tiny_model_sees_no_system_prompt() -> None:
    """A tiny model takes any text beside a question for a question."""
    messages = (said(Role.SYSTEM, "Be kind."), said(Role.USER, "1 + 2?"))
    turn, alone = decision_turn(asked(*messages), WINDOW, is_tiny=True), decision_turn(asked(messages[1]), WINDOW)
    assert turn.request.messages == alone.request.messages
    assert "kind" not in str(answer_request(asked(*messages), WINDOW, is_tiny=True).messages)


def test_the_reader_of_stored_results_is_offered_once_there_is_one() -> None:
    """Until then it is only one more tool to take for another."""
    fetch = ToolDeclaration("artifact_fetch", "Read an artifact.")
    call = ChatMessage(Role.ASSISTANT, tool_calls=[ToolCallStructured("1", "now")])
    heavy = ChatMessage(Role.TOOL, Content('excerpt … ref="a1"'), tool_call_id="1")
    user = said(Role.USER, "?")
    assert "artifact_fetch" not in names_of(decision_turn(asked(user, tools=[fetch, NOW]), WINDOW).request)
    assert "artifact_fetch" in names_of(decision_turn(asked(user, call, heavy, tools=[fetch, NOW]), WINDOW).request)
    assert "artifact_fetch" in names_of(decision_turn(asked(user, tools=[fetch]), WINDOW).request)


def test_more_tools_than_examples_are_listed() -> None:
    """A tool without an example is at least named."""
    tools = [ToolDeclaration(f"tool{number}", f"Does\nthing {number}.") for number in range(10)]
    system = decision_turn(asked(tools=tools), WINDOW).request.messages[0].content.text
    assert system is not None
    assert system.endswith("More tools:\n- tool8: Does thing 8.\n- tool9: Does thing 9.")


def test_the_operators_words_come_before_an_attachment() -> None:
    """A first message without a text of its own is left as it is."""
    request = decision_turn(
        asked(said(Role.SYSTEM, "Be kind."), ChatMessage(Role.USER, Content(parts=[]))), WINDOW
    ).request
    assert request.messages[-2] == said(Role.USER, "Be kind.")


def test_the_callers_own_settings_win() -> None:
    """Temperature and length are the caller's, where given."""
    request = decision_turn(asked(temperature=0.7, max_tokens=50), WINDOW).request
    assert (request.temperature, request.max_tokens) == (0.7, 50)
    assert plain_request(asked(max_tokens=50), WINDOW).max_tokens == 50


def test_a_turn_that_may_not_call_keeps_its_prompt() -> None:
    """System messages stay, and calls of earlier turns are written as text."""
    system, question = said(Role.SYSTEM, "Be brief."), said(Role.USER, "?")
    call = ChatMessage(Role.ASSISTANT, tool_calls=[ToolCallStructured("1", "now")])
    result = ChatMessage(Role.TOOL, Content("noon"), tool_call_id="1")
    assert plain_request(asked(system, question), WINDOW).messages == (system, question)
    sent = plain_request(asked(system, question, call, result, tool_choice=ToolChoice.NONE), WINDOW)
    assert sent.tools == ()
    assert [message.content.text for message in sent.messages] == [
        "Be brief.",
        "?",
        '{"name": "now", "arguments": {}}',
        "Result: noon",
    ]


def called(*calls: tuple[str, str, bytes]) -> ChatMessage:
    """An assistant's message that calls tools: id, name, arguments."""
    return ChatMessage(Role.ASSISTANT, tool_calls=[ToolCallStructured(*call) for call in calls])


def result(id: str, text: str) -> ChatMessage:
    """A tool's answer."""
    return ChatMessage(Role.TOOL, Content(text), tool_call_id=id)


def flat(messages: list[ChatMessage]) -> list[tuple[str, str | None]]:
    """Role and text of each message."""
    return [(str(message.role), message.content.text) for message in messages]


def test_each_call_stands_before_its_own_result() -> None:
    """Calls that were made at once are written one after the other, in the order of their results."""
    messages = [
        said(Role.SYSTEM, "Be brief."),
        said(Role.USER, "Goal:\nAdd and tell"),
        called(("1", "add", b'{"a":1}'), ("2", "now", b"")),
        result("2", "noon"),
        result("1", "3"),
        said(Role.ASSISTANT, "3, at noon"),
        said(Role.USER, "Thanks"),
    ]
    assert flat(plain_messages(messages, answer="final_answer", longest_result=99)) == [
        ("user", "Add and tell"),
        ("assistant", '{"name": "now", "arguments": {}}'),
        ("user", "Result: noon"),
        ("assistant", '{"name": "add", "arguments": {"a": 1}}'),
        ("user", "Result: 3"),
        ("assistant", '{"name": "final_answer", "arguments": {"text": "3, at noon"}}'),
        ("user", "Thanks"),
    ]


def test_answers_stay_words_where_no_call_may_follow() -> None:
    """A turn without tools has no form to keep to."""
    assert flat(plain_messages([said(Role.ASSISTANT, "Yes")], answer="", longest_result=9)) == [("assistant", "Yes")]


def test_long_results_lose_their_middle() -> None:
    """Beginning and end say the most."""
    (_, result_text) = flat(
        plain_messages([called(("1", "x", b"")), result("1", "a" * 80 + "z" * 80)], answer="", longest_result=40)
    )
    assert result_text[1] is not None
    assert len(result_text[1]) == len("Result: ") + 40
    assert result_text[1].startswith("Result: aaa")
    assert result_text[1].endswith("zzz")


@each_row("most", [0, 1, 4, 5, 20, 99])
def test_clipping_keeps_to_the_length(most: int) -> None:
    """Whatever the room, no more than it is used."""
    assert len(clip("x" * 60, most)) <= most
    assert clip("short", 5) == "short"


def test_media_leave_their_words_and_their_stubs() -> None:
    """A result in parts is its texts and the stubs of stored bytes."""
    parts = [
        TextPart("two"),
        ImagePart(artifact=ArtifactStub("r1", "image/png", 9)),
        ImagePart(url="https://x.example"),
    ]
    message = ChatMessage(Role.TOOL, Content(parts=parts), tool_call_id="")
    (written,) = flat(plain_messages([message], answer="", longest_result=200))
    assert written == ("user", 'Result: two\n{"artifact_ref":"r1","mime":"image/png","size_bytes":9}')


def test_attachments_of_the_user_are_left_alone() -> None:
    """The driver below knows what to do with them."""
    message = ChatMessage(Role.USER, Content(parts=[ImagePart(url="https://x.example")]))
    assert plain_messages([message], answer="", longest_result=9) == [message]


def test_sections_about_native_calls_are_dropped() -> None:
    """The sections on tool calls for large models are left out; the operator's words stay."""
    prompt = (
        "<identity>\nYou are an agent.\n</identity>\n\n<tool_usage>\nCall <b>\nonly tools.\n</tool_usage>\n\n"
        "<available_tools>\n- x: y\n</available_tools>\n\n"
        "<additional_guidance>\nSay please.\n</additional_guidance>\n\n"
        "<planning_constraints>\nUse at most 3 steps.\n</planning_constraints>"
    )
    assert compact_prompt(prompt, 999) == "Say please.\nUse at most 3 steps."
    assert compact_prompt("You are a pirate.", 999) == "You are a pirate."
    assert len(compact_prompt("You are a pirate. " * 99, 50)) == 50


def test_the_prompt_of_the_planner_leaves_nothing() -> None:
    """Every fixed section of the built-in prompt is one that is dropped."""
    from harborage.planner.react.prompt import render_default_sections

    assert compact_prompt("\n\n".join(render_default_sections("2026-01-31")), 999) == ""


def test_notes_are_what_the_system_messages_say() -> None:
    """All of them, in their order, within the room."""
    messages = [said(Role.SYSTEM, "One."), said(Role.USER, "x"), said(Role.SYSTEM, "Two.")]
    assert system_notes(messages, 99) == "One.\nTwo."
    assert len(system_notes(messages, 7)) == 7
    assert system_notes(messages[1:2], 99) == ""


def test_a_repeat_is_the_same_call_since_the_user_spoke() -> None:
    """The same name and arguments, however they are written, and a result that is here already."""
    history = [said(Role.USER, "?"), called(("1", "add", b'{"a": 1}')), result("1", "3")]
    again = json.dumps({"a": 1}).encode()
    assert is_repeat(history, "add", again)
    assert not is_repeat(history, "add", b'{"a":2}')
    assert not is_repeat(history, "sub", again)
    assert not is_repeat(history[:2], "add", again)
    assert not is_repeat([*history, said(Role.USER, "once more")], "add", again)
    assert is_repeat([*history, called(("2", "now", b"")), result("2", "noon")], "add", again)
    assert not is_repeat([], "add", again)


@each_row(
    "text, lines",
    [
        ("plain words", "plain words"),
        ("391", "391"),
        ("{}", "{}"),
        ("[" * 5_000, "[" * 5_000),
        ('{"expression":"17 * 23","result":391}', "expression: 17 * 23\nresult: 391"),
        ('{"size_bytes":8,"is_new":true,"by":null,"tags":[]}', "size bytes: 8\nis new: true\nby: null\ntags: []"),
        ('{"entries":[{"path":"a","size":1},{"path":"b"}]}', "entries:\n  - path: a, size: 1\n  - path: b"),
        ('["a",["b"]]', "- a\n-\n  - b"),
    ],
)
def test_results_are_given_in_words(text: str, lines: str) -> None:
    """A small model reads lines better than JSON; what is no JSON stays as it is."""
    assert to_readable(text) == lines


def test_what_was_found_is_what_came_since_the_user_spoke() -> None:
    """Earlier results belong to earlier questions."""
    messages = [
        said(Role.USER, "1"),
        result("1", "old"),
        said(Role.USER, "Goal:\n2"),
        result("2", "a"),
        result("3", "b"),
    ]
    assert question_and_results(messages, 99) == ("2", "a\n\nb")
    assert question_and_results(messages, 3)[1] == "a\n\n"[:3]
    assert question_and_results(messages[1:2], 99) == ("", "old")


def test_only_a_result_that_is_none_of_a_failure_can_be_answered_from() -> None:
    """A call that failed may be mended by another."""
    assert is_answerable([result("1", "3")])
    assert not is_answerable([result("1", "error: no such file")])
    assert not is_answerable([result("1", '{"error":"no such file"}')])
    assert not is_answerable([said(Role.USER, "?")])
    assert not is_answerable([])
