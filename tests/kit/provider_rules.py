"""What every provider of models insists on, as a check of a request: run it on whatever a planner sends.

The rules are the strictest that any of them has. A request that breaks one is refused by some provider, in the middle
of somebody's run. Pure; it needs no test framework.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from harborage import codec
from harborage.llm import (
    ChatMessage,
    CompleteRequest,
    InvalidContentError,
    Role,
    TextPart,
    ToolCallStructured,
    check_message,
)

_NOT_IN_AN_ID: Final = re.compile(r"[^a-zA-Z0-9_-]")


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
    """System messages come first, then the user; the assistant never follows itself, nor is it asked to go on."""
    talk = [at for at, message in enumerate(messages) if message.role is not Role.SYSTEM]
    if not talk:
        yield "there is no message besides system messages"
        return
    for at in range(talk[0], len(messages)):
        if messages[at].role is Role.SYSTEM:
            yield f"message {at}: a system message inside the conversation"
        if messages[at].role is messages[at - 1].role is Role.ASSISTANT:
            yield f"message {at}: the assistant follows itself"
    if messages[talk[0]].role is not Role.USER:
        yield f"message {talk[0]}: the conversation begins with {messages[talk[0]].role}, not with user"
    if messages[-1].role is Role.ASSISTANT:
        yield f"message {len(messages) - 1}: the conversation ends with assistant"


def _calls(messages: Sequence[ChatMessage]) -> Iterator[str]:
    """Every call is answered once, directly behind the message that made it and in its order; no id comes twice."""
    seen: set[str] = set()
    owed: list[ToolCallStructured] = []
    for at, message in enumerate(messages):
        if message.role is Role.TOOL:
            yield from _answer(message, owed, at)
            continue
        yield from _unanswered(owed, at)
        owed = list(message.tool_calls)
        for call in owed:
            # Providers with a narrow alphabet get ids in it; two that differ elsewhere would be one there.
            plain = _NOT_IN_AN_ID.sub("_", call.id)
            if plain in seen:
                yield f"message {at}: the call id {call.id!r} is used twice"
            seen.add(plain)
    yield from _unanswered(owed, len(messages))


def _answer(message: ChatMessage, owed: list[ToolCallStructured], at: int) -> Iterator[str]:
    found = next((call for call in owed if call.id == message.tool_call_id), None)
    if found is None:
        yield f"message {at}: answers {message.tool_call_id!r}, which is not open here"
        return
    if found is not owed[0]:
        yield f"message {at}: answers {found.id!r} before {owed[0].id!r}, which was called first"
    if message.name is not None and message.name != found.name:
        yield f"message {at}: is named {message.name!r} and answers a call of {found.name!r}"
    owed.remove(found)


def _unanswered(owed: Sequence[ToolCallStructured], at: int) -> Iterator[str]:
    for call in owed:
        yield f"message {at}: comes before the answer to {call.id!r}"


def _message(message: ChatMessage) -> Iterator[str]:
    if not isinstance(message.role, Role):
        yield "the role is unknown"
        return
    try:
        check_message(message)
    except InvalidContentError as error:
        yield str(error)
    for part in message.content.parts or ():
        if isinstance(part, TextPart):
            if not part.text.strip():
                yield "a part of it is empty"
        elif message.role is not Role.USER:
            yield f"only a user attaches a {type(part).__name__}"
    if not _is_unicode(message):
        yield "its text cannot be encoded"
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
    for tool in request.tools:
        if tool.schema.get("type") != "object":
            yield f"the schema of the tool {tool.name!r} is not that of an object"


def _says_something(message: ChatMessage) -> bool:
    if message.content.parts is None:
        return bool((message.content.text or "").strip())
    return any(not isinstance(part, TextPart) or part.text.strip() for part in message.content.parts)


def _is_unicode(message: ChatMessage) -> bool:
    parts = (part.text for part in message.content.parts or () if isinstance(part, TextPart))
    text = "".join(parts) if message.content.text is None else message.content.text
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_object(args: bytes) -> bool:
    try:
        return isinstance(codec.decode(args), dict)
    except (msgspec.DecodeError, UnicodeError):
        return False
