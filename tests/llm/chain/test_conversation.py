"""A conversation that has grown is read where it has grown, and comes to the same as if it were read whole."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage.llm import (
    ChatMessage,
    Content,
    ImagePart,
    InvalidContentError,
    LLMError,
    OrphanToolCallError,
    Role,
    ToolCallStructured,
)
from harborage.llm.chain import conversation
from harborage.llm.chain.conversation import Conversation, read_conversation
from harborage.llm.chain.known import facts_of
from harborage.llm.chain.tokens import message_tokens

Messages = list[ChatMessage]


def said(text: str, role: Role = Role.USER) -> ChatMessage:
    """A message of one text."""
    return ChatMessage(role, Content(text))


def turn(*ids: str, tool: str = "echo") -> Messages:
    """A turn's calls and their answers."""
    calls = [ToolCallStructured(one, tool) for one in ids]
    answers = [ChatMessage(Role.TOOL, Content(one), tool_call_id=one) for one in ids]
    return [ChatMessage(Role.ASSISTANT, tool_calls=calls), *answers]


def image() -> ChatMessage:
    """A message with an inline image."""
    return ChatMessage(Role.USER, Content(parts=[ImagePart(data_url="data:,x")]))


def copied(messages: Messages) -> Messages:
    """Equal messages of which nothing is known."""
    return [ChatMessage(one.role, one.content, one.name, one.tool_call_id, one.tool_calls) for one in messages]


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many messages each reading has looked at."""
    counts: list[int] = []

    def counting(messages: Messages, start: int) -> list[object]:
        counts.append(len(messages) - start)
        return facts_of(messages, start)

    monkeypatch.setattr(conversation, "facts_of", counting)
    return counts


def test_what_a_conversation_comes_to() -> None:
    """Sizes and places are those of its messages, names those of its calls."""
    messages = [said("be brief", Role.SYSTEM), image(), *turn("a", "b"), image(), *turn("c", tool="add"), said("ä" * 9)]
    tokens = sum(map(message_tokens, messages))
    assert read_conversation(messages) == Conversation(tokens, 18, (1, 5), frozenset({"echo", "add"}))
    assert read_conversation([]) == Conversation()


def test_only_what_is_new_is_looked_at(looked_at: list[int]) -> None:
    """A step brings a turn; what came before it is known, with a system message made anew and with what comes last."""
    history = [said("goal")]
    for step in range(5):
        history += turn(f"{step}", f"{step}b")
        read_conversation([said("be brief", Role.SYSTEM), *history, said(f"status {step}")])
    assert looked_at == [6, 4, 4, 4, 4]


def test_the_same_conversation_again(looked_at: list[int]) -> None:
    """Every layer of a chain may ask."""
    messages = [said("goal"), *turn("a")]
    first = read_conversation(messages)
    assert read_conversation(tuple(messages)) == first
    assert looked_at == [3]


@pytest.mark.parametrize("change", ["instead", "before", "gone"])
def test_another_beginning(looked_at: list[int], change: str) -> None:
    """Where anything before is not what it was, everything is looked at again."""
    system, *history = [said("be brief", Role.SYSTEM), said("goal"), *turn("a")]
    read_conversation([system, *history])
    beginning = {"instead": [said("be long", Role.SYSTEM)], "before": [system, system], "gone": []}[change]
    messages = [*beginning, *history, *turn("b")]
    assert read_conversation(messages) == read_conversation(copied(messages))
    assert looked_at[1] == len(messages)


def test_errors_name_places_in_the_whole() -> None:
    """What is wrong behind a beginning that is known is told as if all had been read."""
    history = [said("goal"), *turn("a")]
    read_conversation(history)
    with pytest.raises(InvalidContentError, match=r"^message 4: "):
        read_conversation([*history, said("go on"), ChatMessage(Role.USER, Content())])
    with pytest.raises(OrphanToolCallError, match=r"^message 3 \(tool\) answers 'a', but no call is without"):
        read_conversation([*history, history[-1]])
    with pytest.raises(OrphanToolCallError, match=r"^the conversation of 4 message\(s\) ends without .* 'b'"):
        read_conversation([*history, turn("b")[0]])


def test_one_beginning_is_kept_for_a_run() -> None:
    """However long a run is, what is kept beside its messages holds its history once."""
    history: Messages = []
    for step in range(20):
        history += turn(f"{step}")
        read_conversation([said("be brief" if step % 2 else "be long", Role.SYSTEM), *history])
        read_conversation(history)
    assert sum("llm.read" in vars(one) for one in history) == 1


class Watched(ChatMessage, frozen=True, weakref=True):
    """A message of which one can tell that it is gone."""


def test_a_run_that_is_over_is_gone() -> None:
    """What is kept beside its messages makes no cycle that would hold them."""
    goal = Watched(Role.USER, Content("goal"))
    alive = weakref.ref(goal)
    history = [goal, *turn("a")]
    del goal
    read_conversation(history)
    history += turn("b")
    read_conversation(history)
    gc.disable()
    try:
        history.clear()
        assert alive() is None
    finally:
        gc.enable()


PIECES = st.sampled_from(["user", "image", "turn", "turns", "call", "answer", "malformed"])


@given(st.lists(st.lists(PIECES, max_size=4), max_size=5), st.sets(st.integers(0, 5)))
def test_growing_is_no_different_from_reading_whole(steps: list[list[str]], renewed: set[int]) -> None:
    """Whatever is added at each step, results and errors are those of a conversation that nobody has read before."""
    history: Messages = []
    head = said("be brief", Role.SYSTEM)
    for at, pieces in enumerate(steps):
        head = said(f"step {at}", Role.SYSTEM) if at in renewed else head
        for piece in pieces:
            history += PIECE[piece](f"{len(history)}")
        assert outcome([head, *history]) == outcome(copied([head, *history]))


PIECE: dict[str, Callable[[str], Messages]] = {
    "user": lambda one: [said(one)],
    "image": lambda _: [image()],
    "turn": turn,
    "turns": lambda one: turn(one, f"{one}b", tool=f"tool {one}"),
    "call": lambda one: turn(one)[:1],
    "answer": lambda one: turn(one)[1:],
    "malformed": lambda _: [ChatMessage(Role.USER, Content())],
}


def outcome(messages: Messages) -> object:
    """What reading them gives, or the error's kind and text."""
    try:
        return read_conversation(messages)
    except LLMError as error:
        return type(error), str(error)
