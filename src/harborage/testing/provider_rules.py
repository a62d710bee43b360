"""What every provider of models insists on, as a check of a request: run it on whatever a planner sends.

The rules are the strictest that any of them has. A request that breaks one is refused by some provider, in the middle
of somebody's run. Pure; it needs no test framework.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from harborage import codec
from harborage.llm import ChatMessage, CompleteRequest, InvalidContentError, Role, TextPart, check_message

__all__ = ["ProviderRuleError", "broken_rules", "check_request"]


class ProviderRuleError(AssertionError):
    """A request breaks rules of providers. `rules` says which, each with the place."""

    def __init__(self, rules: Sequence[str] = ()) -> None:
        self.rules = tuple(rules)
        super().__init__("; ".join(rules) or "a request breaks rules of providers")


def check_request(request: CompleteRequest) -> None:
    """Accept a request that every provider would take.

    Raises:
        ProviderRuleError: it names every rule that is broken, and where.
    """
    rules = broken_rules(request)
    if rules:
        raise ProviderRuleError(rules)


def broken_rules(request: CompleteRequest) -> list[str]:
    """The rules that the request breaks, each with its place; empty for a request that is fine."""
    messages = request.messages
    found = [*_order(messages), *_calls(messages), *_declarations(request)]
    for at, message in enumerate(messages):
        found += [f"message {at} ({message.role}): {rule}" for rule in _message(message)]
    return found


def _order(messages: Sequence[ChatMessage]) -> Iterator[str]:
    """System messages come first, then the user, and the model is not asked to go on from its own words."""
    talk = [at for at, message in enumerate(messages) if message.role is not Role.SYSTEM]
    if not talk:
        yield "there is no message besides system messages"
        return
    for at in range(talk[0], len(messages)):
        if messages[at].role is Role.SYSTEM:
            yield f"message {at}: a system message inside the conversation"
    if messages[talk[0]].role is not Role.USER:
        yield f"message {talk[0]}: the conversation begins with {messages[talk[0]].role}, not with user"
    if messages[-1].role is Role.ASSISTANT:
        yield f"message {len(messages) - 1}: the conversation ends with assistant"


def _calls(messages: Sequence[ChatMessage]) -> Iterator[str]:
    """Every call is answered once, directly behind the message that made it; no id comes twice."""
    seen: set[str] = set()
    owed: Counter[str] = Counter()
    for at, message in enumerate(messages):
        if message.role is Role.TOOL:
            if owed[message.tool_call_id or ""] <= 0:
                yield f"message {at}: answers {message.tool_call_id!r}, which is not open here"
            owed[message.tool_call_id or ""] -= 1
            continue
        yield from _unanswered(owed, at)
        owed = Counter(call.id for call in message.tool_calls)
        for call in message.tool_calls:
            if call.id in seen:
                yield f"message {at}: the call id {call.id!r} is used twice"
            seen.add(call.id)
    yield from _unanswered(owed, len(messages))


def _unanswered(owed: Counter[str], at: int) -> Iterator[str]:
    for call_id in +owed:
        yield f"message {at}: comes before the answer to {call_id!r}"


def _message(message: ChatMessage) -> Iterator[str]:
    if not isinstance(message.role, Role):
        yield "the role is unknown"
        return
    try:
        check_message(message)
    except InvalidContentError as error:
        yield str(error)
    if message.role is Role.ASSISTANT:
        yield from _assistant(message)
    else:
        if message.tool_calls:
            yield "only an assistant calls tools"
        if not _says_something(message):
            yield "it is empty"
    if (message.role is Role.TOOL) != (message.tool_call_id is not None):
        yield "a tool's answer, and nothing else, names the call it answers"


def _assistant(message: ChatMessage) -> Iterator[str]:
    if not message.tool_calls and not _says_something(message):
        yield "it says nothing and calls nothing"
    if message.tool_calls and message.content.text is not None and not message.content.text.strip():
        yield "its content is empty text; leave it out"
    for call in message.tool_calls:
        if not call.id:
            yield f"the call of {call.name!r} has no id"
        if not call.name:
            yield f"the call {call.id!r} names no tool"
        if not _is_object(call.args):
            yield f"the arguments of {call.id!r} are no JSON object"


def _declarations(request: CompleteRequest) -> Iterator[str]:
    names = Counter(tool.name for tool in request.tools)
    for name, count in names.items():
        if not name:
            yield "a declared tool has no name"
        if count > 1:
            yield f"the tool {name!r} is declared {count} times"


def _says_something(message: ChatMessage) -> bool:
    if message.content.parts is None:
        return bool((message.content.text or "").strip())
    return any(not isinstance(part, TextPart) or part.text.strip() for part in message.content.parts)


def _is_object(args: bytes) -> bool:
    try:
        return isinstance(codec.decode(args), dict)
    except (msgspec.DecodeError, UnicodeError):
        return False
