"""Messages are well-formed before anything else is asked of them."""

from __future__ import annotations

import pytest

from harborage.llm import (
    ArtifactStub,
    ChatMessage,
    Content,
    ImagePart,
    InvalidConfigError,
    InvalidContentError,
    OrphanToolCallError,
    Role,
    TextPart,
    ToolCallStructured,
)
from harborage.llm.chain.structure import check_structure

USER = ChatMessage(Role.USER, Content("hi"))
IMAGE = ChatMessage(Role.USER, Content(parts=[ImagePart(url="https://x/y.png")]))


def test_the_messages_with_data_urls_are_found() -> None:
    """A well-formed conversation gives the places of its messages that hold heavy content inline."""
    empty = ChatMessage(Role.USER, Content(parts=[]))
    calls = ChatMessage(Role.ASSISTANT, tool_calls=[ToolCallStructured("a", "echo")])
    answer = ChatMessage(Role.TOOL, Content("1"), tool_call_id="a")
    stub = ChatMessage(
        Role.USER, Content(parts=[TextPart("see"), ImagePart(artifact=ArtifactStub("r", "image/png", 1))])
    )
    inline = ChatMessage(Role.USER, Content(parts=[TextPart("see"), ImagePart(data_url="data:,x")]))
    assert check_structure("m", [USER, inline, IMAGE, empty, calls, answer, stub, inline]).data_urls == (1, 7)


def test_an_empty_text_is_a_text() -> None:
    """A text may be empty, whoever says it."""
    assert check_structure("m", [ChatMessage(role, Content("")) for role in (Role.USER, Role.SYSTEM)]).longest_text == 0


def test_a_model_must_be_named() -> None:
    """No model is told before anything about the messages."""
    with pytest.raises(InvalidConfigError, match=r"set llm\.model"):
        check_structure("", [ChatMessage(Role.USER, Content("a", ()))])


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (ChatMessage(Role.USER, Content("a", ())), "both text and parts"),
        (ChatMessage(Role.USER, Content()), "neither text nor parts"),
        (ChatMessage(Role.ASSISTANT, Content()), "neither text nor parts"),
        (ChatMessage(Role.USER, Content(parts=[ImagePart()])), "part 0 .ImagePart. has no body"),
        (ChatMessage(Role.USER, Content(parts=["text"])), "part 0 is a str"),
        (ChatMessage(Role.USER, Content(parts=[ImagePart(url="data:image/png;base64,AA==")])), "give it as data_url"),
        (ChatMessage(Role.USER, Content(7)), "has a int as text"),
        (ChatMessage(Role.USER, "hi"), r"has a str as content; give Content\(text\)"),
        (ChatMessage("human", Content("hi")), "the role 'human'; give a Role: system, user, assistant, tool"),
        ({"role": "user", "content": "hi"}, "is a dict; give a ChatMessage"),
    ],
)
def test_a_malformed_message_is_named(message, text: str) -> None:
    """The error begins with the message's index and says what is wrong."""
    with pytest.raises(InvalidContentError, match=rf"^message 1.*{text}"):
        check_structure("m", [USER, message])


def test_content_is_told_before_pairing() -> None:
    """A malformed message is reported even where an earlier one breaks the pairing."""
    orphan = ChatMessage(Role.TOOL, Content("1"), tool_call_id="a")
    with pytest.raises(InvalidContentError, match="message 1"):
        check_structure("m", [orphan, ChatMessage(Role.USER, Content())])
    with pytest.raises(OrphanToolCallError, match="message 0"):
        check_structure("m", [orphan, USER])
