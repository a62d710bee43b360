"""What a list of messages must look like before anything else is asked of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from harborage.llm.chain.pairing import check_pairing
from harborage.llm.client import ChatMessage, Role, check_message
from harborage.llm.content import AudioPart, Content, FilePart, ImagePart
from harborage.llm.errors import InvalidConfigError, InvalidContentError

__all__ = ["check_structure"]

# A tuple that begins with the most frequent: telling a member by identity costs less than hashing it.
_ROLES: Final = (Role.TOOL, Role.ASSISTANT, Role.USER, Role.SYSTEM)


def check_structure(model: str, messages: Sequence[ChatMessage]) -> list[int]:
    """The places of the messages that are made of parts, in a conversation that is well-formed.

    Raises:
        InvalidConfigError: no model is named.
        InvalidContentError: a message is malformed; the text begins with its index.
        OrphanToolCallError: tool calls and their answers do not pair.
    """
    if not model:
        raise InvalidConfigError("llm: no model: set llm.model, or name one in the request")
    multipart = []
    for index, message in enumerate(messages):
        # Nearly every message is a plain text under a known role; the rest is looked at closely.
        try:
            content = message.content
            is_plain = type(content.text) is str and content.parts is None and message.role in _ROLES
        except AttributeError:
            is_plain = False
        if is_plain:
            continue
        _check(message, index)
        if message.content.parts:
            multipart.append(index)
    check_pairing(messages)
    return multipart


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
