"""The one-method seam to a language model, and the request and response that cross it.

Values and a protocol only: providers, retries, safety and cost are layers that implement `LLMClient` around another
one. Identity is not a field of the request; a client reads the ambient one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Protocol, TypeAlias, TypeGuard, runtime_checkable

import msgspec
from msgspec.structs import force_setattr

from harborage.errors import names_of, one_of
from harborage.llm.content import Content, check_content


class Role(StrEnum):
    """Who speaks in a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


_ROLES: Final[frozenset[str]] = frozenset(Role)


class ReasoningEffort(StrEnum):
    """How long the model may think; `UNSET` leaves it to the model's profile, `OFF` switches thinking off."""

    UNSET = ""
    OFF = "off"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class ToolChoice(StrEnum):
    """Whether the model may, must or must not call a tool; `UNSET` leaves it to the provider."""

    UNSET = ""
    AUTO = "auto"
    REQUIRED = "required"
    NONE = "none"


class ResponseFormatKind(StrEnum):
    """The shape of an answer."""

    TEXT = "text"
    JSON_OBJECT = "json_object"
    JSON_SCHEMA = "json_schema"


class ResponseFormat(msgspec.Struct, frozen=True):
    """The answer's shape; `json_schema` is the exact text of the schema, for the kind of that name.

    Raises:
        InvalidOptionError: there is no such kind.
    """

    kind: ResponseFormatKind = ResponseFormatKind.TEXT
    json_schema: bytes = b""

    def __post_init__(self) -> None:
        force_setattr(self, "kind", one_of(ResponseFormatKind, self.kind, "kind"))


class ToolDeclaration(msgspec.Struct, frozen=True, dict=True):
    """A tool the model may call natively; `schema` is the JSON schema of its arguments, and stays as it is."""

    name: str
    description: str = ""
    schema: dict[str, Any] = {}


class ToolCallStructured(msgspec.Struct, frozen=True):
    """One native tool call; `args` is the JSON text as the model wrote it, `index` its place in the answer."""

    id: str
    name: str
    args: bytes = b"{}"
    index: int = 0


class ChatMessage(msgspec.Struct, frozen=True, omit_defaults=True, dict=True):
    """One turn of a conversation; a tool's answer names the call it answers by `tool_call_id`.

    The same message comes back with every step of a run, so a client may keep beside it what it computed from it. That
    is no part of its value: it is not compared, copied or encoded.
    """

    role: Role
    content: Content = Content()
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: Sequence[ToolCallStructured] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.tool_calls, tuple):
            _freeze(self, "tool_calls")
        if type(self.role) is not Role and self.role in _ROLES:
            force_setattr(self, "role", Role(self.role))  # `read_messages` refuses any other word


_MOST_TOKENS: Final = 1 << 53


class Usage(msgspec.Struct, frozen=True):
    """Tokens and time that one call took; `provider_extras` are the provider's other counts."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    total_tokens: int = 0
    latency_ms: int = 0
    provider_extras: dict[str, Any] = {}


def reported_usage(
    *,
    prompt: object,
    completion: object,
    reasoning: object = None,
    total: object = None,
    extras: dict[str, Any] | None = None,
) -> Usage:
    """Return the usage that a provider reports, None for each missing count; zero where one of them is impossible.

    A total below its parts is their sum.
    """
    given = (prompt, completion, reasoning, total)
    if not all(value is None or _is_count(value) for value in given):
        return Usage(provider_extras=extras or {})
    sent, written, reasoned, reported = (int(value) if value else 0 for value in given)  # type: ignore[call-overload]
    return Usage(
        prompt_tokens=sent,
        completion_tokens=written,
        reasoning_tokens=reasoned,
        total_tokens=max(reported, sent + written),
        provider_extras=extras or {},
    )


def sum_of_counts(*parts: object) -> object:
    """Return the sum of the counts that are not None, None without any; an impossible count is returned itself."""
    given = [part for part in parts if part is not None]
    impossible = [part for part in given if not _is_count(part)]
    return impossible[0] if impossible else sum(given) if given else None  # type: ignore[arg-type]


def _is_count(value: object) -> bool:
    """Return whether this can be a number of tokens; the bound keeps a count exact in every store."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _MOST_TOKENS


