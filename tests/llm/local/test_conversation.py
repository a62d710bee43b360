"""Native tool calls as a plain conversation, and what is left of a long system prompt."""

from __future__ import annotations

import json

from harborage.llm import ArtifactStub, ChatMessage, Content, ImagePart, Role, TextPart, ToolCallStructured
from harborage.llm.local.conversation import (
    clipped,
    compacted,
    found,
    is_answerable,
    is_repeat,
    notes,
    plain,
    readable,
)
from tests.kit.tables import each_row


def said(role: Role, text: str) -> ChatMessage:
    """A message of one text."""
    return ChatMessage(role, Content(text))


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
    """Calls that were made at once are told one after the other, in the order of their results."""
    messages = [
        said(Role.SYSTEM, "Be brief."),
        said(Role.USER, "Goal:\nAdd and tell"),
        called(("1", "add", b'{"a":1}'), ("2", "now", b"")),
        result("2", "noon"),
        result("1", "3"),
        said(Role.ASSISTANT, "3, at noon"),
        said(Role.USER, "Thanks"),
    ]
    assert flat(plain(messages, answer="final_answer", longest_result=99)) == [
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
    assert flat(plain([said(Role.ASSISTANT, "Yes")], answer="", longest_result=9)) == [("assistant", "Yes")]


def test_long_results_lose_their_middle() -> None:
    """Beginning and end say the most."""
    (_, told) = flat(plain([called(("1", "x", b"")), result("1", "a" * 80 + "z" * 80)], answer="", longest_result=40))
    assert told[1] is not None
    assert len(told[1]) == len("Result: ") + 40
    assert told[1].startswith("Result: aaa")
    assert told[1].endswith("zzz")


@each_row("most", [0, 1, 4, 5, 20, 99])
def test_clipping_keeps_to_the_length(most: int) -> None:
    """Whatever the room, no more than it is used."""
    assert len(clipped("x" * 60, most)) <= most
    assert clipped("short", 5) == "short"


def test_media_leave_their_words_and_their_stubs() -> None:
    """A result in parts is told by its texts and by what stands for stored bytes."""
    parts = [
        TextPart("two"),
        ImagePart(artifact=ArtifactStub("r1", "image/png", 9)),
        ImagePart(url="https://x.example"),
    ]
    message = ChatMessage(Role.TOOL, Content(parts=parts), tool_call_id="")
    (told,) = flat(plain([message], answer="", longest_result=200))
    assert told == ("user", 'Result: two\n{"artifact_ref":"r1","mime":"image/png","size_bytes":9}')


def test_attachments_of_the_user_are_left_alone() -> None:
    """The driver below knows what to do with them."""
    message = ChatMessage(Role.USER, Content(parts=[ImagePart(url="https://x.example")]))
    assert plain([message], answer="", longest_result=9) == [message]


def test_sections_about_native_calls_are_dropped() -> None:
    """What tells a large model how to call tools does not help a small one; the operator's words stay."""
    prompt = (
        "<identity>\nYou are an agent.\n</identity>\n\n<tool_usage>\nCall <b>\nonly tools.\n</tool_usage>\n\n"
        "<available_tools>\n- x: y\n</available_tools>\n\n"
        "<additional_guidance>\nSay please.\n</additional_guidance>\n\n"
        "<planning_constraints>\nUse at most 3 steps.\n</planning_constraints>"
    )
    assert compacted(prompt, 999) == "Say please.\nUse at most 3 steps."
    assert compacted("You are a pirate.", 999) == "You are a pirate."
    assert len(compacted("You are a pirate. " * 99, 50)) == 50


def test_the_prompt_of_the_planner_leaves_nothing() -> None:
    """Every fixed section of the built-in prompt is one that is dropped."""
    from harborage.planner.react.prompt import render_default_sections

    assert compacted("\n\n".join(render_default_sections("2026-01-31")), 999) == ""


def test_notes_are_what_the_system_messages_say() -> None:
    """All of them, in their order, within the room."""
    messages = [said(Role.SYSTEM, "One."), said(Role.USER, "x"), said(Role.SYSTEM, "Two.")]
    assert notes(messages, 99) == "One.\nTwo."
    assert len(notes(messages, 7)) == 7
    assert notes(messages[1:2], 99) == ""


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
def test_results_are_told_in_words(text: str, lines: str) -> None:
    """A small model reads lines better than JSON; what is no JSON stays as it is."""
    assert readable(text) == lines


def test_what_was_found_is_what_came_since_the_user_spoke() -> None:
    """Earlier results belong to earlier questions."""
    messages = [
        said(Role.USER, "1"),
        result("1", "old"),
        said(Role.USER, "Goal:\n2"),
        result("2", "a"),
        result("3", "b"),
    ]
    assert found(messages, 99) == ("2", "a\n\nb")
    assert found(messages, 3)[1] == "a\n\n"[:3]
    assert found(messages[1:2], 99) == ("", "old")


def test_only_a_result_that_is_none_of_a_failure_can_be_answered_from() -> None:
    """A call that failed may be mended by another."""
    assert is_answerable([result("1", "3")])
    assert not is_answerable([result("1", "error: no such file")])
    assert not is_answerable([result("1", '{"error":"no such file"}')])
    assert not is_answerable([said(Role.USER, "?")])
    assert not is_answerable([])
