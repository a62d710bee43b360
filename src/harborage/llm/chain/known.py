"""What is known of each message of a conversation: that it is well-formed, its size, and the calls that it is about.

A message is looked at once; what was found is kept beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from harborage.llm.chain.data_urls import utf8_size
from harborage.llm.chain.tokens import message_tokens
from harborage.llm.client import ChatMessage, Role, check_message
from harborage.llm.content import AudioPart, Content, FilePart, ImagePart, TextPart
from harborage.llm.errors import InvalidContentError
from harborage.llm.memo import kept_with

__all__ = ["MessageFacts", "facts_of"]

_FACTS: Final = "llm.facts"
_ROLES: Final = tuple(Role)
# Members of an enum are slow to reach.
_ASSISTANT: Final = Role.ASSISTANT
_TOOL: Final = Role.TOOL


class MessageFacts(msgspec.Struct, frozen=True, gc=False):
    """What the chain wants to know of a well-formed message.

    `tokens` is an estimate, `longest_text` the bytes of the only or the longest text. `called` are the names of the
    tools it calls, `asks` the ids of these calls where an assistant makes them: None unless each has one of its own. A
    tool's message is an answer, to the call that it `answers`.
    """

    tokens: int
    longest_text: int
    has_data_url: bool
    called: tuple[str, ...]
    asks: tuple[str, ...] | None
    is_answer: bool
    answers: str | None


def facts_of(messages: Sequence[ChatMessage], start: int = 0) -> list[MessageFacts]:
    """What is known of each message from `start` on.

    Raises:
        InvalidContentError: one is malformed; the text begins with its index.
    """
    try:
        # The memo is read here and not through `kept_with`: most messages are known, and a call for each would cost
        # more than all the rest.
        return [message.__dict__.get(_FACTS) or kept_with(message, _FACTS, _learn) for message in messages[start:]]
    except (AttributeError, InvalidContentError):
        for index, message in enumerate(messages):
            _check(message, index)
        raise


def _learn(message: ChatMessage) -> MessageFacts:
    _check(message, 0)
    content, calls, role = message.content, message.tool_calls, message.role
    longest, has_data_url = 0, False
    if content.text is not None:
        longest = utf8_size(content.text)
    for part in content.parts or ():
        if isinstance(part, TextPart):
            longest = max(longest, utf8_size(part.text))
        else:
            has_data_url = has_data_url or bool(part.data_url)
    called = tuple({call.name for call in calls}) if calls else ()
    asks = _ids(message) if calls and role == _ASSISTANT else ()
    is_answer = role == _TOOL
    answers = message.tool_call_id if is_answer else None
    return MessageFacts(message_tokens(message), longest, has_data_url, called, asks, is_answer, answers)


def _ids(message: ChatMessage) -> tuple[str, ...] | None:
    ids = tuple([call.id for call in message.tool_calls])
    return ids if all(ids) and len(set(ids)) == len(ids) else None


def _check(message: object, index: int) -> None:
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