def is_amount(value: object) -> TypeGuard[float]:
    """Return whether this can be an amount of money: a finite number that is not negative."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


class Cost(msgspec.Struct, frozen=True):
    """What one call cost, in units of `currency`."""

    input_cost: float = 0.0
    output_cost: float = 0.0
    reasoning_cost: float = 0.0
    total_cost: float = 0.0
    currency: str = ""


class CompleteResponse(msgspec.Struct, frozen=True):
    """A model's answer. There is no error field: a failed call raises.

    `finish_reason` is the provider's word for why the answer ended: `stop`, `tool_calls`, `length`, …
    """

    content: str = ""
    tool_calls: Sequence[ToolCallStructured] = ()
    reasoning: str = ""
    cost: Cost = Cost()
    usage: Usage = Usage()
    finish_reason: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.tool_calls, tuple):
            _freeze(self, "tool_calls")


OnDelta: TypeAlias = Callable[[str, bool], None]
"""Receives `(delta, done)` while an answer streams; `done` comes exactly once, last."""

Validator: TypeAlias = Callable[[CompleteResponse], None]
"""Raises to refuse an answer; the model gets the message of the exception in the next attempt."""


class CompleteRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One call to a model; every unset field leaves the choice to the model's profile or the provider.

    `temperature` and `max_tokens` are unset only when None: 0.0 is a real value. The callbacks matter only with
    `stream`: `on_reset` says that the answer starts again, so that what was streamed of it so far is void. `validator`
    is never sent. `deadline` is when the caller stops waiting: the call fails then and not sooner (None: after the
    client's own timeout). An effort or a choice may be a text.

    Raises:
        InvalidOptionError: there is no such effort or choice, or `stops` is one text instead of several.
    """

    model: str = ""
    messages: Sequence[ChatMessage] = ()
    response_format: ResponseFormat | None = None
    stream: bool = False
    on_content: OnDelta | None = None
    on_reasoning: OnDelta | None = None
    on_reset: Callable[[], None] | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    stops: Sequence[str] = ()
    reasoning_effort: ReasoningEffort = ReasoningEffort.UNSET
    extra: dict[str, Any] = {}
    validator: Validator | None = None
    tools: Sequence[ToolDeclaration] = ()
    tool_choice: ToolChoice = ToolChoice.UNSET
    parallel_tool_calls: bool = False
    deadline: datetime | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.messages, tuple) and isinstance(self.stops, tuple) and isinstance(self.tools, tuple)):
            if isinstance(self.stops, str):
                names_of(self.stops, "stops")
            _freeze(self, "messages", "stops", "tools")
        if type(self.tool_choice) is not ToolChoice:
            force_setattr(self, "tool_choice", one_of(ToolChoice, self.tool_choice, "tool_choice"))
        if type(self.reasoning_effort) is not ReasoningEffort:
            force_setattr(self, "reasoning_effort", one_of(ReasoningEffort, self.reasoning_effort, "reasoning_effort"))


@runtime_checkable
class LLMClient(Protocol):
    """A model behind one method: plain, structured, multimodal, tool calling and streaming alike.

    One client serves many concurrent runs. Never: keeps state between calls or changes the caller's request.
    """

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        """Return the model's answer to `request`, under the ambient identity.

        Raises:
            ClientClosedError: the client is closed.
            IdentityMissingError: no identity is bound.
            InvalidContentError: a message is malformed.
        """
        ...

    async def close(self) -> None:
        """Release what the client holds. Closing twice does nothing."""
        ...


def check_message(message: ChatMessage) -> None:
    """Accept a message whose content is well-formed; only an assistant that calls tools may have none.

    Raises:
        InvalidContentError: see `check_content`.
    """
    may_be_absent = message.role is Role.ASSISTANT and bool(message.tool_calls)
    check_content(message.content, may_be_absent=may_be_absent)


def _freeze(value: msgspec.Struct, *fields: str) -> None:
    """Keep tuples where a caller gave lists: requests are shared, so a later append must not reach them."""
    for field in fields:
        force_setattr(value, field, tuple(getattr(value, field)))
