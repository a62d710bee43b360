"""Every tool call has exactly one answer, right behind it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage.llm import ChatMessage, Content, OrphanToolCallError, Role, ToolCallStructured
from harborage.llm.chain.pairing import check_pairing


def asks(*ids: str) -> ChatMessage:
    """An assistant that makes these calls."""
    return ChatMessage(Role.ASSISTANT, tool_calls=[ToolCallStructured(one, "echo") for one in ids])


def answers(id: str | None) -> ChatMessage:
    """A tool's answer."""
    return ChatMessage(Role.TOOL, Content("1"), tool_call_id=id)


USER = ChatMessage(Role.USER, Content("hi"))
SYSTEM = ChatMessage(Role.SYSTEM, Content("be brief"))
PLAIN = ChatMessage(Role.ASSISTANT, Content("hello"))


@pytest.mark.parametrize(
    "messages",
    [
        (),
        (SYSTEM, USER, PLAIN, USER),
        (USER, asks("a"), answers("a"), USER),
        (USER, asks("a", "b"), answers("b"), answers("a")),
        (USER, asks("a"), answers("a"), asks("a"), answers("a")),
    ],
    ids=["empty", "plain", "one call", "parallel calls in any order", "an id used again later"],
)
def test_a_paired_conversation_passes(messages) -> None:
    """Answers follow their calls, each once."""
    check_pairing(messages)


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ((answers("a"),), r"message 0 \(tool\) answers 'a', but no call is without an answer"),
        ((USER, asks("a", "b"), answers("a")), "ends without answers to the calls 'b'"),
        ((asks("a"), USER), r"message 1 \(user\) comes before the answers to the calls 'a'"),
        ((asks("a"), SYSTEM), r"message 1 \(system\) comes before"),
        ((asks("a"), PLAIN), r"message 1 \(assistant\) comes before"),
        ((asks("a"), asks("b")), r"message 1 \(assistant\) comes before"),
        ((asks("a"), answers("b")), r"message 1 \(tool\) answers 'b', but the calls without an answer are 'a'"),
        ((asks("a"), answers("a"), answers("a")), r"message 2 \(tool\) answers 'a'"),
        ((asks("a"), answers(None)), r"message 1 \(tool\) names no call: set tool_call_id"),
        ((asks("a"), answers("")), r"message 1 \(tool\) names no call"),
        ((asks("a", ""),), r"message 0 \(assistant\) needs an id of its own for each call"),
        ((asks(""),), r"message 0 \(assistant\) needs an id of its own"),
        ((asks("a", "a"),), r"message 0 \(assistant\) needs an id of its own for each call: 'a', 'a'"),
    ],
)
def test_an_orphan_is_named(messages, text: str) -> None:
    """The first place where calls and answers do not pair is told, with the ids."""
    with pytest.raises(OrphanToolCallError, match=text):
        check_pairing(messages)


@given(st.lists(st.lists(st.sampled_from("abcd"), unique=True, min_size=1), max_size=4), st.randoms())
def test_legal_conversations_pass_and_lose_no_message(turns: list[list[str]], random) -> None:
    """Any turns of answered calls pass; without any one of the answers they do not."""
    messages: list[ChatMessage] = [USER]
    for ids in turns:
        messages += [asks(*ids), *(answers(one) for one in random.sample(ids, len(ids)))]
    check_pairing(messages)
    for at, message in enumerate(messages):
        if message.role is Role.TOOL:
            with pytest.raises(OrphanToolCallError):
                check_pairing(messages[:at] + messages[at + 1 :])
