"""What is known of a whole conversation, added up from its messages; one that has grown is read where it has grown.

A run sends its whole history with every step. What the history up to the last answer of a tool came to is kept beside
that answer, with the messages before it: where they are the same again, only what follows is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from harborage.llm.chain.known import MessageFacts, facts_of
from harborage.llm.chain.pairing import check_pairing

if TYPE_CHECKING:
    from harborage.llm.client import ChatMessage

__all__ = ["Conversation", "read_conversation"]

_READ: Final = "llm.read"
_FARTHEST: Final = 64


class Conversation(msgspec.Struct, frozen=True):
    """A conversation that is well-formed and whose calls are all answered.

    `tokens` is an estimate, `longest_text` counts bytes, `data_urls` are the places of the messages that have some,
    `called` the names of the tools that are called.
    """

    tokens: int = 0
    longest_text: int = 0
    data_urls: tuple[int, ...] = ()
    called: frozenset[str] = frozenset()


class _Read(NamedTuple):
    """What is kept beside a message: the messages before it, and what they came to together with it."""

    before: tuple[ChatMessage, ...]
    found: Conversation


def read_conversation(messages: Sequence[ChatMessage]) -> Conversation:
    """What is known of these messages.

    Raises:
        InvalidContentError: a message is malformed; the text begins with its index.
        OrphanToolCallError: tool calls and their answers do not pair.
    """
    start, begun = _known_beginning(messages)
    if start == len(messages):
        return begun
    known = facts_of(messages, start)
    check_pairing(messages, known, start)
    answers = [at for at, one in enumerate(known, start) if one.is_answer]
    if not answers:
        return _with(begun, known, start)
    last = answers[-1]
    found = _with(begun, known[: last + 1 - start], start)
    vars(messages[last])[_READ] = _Read(tuple(messages[:last]), found)
    if start > 0:
        # What was known up to there is part of it now.
        del vars(messages[start - 1])[_READ]
    return _with(found, known[last + 1 - start :], last + 1)


def _known_beginning(messages: Sequence[ChatMessage]) -> tuple[int, Conversation]:
    """How many messages from the beginning on have been read before, and what they came to."""
    for at in range(len(messages) - 1, max(-1, len(messages) - 1 - _FARTHEST), -1):
        beside = getattr(messages[at], "__dict__", {})
        read: _Read | None = beside.get(_READ)
        if read is None:
            continue
        # Most of these are the very same objects, which are told to be equal by that alone.
        if read.before == tuple(messages[:at]):
            return at + 1, read.found
        del beside[_READ]
        break
    return 0, Conversation()


def _with(begun: Conversation, known: Sequence[MessageFacts], start: int) -> Conversation:
    """`begun`, and what follows it from `start` on."""
    if not known:
        return begun
    return Conversation(
        tokens=begun.tokens + sum([one.tokens for one in known]),
        longest_text=max([begun.longest_text, *(one.longest_text for one in known)]),
        data_urls=(*begun.data_urls, *(at for at, one in enumerate(known, start) if one.has_data_url)),
        called=begun.called.union(*[one.called for one in known]),
    )
