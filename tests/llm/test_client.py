"""Requests and answers are frozen values, and the client's contract is two methods."""

from __future__ import annotations

import pytest

from harborage import codec, identity
from harborage.errors import HarborageError
from harborage.llm import (
    ChatMessage,
    ClientClosedError,
    CompleteRequest,
    CompleteResponse,
    Content,
    Cost,
    IdentityMissingError,
    InvalidContentError,
    LLMClient,
    LLMError,
    ReasoningEffort,
    ResponseFormat,
    ResponseFormatKind,
    Role,
    ToolCallStructured,
    ToolChoice,
    ToolDeclaration,
    Usage,
    check_message,
)

CALL = ToolCallStructured(id="c1", name="echo", args=b'{"a":1}')


def test_a_message_survives_the_wire() -> None:
    """A conversation with calls and answers comes back as it was."""
    messages = (
        ChatMessage(Role.SYSTEM, Content("be brief")),
        ChatMessage(Role.USER, Content("hi"), name="ada"),
        ChatMessage(Role.ASSISTANT, tool_calls=[CALL]),
        ChatMessage(Role.TOOL, Content("1"), tool_call_id="c1"),
    )
    assert codec.decode(codec.encode(messages), tuple[ChatMessage, ...]) == messages


def test_a_response_survives_the_wire() -> None:
    """An answer with calls, cost and usage comes back as it was."""
    response = CompleteResponse("hi", [CALL], "because", Cost(total_cost=0.5, currency="USD"), Usage(latency_ms=3))
    assert codec.decode(codec.encode(response), CompleteResponse) == response


def test_callers_lists_are_not_kept() -> None:
    """What was handed in as a list is a tuple in the value, so appending later does not reach a call in flight."""
    messages, tools, stops, calls = [ChatMessage(Role.USER)], [ToolDeclaration("t")], ["."], [CALL]
    request = CompleteRequest(messages=messages, tools=tools, stops=stops)
    message, response = ChatMessage(Role.ASSISTANT, tool_calls=calls), CompleteResponse(tool_calls=calls)
    for each in (messages, tools, stops, calls):
        each.clear()
    assert (len(request.messages), len(request.tools), len(request.stops)) == (1, 1, 1)
    assert message.tool_calls == response.tool_calls == (CALL,)


def test_requests_share_no_default() -> None:
    """Two requests made without extras do not write into one dictionary."""
    one, other = CompleteRequest(), CompleteRequest()
    one.extra["seed"] = 1
    assert other.extra == {}


def test_unset_is_not_zero() -> None:
    """A temperature of zero and a limit differ from the provider's default."""
    assert CompleteRequest().temperature is None
    assert CompleteRequest().max_tokens is None
    assert CompleteRequest(temperature=0.0).temperature == 0.0


def test_the_wire_words_are_fixed() -> None:
    """The words that reach providers and stored records."""
    assert [*Role] == ["system", "user", "assistant", "tool"]
    assert [*ReasoningEffort] == ["", "off", "low", "medium", "high"]
    assert [*ToolChoice] == ["", "auto", "required", "none"]
    assert [*ResponseFormatKind] == ["text", "json_object", "json_schema"]
    assert ResponseFormat() == ResponseFormat(kind=ResponseFormatKind.TEXT, json_schema=b"")


def test_only_an_assistant_that_calls_tools_may_say_nothing() -> None:
    """Every other message needs content, and an assistant without calls does too."""
    check_message(ChatMessage(Role.ASSISTANT, tool_calls=[CALL]))
    check_message(ChatMessage(Role.ASSISTANT, Content("hi"), tool_calls=[CALL]))
    for silent in (ChatMessage(Role.ASSISTANT), ChatMessage(Role.USER, tool_calls=[CALL]), ChatMessage(Role.TOOL)):
        with pytest.raises(InvalidContentError, match="neither"):
            check_message(silent)


def test_a_client_is_anything_with_the_two_methods() -> None:
    """No base class is needed."""

    class Echo:
        async def complete(self, request: CompleteRequest) -> CompleteResponse:
            return CompleteResponse(content=request.model)

        async def close(self) -> None: ...

    assert isinstance(Echo(), LLMClient)
    assert not isinstance(object(), LLMClient)


def test_the_errors_of_the_edge_have_one_root() -> None:
    """Everything but the missing identity, which is the identity room's own, is an LLMError."""
    assert issubclass(LLMError, HarborageError)
    assert issubclass(ClientClosedError, LLMError)
    assert issubclass(InvalidContentError, LLMError)
    assert IdentityMissingError is identity.IdentityMissingError
    assert "open a new one" in str(ClientClosedError())
