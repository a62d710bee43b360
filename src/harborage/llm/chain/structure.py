"""What a list of messages must look like before anything else is asked of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from harborage.llm.chain.conversation import Conversation, read_conversation
from harborage.llm.errors import InvalidConfigError

if TYPE_CHECKING:
    from harborage.llm.client import ChatMessage

__all__ = ["check_structure"]


def check_structure(model: str, messages: Sequence[ChatMessage]) -> Conversation:
    """What is known of a conversation that is well-formed.

    Raises:
        InvalidConfigError: no model is named.
        InvalidContentError: a message is malformed; the text begins with its index.
        OrphanToolCallError: tool calls and their answers do not pair.
    """
    if not model:
        raise InvalidConfigError("llm: no model: set llm.model, or name one in the request")
    return read_conversation(messages)
