"""Every tool call has exactly one answer, right behind it: the rule of all providers, as a pure check."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from harborage.llm.chain.known import MessageFacts, facts_of
from harborage.llm.errors import OrphanToolCallError

if TYPE_CHECKING:
    from harborage.llm.client import ChatMessage

__all__ = ["check_pairing"]


def check_pairing(messages: Sequence[ChatMessage], known: Sequence[MessageFacts] | None = None, start: int = 0) -> None:
    """Accept a conversation in which the answers to a turn's calls follow it, in any order, before anybody else speaks.

    Where the caller knows that this holds for the messages before `start`, and has the facts about those from there on,
    it gives both.

    Raises:
        InvalidContentError: a message is malformed.
        OrphanToolCallError: the first place where that does not hold; the text names the message and the ids.
    """
    pending: tuple[str, ...] = ()
    for index, facts in enumerate(facts_of(messages, start) if known is None else known, start):
        if facts.is_answer:
            if facts.answers not in pending:
                raise _answers_nothing(index, facts.answers, pending)
            pending = () if len(pending) == 1 else tuple(one for one in pending if one != facts.answers)
        elif pending:
            raise OrphanToolCallError(
                f"message {index} ({messages[index].role}) comes before the answers to the calls {_named(pending)}; "
                "answer every call right behind the assistant message that makes it"
            )
        elif facts.asks is None:
            ids = _named(call.id for call in messages[index].tool_calls)
            raise OrphanToolCallError(f"message {index} (assistant) needs an id of its own for each call: {ids}")
        else:
            pending = facts.asks
    if pending:
        raise OrphanToolCallError(
            f"the conversation of {len(messages)} message(s) ends without answers to the calls {_named(pending)}"
        )


def _answers_nothing(index: int, answered: str | None, pending: Sequence[str]) -> OrphanToolCallError:
    if not answered:
        return OrphanToolCallError(f"message {index} (tool) names no call: set tool_call_id to the id of its call")
    waiting = f"the calls without an answer are {_named(pending)}" if pending else "no call is without an answer"
    return OrphanToolCallError(f"message {index} (tool) answers {answered!r}, but {waiting}")


def _named(ids: Iterable[str]) -> str:
    return ", ".join(map(repr, sorted(ids)))
