"""Every tool call has exactly one answer, right behind it: the rule of all providers, as a pure check."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harborage.llm.client import ChatMessage, Role, ToolCallStructured
from harborage.llm.errors import OrphanToolCallError

__all__ = ["check_pairing"]

# Members of an enum are slow to reach, and this is asked of every message of every call.
_ASSISTANT = Role.ASSISTANT
_TOOL = Role.TOOL


def check_pairing(messages: Sequence[ChatMessage]) -> None:
    """Accept a conversation in which the answers to a turn's calls follow it, in any order, before anybody else speaks.

    Raises:
        OrphanToolCallError: the first place where that does not hold; the text names the message and the ids.
    """
    pending: set[str] = set()
    for index, message in enumerate(messages):
        role = message.role
        if role == _TOOL:
            answered = message.tool_call_id
            if answered not in pending:
                raise _answers_nothing(index, answered, pending)
            pending.remove(answered)
        elif pending:
            raise OrphanToolCallError(
                f"message {index} ({role}) comes before the answers to the calls {_named(pending)}; answer every call "
                "right behind the assistant message that makes it"
            )
        elif role == _ASSISTANT and message.tool_calls:
            pending = _asked(message.tool_calls, index)
    if pending:
        raise OrphanToolCallError(
            f"the conversation of {len(messages)} message(s) ends without answers to the calls {_named(pending)}"
        )


def _asked(calls: Sequence[ToolCallStructured], index: int) -> set[str]:
    """The ids of one turn's calls."""
    if len(calls) == 1 and calls[0].id:
        return {calls[0].id}
    ids = [call.id for call in calls]
    if not all(ids) or len(set(ids)) < len(ids):
        raise OrphanToolCallError(f"message {index} (assistant) needs an id of its own for each call: {_named(ids)}")
    return set(ids)


def _answers_nothing(index: int, answered: str | None, pending: Iterable[str]) -> OrphanToolCallError:
    if not answered:
        return OrphanToolCallError(f"message {index} (tool) names no call: set tool_call_id to the id of its call")
    waiting = f"the calls without an answer are {_named(pending)}" if pending else "no call is without an answer"
    return OrphanToolCallError(f"message {index} (tool) answers {answered!r}, but {waiting}")


def _named(ids: Iterable[str]) -> str:
    return ", ".join(map(repr, sorted(ids)))
