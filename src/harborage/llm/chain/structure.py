"""What a list of messages must look like before anything else is asked of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from harborage.llm.chain.known import MessageFacts, facts_of
from harborage.llm.chain.pairing import check_pairing
from harborage.llm.client import ChatMessage
from harborage.llm.errors import InvalidConfigError

__all__ = ["check_structure"]


def check_structure(model: str, messages: Sequence[ChatMessage]) -> list[MessageFacts]:
    """What is known of each message of a conversation that is well-formed.

    Raises:
        InvalidConfigError: no model is named.
        InvalidContentError: a message is malformed; the text begins with its index.
        OrphanToolCallError: tool calls and their answers do not pair.
    """
    if not model:
        raise InvalidConfigError("llm: no model: set llm.model, or name one in the request")
    known = facts_of(messages)
    check_pairing(messages, known)
    return known
