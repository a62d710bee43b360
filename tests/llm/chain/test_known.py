"""A message is looked at once, and what is known of it is true."""

from __future__ import annotations

import pytest

from harborage.llm import ChatMessage, Content, ImagePart, InvalidContentError, Role, TextPart, ToolCallStructured
from harborage.llm.chain.known import MessageFacts, facts_of


def calls(*ids: str) -> ChatMessage:
    """An assistant that makes these calls."""
    return ChatMessage(Role.ASSISTANT, tool_calls=[ToolCallStructured(one, "echo") for one in ids])


def known(message: ChatMessage) -> MessageFacts:
    """What is known of one message."""
    (facts,) = facts_of([message])
    return facts


@pytest.mark.parametrize(
    ("content", "longest", "has_data_url"),
    [
        (Content("äb"), 3, False),
        (Content(""), 0, False),
        (Content(parts=[]), 0, False),
        (Content(parts=[TextPart("abc"), TextPart("é")]), 3, False),
        (Content(parts=[ImagePart(url="https://x/y")]), 0, False),
        (Content(parts=[ImagePart(data_url="data:,x"), ImagePart(url="u")]), 0, True),
    ],
)
def test_content(content: Content, longest: int, has_data_url: bool) -> None:
    """The longest text is told in bytes, and whether anything heavy may be inline."""
    facts = known(ChatMessage(Role.USER, content))
    assert (facts.longest_text, facts.has_data_url) == (longest, has_data_url)


@pytest.mark.parametrize(("ids", "asks"), [(("a", "b"), ("a", "b")), (("a", ""), None), (("a", "a"), None)])
def test_calls(ids: tuple[str, ...], asks: tuple[str, ...] | None) -> None:
    """A turn's calls are known by their ids, if each has one of its own."""
    facts = known(calls(*ids))
    assert (facts.asks, facts.called, facts.is_answer) == (asks, ("echo",), False)


def test_an_answer() -> None:
    """A tool's message is an answer, also when it names no call; a user's is none whatever it names."""
    assert known(ChatMessage(Role.TOOL, Content("1"), tool_call_id="a")).answers == "a"
    assert known(ChatMessage(Role.TOOL, Content("1"))).is_answer
    assert known(ChatMessage(Role.USER, Content("1"), tool_call_id="a")).answers is None


def test_a_message_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second time it is known; a new one that is equal is not."""
    message = ChatMessage(Role.USER, Content("hi"))
    first = known(message)
    seen: list[object] = []
    monkeypatch.setattr("harborage.llm.chain.known.check_message", seen.append)
    assert known(message) is first
    assert seen == []
    other = ChatMessage(Role.USER, Content("hi"))
    assert known(other) == first
    assert seen == [other]


def test_a_malformed_message_stays_malformed() -> None:
    """Nothing is remembered of it, so it is refused as often as it comes, by its index among all."""
    good, bad = ChatMessage(Role.USER, Content("hi")), ChatMessage(Role.USER, Content())
    for _ in range(2):
        with pytest.raises(InvalidContentError, match=r"^message 2: "):
            facts_of([good, good, bad], 1)
