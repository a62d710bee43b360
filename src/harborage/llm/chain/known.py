"""What is known of each message of a conversation: that it is well-formed, its size, and the calls that it is about.

A message is looked at once; after that, asking again costs a look beside it. A run sends its whole history with every
step, so everything that is asked of every message of every call is asked here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from harborage.llm.chain.data_urls import utf8_size
from harborage.llm.chain.memo import kept_with
from harborage.llm.chain.tokens import message_tokens
from harborage.llm.client import ChatMessage, Role, ToolCallStructured, check_message
from harborage.llm.content import AudioPart, Content, FilePart, ImagePart, Part, TextPart
from harborage.llm.errors import InvalidContentError

__all__ = ["LEGAL_NAME", "MessageFacts", "facts_of"]

LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""The tool names that every provider takes."""

_FACTS: Final = "llm.facts"
_ROLES: Final = tuple(Role)
_ASSISTANT: Final = Role.ASSISTANT
_TOOL: Final = Role.TOOL


class MessageFacts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the chain wants to know of a well-formed message.

    `tokens` is an estimate, `longest_text` the bytes of the only or the longest text. `asks` are the ids of the calls
    it makes, None unless each has one of its own; a tool's message is an answer, which `answers` the call of that id.
    `called` names the tools of its calls, of which a provider would refuse one if `has_odd_name`.
    """

    tokens: int
    longest_text: int = 0
    has_parts: bool = False
    has_data_url: bool = False
    is_answer: bool = False
    answers: str | None = None
    asks: tuple[str, ...] | None = ()
    called: tuple[str, ...] = ()
    has_odd_name: bool = False


def facts_of(messages: Sequence[ChatMessage]) -> list[MessageFacts]:
    """What is known of each message.

    Raises:
        InvalidContentError: a message is malformed; the text begins with its index.
    """
    try:
        # The memo is read here and not through `kept_with`: a call for each message is what most of the time would go.
        return [message.__dict__.get(_FACTS) or kept_with(message, _FACTS, _learn) for message in messages]
    except (AttributeError, InvalidContentError):
        for index, message in enumerate(messages):
            _check(message, index)
        raise


def _learn(message: ChatMessage) -> MessageFacts:
    _check(message)
    facts: dict[str, Any] = {"tokens": message_tokens(message)}
    content = message.content
    if content.text is not None:
        facts["longest_text"] = utf8_size(content.text)
    elif content.parts:
        facts |= _of_parts(content.parts)
    if message.role == _TOOL:
        facts |= {"is_answer": True, "answers": message.tool_call_id}
    if message.tool_calls:
        facts |= _of_calls(message.tool_calls, message.role)
    return MessageFacts(**facts)


def _of_parts(parts: Sequence[Part]) -> dict[str, Any]:
    texts = [utf8_size(part.text) for part in parts if isinstance(part, TextPart)]
    has_data_url = any(part.data_url for part in parts if not isinstance(part, TextPart))
    return {"has_parts": True, "has_data_url": has_data_url, "longest_text": max(texts, default=0)}


def _of_calls(calls: Sequence[ToolCallStructured], role: Role) -> dict[str, Any]:
    called = tuple({call.name for call in calls})
    facts: dict[str, Any] = {"called": called, "has_odd_name": not all(map(LEGAL_NAME.fullmatch, called))}
    if role == _ASSISTANT:
        ids = tuple(call.id for call in calls)
        facts["asks"] = ids if all(ids) and len(set(ids)) == len(ids) else None
    return facts


def _check(message: object, index: int = 0) -> None:
    if not isinstance(message, ChatMessage):
        raise InvalidContentError(f"message {index} is a {type(message).__name__}; give a ChatMessage")
    if message.role not in _ROLES:
        raise InvalidContentError(f"message {index} has the role {message.role!r}; give a Role: {', '.join(Role)}")
    if not isinstance(message.content, Content):
        raise InvalidContentError(
            f"message {index} has a {type(message.content).__name__} as content; give Content(text) or Content(parts=…)"
        )
    try:
        check_message(message)
    except InvalidContentError as error:
        raise InvalidContentError(f"message {index}: {error}") from error
    if message.content.text is not None and not isinstance(message.content.text, str):
        raise InvalidContentError(f"message {index} has a {type(message.content.text).__name__} as text; give a str")
    for at, part in enumerate(message.content.parts or ()):
        if isinstance(part, ImagePart | AudioPart | FilePart) and part.url[:5].lower() == "data:":
            # It would pass by everything that keeps heavy content away from a model.
            raise InvalidContentError(f"message {index}, part {at} has a data URL as url; give it as data_url")
