"""Model requests and answers as a run's record stores them: each message once, however often it is sent.

A request is recorded as its difference from an earlier request of the same run, so a record grows only by what a step
adds. Pure: values in, values out; inline pictures are recorded by their hash.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from harborage import codec
from harborage.errors import error_text
from harborage.llm import (
    ChatMessage,
    CompleteRequest,
    CompleteResponse,
    Content,
    Cost,
    LLMError,
    ReasoningEffort,
    ResponseFormat,
    Role,
    TextPart,
    ToolCallStructured,
    ToolChoice,
    ToolDeclaration,
    Usage,
)
from harborage.llm.errors import ERRORS, record_error, restore_error

_CANDIDATES: Final = 3
MISSING: Final = ChatMessage(Role.SYSTEM, Content(text="(not on record)"))
"""What stands for a message that a record does not hold."""


class RecordedModelError(LLMError):
    """The model's client raised when the run was recorded; this is its text."""


class Settings(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a request sets besides its messages and tools; what does not change the answer is left out."""

    response_format: ResponseFormat | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    stops: tuple[str, ...] = ()
    reasoning_effort: ReasoningEffort = ReasoningEffort.UNSET
    extra: dict[str, Any] = {}
    tool_choice: ToolChoice = ToolChoice.UNSET
    parallel_tool_calls: bool = False


class Prompt(msgspec.Struct, frozen=True):
    """A whole request, without what differs from one call to the next without meaning anything."""

    messages: tuple[ChatMessage, ...]
    tools: tuple[ToolDeclaration, ...] = ()
    settings: Settings = Settings()


class RecordedRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """A recorded request: its difference from the exchange that lies `follows` exchanges back (0 for none).

    It has `count` messages: those in the ranges `kept` equal that exchange's, `messages` are the others. Tools and
    settings that are None equal that exchange's.
    """

    count: int
    follows: int = 0
    kept: tuple[tuple[int, int], ...] = ()
    messages: tuple[ChatMessage, ...] = ()
    tools: tuple[ToolDeclaration, ...] | None = None
    settings: Settings | None = None


class RecordedAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """A recorded answer of the model; of usage and cost only the figures that are not zero."""

    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCallStructured, ...] = ()
    finish_reason: str = ""
    usage: dict[str, Any] = {}
    cost: dict[str, Any] = {}


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """A recorded failure: the nearest error class of `harborage.llm`, its text and its fields."""

    kind: str
    message: str = ""
    fields: dict[str, Any] = {}


class Exchange(msgspec.Struct, frozen=True, omit_defaults=True):
    """One recorded model call: the request and its answer or failure; with neither, the outcome was not recorded."""

    asked: RecordedRequest
    answer: RecordedAnswer | None = None
    failure: Failure | None = None


class ExchangeRecorder:
    """Encodes the model requests of one run as differences from its recent ones."""

    __slots__ = ("_count", "_earlier", "_recent")

    def __init__(self) -> None:
        self._count = 0
        self._recent: list[tuple[int, Prompt]] = []
        self._earlier: list[bytes] = []

    def add_recorded(self, data: bytes) -> None:
        """Add exchanges that an earlier worker recorded; they are decoded when the next request is encoded."""
        self._earlier.append(data)

    def encode_request(self, prompt: Prompt) -> RecordedRequest:
        """Return the request as its difference from a recent one; later requests may refer to it."""
        if self._earlier:
            self._load_recorded()
        found = self._find_nearest(prompt)
        at, self._count = self._count, self._count + 1
        self._recent = [(at, prompt), *(one for one in self._recent if found is None or one[0] != found[0])]
        del self._recent[_CANDIDATES:]
        if found is None:
            return RecordedRequest(
                len(prompt.messages), messages=_slim(prompt.messages), tools=prompt.tools, settings=prompt.settings
            )
        earlier, model, kept = found
        return RecordedRequest(
            len(prompt.messages),
            at - earlier,
            kept,
            _slim(_others(prompt.messages, kept)),
            None if prompt.tools == model.tools else prompt.tools,
            None if prompt.settings == model.settings else prompt.settings,
        )

    def forget_last(self) -> None:
        """Forget the last request: it could not be recorded, so no later one may refer to it."""
        self._recent = [one for one in self._recent if one[0] != self._count - 1]

    def _find_nearest(self, prompt: Prompt) -> tuple[int, Prompt, tuple[tuple[int, int], ...]] | None:
        """Return the recent exchange that shares most messages with this one; None if none shares any."""
        best: tuple[int, Prompt, tuple[tuple[int, int], ...]] | None = None
        most = 0
        for at, model in self._recent:
            kept = _shared(model.messages, prompt.messages)
            count = sum([end - begin for begin, end in kept])
            if count > most:
                best, most = (at, model, kept), count
            if 2 * count > len(model.messages):
                break  # more than half is shared, so no other one shares more
        return best

    def _load_recorded(self) -> None:
        earlier, self._earlier = self._earlier, []
        try:
            prompts = prompts_of([one for data in earlier for one in codec.decode(data, list[Exchange])])
        except ValueError:
            return  # the record is damaged, so the next request is recorded whole
        self._count = len(prompts)
        self._recent = [(at, prompts[at]) for at in range(len(prompts) - 1, -1, -1)][:_CANDIDATES]


def prompt_of(request: CompleteRequest) -> Prompt:
    """Return what of a request is recorded."""
    settings = Settings(
        response_format=request.response_format,
        temperature=request.temperature,
        max_tokens=request.max_tokens,
        stops=tuple(request.stops),
        reasoning_effort=request.reasoning_effort,
        extra=request.extra,
        tool_choice=request.tool_choice,
        parallel_tool_calls=request.parallel_tool_calls,
    )
    return Prompt(tuple(request.messages), tuple(request.tools), settings)


def prompts_of(exchanges: Sequence[Exchange]) -> list[Prompt]:
    """Return the whole requests of a run's exchanges.

    Raises:
        ValueError: a request refers to an exchange that is not before it, or to messages that exchange does not have.
    """
    prompts: list[Prompt] = []
    for at, exchange in enumerate(exchanges):
        asked = exchange.asked
        if not 0 <= asked.follows <= at:
            raise ValueError(f"exchange {at} follows one {asked.follows} before it, where there is none")
        model = prompts[at - asked.follows] if asked.follows else Prompt(())
        messages: list[ChatMessage | None] = [None] * asked.count
        for begin, end in asked.kept:
            if not 0 <= begin < end <= min(asked.count, len(model.messages)):
                raise ValueError(f"exchange {at} keeps messages {begin} to {end} of a shorter one")
            messages[begin:end] = model.messages[begin:end]
        new = iter(asked.messages)
        whole = tuple(next(new, MISSING) if one is None else one for one in messages)
        tools = model.tools if asked.tools is None else asked.tools
        prompts.append(Prompt(whole, tools, asked.settings or model.settings))
    return prompts


def record_answer(response: CompleteResponse) -> RecordedAnswer:
    """Return the answer as it is recorded."""
    return RecordedAnswer(
        content=response.content,
        reasoning=response.reasoning,
        tool_calls=tuple(response.tool_calls),
        finish_reason=response.finish_reason,
        usage=_nonzero(response.usage),
        cost=_nonzero(response.cost),
    )


def response_of(answer: RecordedAnswer) -> CompleteResponse:
    """Return the response that a client would return for a recorded answer."""
    return CompleteResponse(
        content=answer.content,
        tool_calls=answer.tool_calls,
        reasoning=answer.reasoning,
        cost=msgspec.convert(answer.cost, Cost),
        usage=msgspec.convert(answer.usage, Usage),
        finish_reason=answer.finish_reason,
    )


def failure_of(error: Exception) -> Failure:
    """Return the error as it is recorded."""
    kind, fields = record_error(error)
    return Failure(kind or type(error).__name__, error_text(error) or type(error).__name__, fields if kind else {})


def error_of(failure: Failure) -> LLMError:
    """Return the error that a client would raise for a recorded failure."""
    if failure.kind not in ERRORS:
        return RecordedModelError(failure.message)
    return restore_error(failure.kind, failure.message, failure.fields)


def _shared(old: Sequence[ChatMessage], new: Sequence[ChatMessage]) -> tuple[tuple[int, int], ...]:
    """Return the ranges, in order, in which two requests have equal messages at equal indexes."""
    found: list[tuple[int, int]] = []
    _collect(old, new, 0, min(len(old), len(new)), found)
    return tuple(found)


def _collect(
    old: Sequence[ChatMessage], new: Sequence[ChatMessage], begin: int, end: int, found: list[tuple[int, int]]
) -> None:
    if begin >= end:
        return
    # Slices are compared without a Python call for each message: those of finished steps are the very same objects.
    if old[begin:end] == new[begin:end]:
        if found and found[-1][1] == begin:
            found[-1] = (found[-1][0], end)
        else:
            found.append((begin, end))
        return
    if end - begin > 1:
        middle = (begin + end) // 2
        _collect(old, new, begin, middle, found)
        _collect(old, new, middle, end, found)


def _others(messages: tuple[ChatMessage, ...], kept: tuple[tuple[int, int], ...]) -> tuple[ChatMessage, ...]:
    """The messages outside the ranges."""
    others: tuple[ChatMessage, ...] = ()
    at = 0
    for begin, end in kept:
        others += messages[at:begin]
        at = end
    return others + messages[at:]


def _slim(messages: tuple[ChatMessage, ...]) -> tuple[ChatMessage, ...]:
    for one in messages:
        if one.content.parts is not None:
            return tuple(map(_without_bytes, messages))
    return messages


def _without_bytes(message: ChatMessage) -> ChatMessage:
    """The message with the hash of every inline picture, recording or file in place of its bytes."""
    if message.content.parts is None:
        return message
    parts = tuple(
        one
        if isinstance(one, TextPart) or not one.data_url or one.data_url.startswith(_HASHED)
        else replace(one, data_url=_hashed(one.data_url))
        for one in message.content.parts
    )
    return replace(message, content=Content(parts=parts))


_HASHED: Final = "sha256:"


def _hashed(data_url: str) -> str:
    return f"{_HASHED}{hashlib.sha256(data_url.encode()).hexdigest()} {data_url.partition(',')[0][:64]}"


def slim(prompt: Prompt) -> Prompt:
    """Return the request as it would be read from a record."""
    return replace(prompt, messages=_slim(prompt.messages))


def _nonzero(figures: Usage | Cost) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(figures).items() if value}
