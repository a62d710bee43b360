"""Reads a conversation: that it is well-formed and its tool calls are answered, its size, and the tools it calls.

A run sends its whole history with every step, so each message is read once. Its facts are kept beside it, and so is the
sum of the facts up to the last answer of a tool: of a conversation that has grown, only the new part is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from harborage import codec
from harborage.llm.client import ChatMessage, Role, ToolDeclaration, check_message
from harborage.llm.content import AudioPart, Content, FilePart, ImagePart, TextPart, utf8_size
from harborage.llm.errors import InvalidContentError, OrphanToolCallError

if TYPE_CHECKING:
    from harborage.llm.client import CompleteRequest, ToolCallStructured

_PREFIX: Final = "llm.prefix"
_FACTS: Final = "llm.facts"
_FARTHEST_BACK: Final = 64
_ROLES: Final = tuple(Role)
# Members of an enum are slow to reach.
_ASSISTANT: Final = Role.ASSISTANT
_TOOL: Final = Role.TOOL

Item = TypeVar("Item", bound=ChatMessage | ToolDeclaration)
Value = TypeVar("Value")


# ── A whole conversation ────────────────────────────────────────────────────────────────────────────────────────────


class ConversationFacts(msgspec.Struct, frozen=True):
    """The facts of a conversation that is well-formed and whose calls are all answered.

    `tokens` is an estimate, `longest_text` is in bytes, `data_urls` are the indices of the messages that contain data
    URLs, `called` the names of the tools that are called.
    """

    tokens: int = 0
    longest_text: int = 0
    data_urls: tuple[int, ...] = ()
    called: frozenset[str] = frozenset()


class _Prefix(msgspec.Struct, frozen=True):
    """Kept beside a message: the messages before it, and the facts of these and the message itself."""

    before: tuple[ChatMessage, ...]
    facts: ConversationFacts


def read_conversation(messages: Sequence[ChatMessage]) -> ConversationFacts:
    """Return the facts of a conversation.

    Raises:
        InvalidContentError: a message is malformed; the text begins with its index.
        OrphanToolCallError: tool calls and their answers do not pair.
    """
    start, known = _known_prefix(messages)
    if start == len(messages):
        return known
    facts = read_messages(messages, start)
    _check_pairing(messages, facts, start)
    answers = [index for index, one in enumerate(facts, start) if one.is_answer]
    if not answers:
        return _extended(known, facts, start)
    last = answers[-1]
    prefix = _extended(known, facts[: last + 1 - start], start)
    vars(messages[last])[_PREFIX] = _Prefix(tuple(messages[:last]), prefix)
    if start > 0:
        # The shorter prefix is contained in this one.
        del vars(messages[start - 1])[_PREFIX]
    return _extended(prefix, facts[last + 1 - start :], last + 1)


def _known_prefix(messages: Sequence[ChatMessage]) -> tuple[int, ConversationFacts]:
    """Return how many messages at the beginning were read before, and their facts."""
    for index in range(len(messages) - 1, max(-1, len(messages) - 1 - _FARTHEST_BACK), -1):
        beside = getattr(messages[index], "__dict__", {})
        prefix: _Prefix | None = beside.get(_PREFIX)
        if prefix is None:
            continue
        # Most of these are the very same objects, and identity alone makes them equal.
        if prefix.before == tuple(messages[:index]):
            return index + 1, prefix.facts
        del beside[_PREFIX]
        break
    return 0, ConversationFacts()


def _extended(known: ConversationFacts, facts: Sequence[MessageFacts], start: int) -> ConversationFacts:
    """Return `known` and the facts of the messages that follow it from index `start`."""
    if not facts:
        return known
    tokens, longest, data_urls, called = known.tokens, known.longest_text, known.data_urls, known.called
    for index, one in enumerate(facts, start):
        tokens += one.tokens
        if one.longest_text > longest:
            longest = one.longest_text
        if one.has_data_url:
            data_urls = (*data_urls, index)
        if not called.issuperset(one.called):
            called = called.union(one.called)
    return ConversationFacts(tokens, longest, data_urls, called)


def _check_pairing(messages: Sequence[ChatMessage], facts: Sequence[MessageFacts], start: int = 0) -> None:
    """Accept a conversation in which the answers to the calls of a message follow it directly, in any order.

    All providers have this rule. `facts` are those of the messages from index `start`; the ones before are checked
    already.

    Raises:
        OrphanToolCallError: the first place that breaks the rule; the text names the message and the ids.
    """
    pending: tuple[str, ...] = ()
    for index, one in enumerate(facts, start):
        if one.is_answer:
            if one.answers not in pending:
                raise _answers_nothing(index, one.answers, pending)
            pending = () if len(pending) == 1 else tuple(call for call in pending if call != one.answers)
        elif pending:
            raise OrphanToolCallError(
                f"message {index} ({messages[index].role}) comes before the answers to the calls {_listed(pending)}; "
                "answer every call right behind the assistant message that makes it"
            )
        elif one.asks is None:
            ids = _listed(call.id for call in messages[index].tool_calls)
            raise OrphanToolCallError(f"message {index} (assistant) needs an id of its own for each call: {ids}")
        else:
            pending = one.asks
    if pending:
        raise OrphanToolCallError(
            f"the conversation of {len(messages)} message(s) ends without answers to the calls {_listed(pending)}"
        )


def _answers_nothing(index: int, answered: str | None, pending: Sequence[str]) -> OrphanToolCallError:
    if not answered:
        return OrphanToolCallError(f"message {index} (tool) names no call: set tool_call_id to the id of its call")
    unanswered = f"the calls without an answer are {_listed(pending)}" if pending else "no call is without an answer"
    return OrphanToolCallError(f"message {index} (tool) answers {answered!r}, but {unanswered}")


def _listed(ids: Iterable[str]) -> str:
    return ", ".join(map(repr, sorted(ids)))


# ── One message ─────────────────────────────────────────────────────────────────────────────────────────────────────


class MessageFacts(msgspec.Struct, frozen=True, gc=False):
    """The facts of a well-formed message.

    `tokens` is an estimate, `longest_text` the bytes of its only or its longest text. `called` are the names of the
    tools it calls, `asks` the ids of these calls where an assistant makes them: None unless each has one of its own. A
    tool's message is an answer to the call with the id `answers`.
    """

    tokens: int
    longest_text: int
    has_data_url: bool
    called: tuple[str, ...]
    asks: tuple[str, ...] | None
    is_answer: bool
    answers: str | None


def read_messages(messages: Sequence[ChatMessage], start: int = 0) -> list[MessageFacts]:
    """Return the facts of each message from index `start`.

    Raises:
        InvalidContentError: a message is malformed; the text begins with its index.
    """
    try:
        # Most messages have been read before, and a call of `memoize_on` for each would cost more than all the rest.
        return [message.__dict__.get(_FACTS) or memoize_on(message, _FACTS, _read) for message in messages[start:]]
    except (AttributeError, InvalidContentError):
        for index, message in enumerate(messages):
            _check(message, index)
        raise


def _read(message: ChatMessage) -> MessageFacts:
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
    asks = _call_ids(message) if calls and role == _ASSISTANT else ()
    is_answer = role == _TOOL
    answers = message.tool_call_id if is_answer else None
    return MessageFacts(message_tokens(message), longest, has_data_url, called, asks, is_answer, answers)


def _call_ids(message: ChatMessage) -> tuple[str, ...] | None:
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
            # It would pass by every check that keeps heavy content away from a model.
            raise InvalidContentError(f"message {index}, part {at} has a data URL as url; give it as data_url")


def memoize_on(item: Item, name: str, compute: Callable[[Item], Value]) -> Value:
    """Return `compute(item)`, computed once and kept beside the item; a failure is not kept.

    The items are frozen and come back at every step of a run, so the value stays true. It goes when the item goes, and
    a client holds nothing of any run.
    """
    beside = vars(item)
    value: Value | None = beside.get(name)
    if value is None:
        value = beside[name] = compute(item)
    return value


# ── Tokens: a quarter of the bytes, for all models ──────────────────────────────────────────────────────────────────


class EstimateWeights(msgspec.Struct, frozen=True):
    """What an estimate counts for each message besides its texts and calls, and for each part that is no text."""

    message: int
    medium: int


CAUTIOUS: Final = EstimateWeights(message=4, medium=256)
"""What guards a window and reserves a budget: rather too much."""

LIKELY: Final = EstimateWeights(message=0, medium=16)
"""What stands for a usage that the provider did not report."""


def message_tokens(message: ChatMessage, weights: EstimateWeights = CAUTIOUS) -> int:
    """Return the estimate for one well-formed message."""
    content = message.content
    total = weights.message
    for call in message.tool_calls:
        total += (utf8_size(call.name) + len(call.args)) // 4 + 1
    if content.text is not None:
        total += _text_tokens(content.text)
    for part in content.parts or ():
        total += _text_tokens(part.text) if isinstance(part, TextPart) else weights.medium
    return total + _text_tokens(message.name) if message.name else total


def tokens_beside_messages(request: CompleteRequest) -> int:
    """Return the estimate for everything else in a request: stops, schema, extra fields, declared tools.

    Raises:
        UnserializableError: a tool's schema, or `extra`, has no JSON form; the path names the tool.
    """
    total = sum(map(_text_tokens, request.stops))
    if request.response_format is not None and request.response_format.json_schema:
        total += len(request.response_format.json_schema) // 4 + 1
    if request.extra:
        total += len(codec.encode(request.extra, "extra")) // 4 + 1
    return total + tool_tokens(request.tools)


def answer_tokens(content: str, calls: Sequence[ToolCallStructured]) -> int:
    """Return the estimate for an answer."""
    return (utf8_size(content) + sum(utf8_size(call.name) + len(call.args) for call in calls)) // 4


def tool_tokens(tools: Iterable[ToolDeclaration]) -> int:
    """Return the estimate for declared tools.

    Raises:
        UnserializableError: a tool's schema has no JSON form; the path names the tool.
    """
    return sum([memoize_on(tool, "llm.tokens", _tool_tokens) for tool in tools])


def _tool_tokens(tool: ToolDeclaration) -> int:
    size = utf8_size(tool.name) + utf8_size(tool.description) + len(codec.encode(tool.schema, f"tool {tool.name}"))
    return size // 4 + 1


def _text_tokens(text: str) -> int:
    return utf8_size(text) // 4 + 1
