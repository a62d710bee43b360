"""The layers that call again, and the attempts that a caller sees as one answer.

`Resilient` repeats a call whose failure is safe to repeat: overload, rate limits, broken connections. `Retrying` asks
again when a validator refuses the answer. `Downgrading` steps down to a weaker mode of structured output when a
provider refuses the configured one; every attempt is made from the original request, and nothing is remembered.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import msgspec

from harborage.clock import sleep
from harborage.concurrency import cancellations
from harborage.events import EventType, LLMModeDowngradedPayload, LLMRetryWithFeedbackPayload
from harborage.llm.chain.layer import Layer, caller_or_empty, cut, publish_event
from harborage.llm.client import (
    ChatMessage,
    CompleteRequest,
    CompleteResponse,
    ResponseFormat,
    ResponseFormatKind,
    Role,
    Validator,
)
from harborage.llm.config import OutputMode
from harborage.llm.configure import DEFAULT_MAX_RETRIES
from harborage.llm.content import Content
from harborage.llm.errors import (
    AuthenticationFailedError,
    ClientClosedError,
    ConnectionFailedError,
    ContextLeakError,
    ContextOverflowError,
    ContextWindowExceededError,
    DowngradeExhaustedError,
    IncompleteAnswerError,
    InvalidContentError,
    InvalidJSONSchemaError,
    LLMConfigError,
    MalformedAnswerError,
    ModelNotFoundError,
    OrphanToolCallError,
    ProviderError,
    ProviderTimeoutError,
    QuotaExceededError,
    RateLimitedError,
    Retry,
    RetryExhaustedError,
    ToolsUnsupportedError,
    UnknownDriverError,
    UnsupportedModelError,
)

if TYPE_CHECKING:
    from harborage.llm.client import OnDelta
    from harborage.llm.config import TransportPolicy

_log = logging.getLogger(__name__)

_MOST_DOUBLINGS: Final = 62
_COMPLAINT_BYTES: Final = 256
_REASON_BYTES: Final = 160


class Resilient(Layer):
    """Repeats a call as often and as patiently as `cfg.transport` allows; the last failure is passed on as it is."""

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        self._check_open()
        policy = self._cfg.transport
        if policy.max_retries <= 0:
            return await self._inner.complete(request)
        retries = 0
        with Attempts(request) as attempts:
            while True:
                try:
                    return await self._inner.complete(attempts.begin(request))
                except ProviderError as error:
                    wait = wait_s(policy, error, retries, self._deps.random()) if retries < policy.max_retries else None
                    if wait is None or self._is_too_late(request, wait):
                        raise
                    retries += 1
                    _log_repeat(error, retries, policy.max_retries, wait)
                await sleep(self._deps.clock, wait)

    def _is_too_late(self, request: CompleteRequest, wait: float) -> bool:
        """Return whether the caller's deadline passes before the repeat; then the failure is raised now."""
        deadline = request.deadline
        return deadline is not None and (deadline - self._deps.clock.now()).total_seconds() <= wait


def wait_s(policy: TransportPolicy, error: ProviderError, retries: int, dice: float) -> float | None:
    """Return the seconds to wait before the call is repeated; None when it must not be.

    The wait that the provider asks for counts; one longer than the policy allows means no repeat. `dice` is in [0, 1);
    `retries` counts the repeats so far.
    """
    if error.retry != Retry.SAFE:
        return None
    requested = error.retry_after_s
    if requested is None or math.isnan(requested):
        return backoff_s(policy, retries, dice)
    return None if requested > policy.max_retry_after_s else max(0.0, requested)


def backoff_s(policy: TransportPolicy, retries: int, dice: float) -> float:
    """Return between half and all of the wait in seconds: the base doubled with each repeat, at most the maximum."""
    whole = min(policy.max_s, policy.base_s * 2.0 ** min(retries, _MOST_DOUBLINGS))
    return max(0.0, whole) * (0.5 + 0.5 * dice)


def _log_repeat(error: ProviderError, retry: int, most: int, wait: float) -> None:
    note = {"action": "llm.repeat", "provider": error.provider, "model": error.model, "status": error.status}
    whose = error.provider or "llm"
    text = "%s: %s; retrying in %.1f s (%d of %d)"
    _log.warning(text, whose, type(error).__name__, wait, retry, most, extra=note)


class Retrying(Layer):
    """Asks a model to correct an answer that the request's validator refuses, as often as the model's profile allows.

    Each further attempt asks the original question, with the last answer and the validator's complaint; earlier answers
    are left out.

    Raises:
        RetryExhaustedError: the last answer allowed was refused too; `response` is that answer.
    """

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        self._check_open()
        validator = request.validator
        if validator is None:
            return await self._inner.complete(request)
        retries = self._max_retries(request)
        reasons: list[str] = []
        sent = request
        with Attempts(request) as attempts:
            while True:
                response = await self._inner.complete(attempts.begin(sent))
                refused = _refusal(validator, response)
                if refused is None:
                    return response
                reason = str(refused) or type(refused).__name__
                reasons.append(reason)
                if len(reasons) > retries:
                    raise _exhausted(reasons, response) from refused
                self._publish(request, len(reasons), retries, reason)
                messages = (*request.messages, *corrective_turn(response.content, reason))
                sent = msgspec.structs.replace(request, messages=messages)

    def _max_retries(self, request: CompleteRequest) -> int:
        profile = self._cfg.profiles.get(request.model or self._cfg.model)
        if profile is None or profile.max_retries is None:
            return DEFAULT_MAX_RETRIES
        return max(0, profile.max_retries)

    def _publish(self, request: CompleteRequest, attempt: int, retries: int, reason: str) -> None:
        who = caller_or_empty()
        payload = LLMRetryWithFeedbackPayload(
            identity=who,
            model=request.model or self._cfg.model,
            attempt=attempt,
            max_retries=retries,
            reason=cut(reason, _COMPLAINT_BYTES),
            occurred_at=self._deps.clock.now(),
        )
        publish_event(self._deps, EventType.LLM_RETRY_WITH_FEEDBACK, payload, who=who)


def corrective_turn(answer: str, complaint: str) -> tuple[ChatMessage, ...]:
    """Return what follows the original messages: the refused answer, unless it was empty, and the complaint."""
    text = f"That answer cannot be used: {cut(complaint, _COMPLAINT_BYTES)}\nAnswer again, with this corrected."
    correction = ChatMessage(Role.USER, Content(text=text))
    return (ChatMessage(Role.ASSISTANT, Content(text=answer)), correction) if answer else (correction,)


def _refusal(validator: Validator, response: CompleteResponse) -> Exception | None:
    """Return the exception by which the validator refuses an answer; None when it accepts it."""
    try:
        validator(response)
    except Exception as error:  # noqa: BLE001 - any exception of a validator refuses the answer
        return error
    return None


def _exhausted(reasons: Sequence[str], response: CompleteResponse) -> RetryExhaustedError:
    listed = " | ".join(f"attempt={at} reason={cut(reason, _REASON_BYTES)}" for at, reason in enumerate(reasons))
    retries = len(reasons) - 1
    return RetryExhaustedError(f"llm: no usable answer after {retries} retries: {listed}", response)


class Attempts:
    """The attempts at one request: `with Attempts(request) as attempts: … inner.complete(attempts.begin(request))`.

    Every layer that calls again uses it, so that the callbacks of a request see one answer: deltas are passed on as
    they come, `on_reset` is called before a further attempt, and `done` is held back until the block is left, so that
    it comes exactly once, on errors and cancellation too. A caller without `on_reset` sees the attempts one after the
    other.
    """

    __slots__ = (
        "_has_callback",
        "_has_streamed",
        "_is_content_done",
        "_is_reasoning_done",
        "_on_content",
        "_on_reasoning",
        "_on_reset",
    )

    def __init__(self, request: CompleteRequest) -> None:
        self._on_content: OnDelta | None = request.on_content if request.stream else None
        self._on_reasoning: OnDelta | None = request.on_reasoning if request.stream else None
        self._on_reset = request.on_reset
        self._has_callback = self._on_content is not None or self._on_reasoning is not None
        self._has_streamed = False
        self._is_content_done = False
        self._is_reasoning_done = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._is_reasoning_done and self._on_reasoning is not None:
                self._on_reasoning("", True)
        finally:
            if self._is_content_done and self._on_content is not None:
                self._on_content("", True)

    def begin(self, request: CompleteRequest) -> CompleteRequest:
        """Return `request` as the next attempt sends it; what earlier attempts streamed is void from here on.

        Raises:
            asyncio.CancelledError: the caller is cancelled, so there is no further attempt.
        """
        if cancellations():
            raise asyncio.CancelledError
        if not self._has_callback:
            return request
        self._restart()
        return msgspec.structs.replace(
            request,
            on_content=None if self._on_content is None else self._content,
            on_reasoning=None if self._on_reasoning is None else self._reasoning,
            on_reset=self._restart,
        )

    def _content(self, delta: str, done: bool) -> None:
        if delta and self._on_content is not None:
            self._has_streamed = True
            self._on_content(delta, False)
        if done:
            self._is_content_done = True

    def _reasoning(self, delta: str, done: bool) -> None:
        if delta and self._on_reasoning is not None:
            self._has_streamed = True
            self._on_reasoning(delta, False)
        if done:
            self._is_reasoning_done = True

    def _restart(self) -> None:
        """Call `on_reset` if anything was streamed. That the content is done is kept: `done` comes in any case."""
        self._is_reasoning_done = False
        if self._has_streamed:
            self._has_streamed = False
            if self._on_reset is not None:
                self._on_reset()


_NOTE_BYTES: Final = 256
_LISTED_BYTES: Final = 160


class Downgrading(Layer):
    """Tries the modes of structured output from the one in the model's profile down to plain text.

    A request without a response format, or for a model whose mode is not set, passes untouched.

    Raises:
        DowngradeExhaustedError: every mode was refused; the text lists them, the last refusal is the cause.
    """

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        self._check_open()
        ladder = self._ladder(request)
        if not ladder:
            return await self._inner.complete(request)
        refused: list[tuple[OutputMode, Exception]] = []
        with Attempts(request) as attempts:
            for mode, weaker in zip(ladder, (*ladder[1:], None), strict=True):
                try:
                    response = await self._inner.complete(attempts.begin(shape_request(request, mode)))
                except Exception as error:
                    if not is_invalid_json_schema_error(error):
                        raise
                    refused.append((mode, error))
                    if weaker is not None:
                        self._publish(request, mode, weaker, error)
                else:
                    return unwrap_answer(response, mode)
        raise _all_refused(refused) from refused[-1][1]

    def _ladder(self, request: CompleteRequest) -> tuple[OutputMode, ...]:
        """Return the modes to try; none when there is nothing to step down from."""
        wanted = request.response_format
        if wanted is None or wanted.kind == ResponseFormatKind.TEXT:
            return ()
        profile = self._cfg.profiles.get(request.model or self._cfg.model)
        return () if profile is None else LADDERS.get(profile.output_mode, ())

    def _publish(self, request: CompleteRequest, mode: OutputMode, weaker: OutputMode, error: Exception) -> None:
        who = caller_or_empty()
        payload = LLMModeDowngradedPayload(
            identity=who,
            model=request.model or self._cfg.model,
            from_mode=mode,
            to_mode=weaker,
            from_=KINDS[mode],
            to=KINDS[weaker],
            reason=cut(str(error), _NOTE_BYTES),
            occurred_at=self._deps.clock.now(),
        )
        publish_event(self._deps, EventType.LLM_MODE_DOWNGRADED, payload, who=who)


def _all_refused(refused: list[tuple[OutputMode, Exception]]) -> DowngradeExhaustedError:
    listed = " | ".join(f"mode={mode} error={cut(str(error), _LISTED_BYTES)}" for mode, error in refused)
    return DowngradeExhaustedError(f"llm: every mode of structured output was refused: {listed}")


# ── Modes ───────────────────────────────────────────────────────────────────────────────────────────────────────────

LADDERS: Final[Mapping[str, tuple[OutputMode, ...]]] = {
    OutputMode.NATIVE: (OutputMode.NATIVE, OutputMode.PROMPTED, OutputMode.TEXT),
    OutputMode.TOOLS: (OutputMode.TOOLS, OutputMode.PROMPTED, OutputMode.TEXT),
    OutputMode.PROMPTED: (OutputMode.PROMPTED, OutputMode.TEXT),
    OutputMode.TEXT: (OutputMode.TEXT,),
}
"""The modes that are tried, by the mode a model's profile names."""

KINDS: Final[Mapping[OutputMode, ResponseFormatKind]] = {
    OutputMode.NATIVE: ResponseFormatKind.JSON_SCHEMA,
    OutputMode.TOOLS: ResponseFormatKind.JSON_OBJECT,
    OutputMode.PROMPTED: ResponseFormatKind.JSON_OBJECT,
    OutputMode.TEXT: ResponseFormatKind.TEXT,
}
"""The response format that each mode amounts to."""

_TOOL: Final = "respond_with"
_INSTRUCTIONS: Final[Mapping[OutputMode, str]] = {
    OutputMode.TOOLS: f'Answer only with {{"name":"{_TOOL}","arguments":…}}, whose arguments match this JSON schema:',
    OutputMode.PROMPTED: "Answer only with JSON that matches this JSON schema:",
    OutputMode.TEXT: "Structure the answer as JSON of this schema where that comes naturally; plain text will do:",
}


def shape_request(request: CompleteRequest, mode: OutputMode) -> CompleteRequest:
    """Return `request` as it is put to a model in `mode`; a schema is given in a system message."""
    if mode is OutputMode.NATIVE or request.response_format is None:
        return request
    schema = request.response_format.json_schema
    messages = request.messages
    if schema:
        instruction = f"{_INSTRUCTIONS[mode]}\n{_compact(schema)}"
        messages = (ChatMessage(Role.SYSTEM, Content(text=instruction)), *messages)
    wanted = None if mode is OutputMode.TEXT else ResponseFormat(ResponseFormatKind.JSON_OBJECT)
    return msgspec.structs.replace(request, messages=messages, response_format=wanted)


class _Wrapped(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    arguments: msgspec.Raw


def unwrap_answer(response: CompleteResponse, mode: OutputMode) -> CompleteResponse:
    """Return the answer without the wrapper that `tools` mode asks for; one without a wrapper stays as it is."""
    if mode is not OutputMode.TOOLS:
        return response
    try:
        found = msgspec.json.decode(response.content, type=_Wrapped)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return response
    if found.name != _TOOL:
        return response
    return msgspec.structs.replace(response, content=bytes(found.arguments).decode())


def _compact(schema: bytes) -> str:
    """Return the schema without needless white space; one that is no JSON is quoted as it is."""
    try:
        return msgspec.json.format(schema, indent=-1).decode()
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return schema.decode("utf-8", "replace")


# ── Which failures mean that a provider refuses a schema or its mode ────────────────────────────────────────────────

_PHRASES: Final = (
    "json_schema",
    "json schema",
    "invalid schema",
    "schema validation",
    "response_format",
    "response format",
    "structured output",
    "json mode",
    "json_object",
)
# Their class names the cause; a text of theirs that happens to mention JSON mode means nothing.
_OTHER_CAUSES: Final = (
    AuthenticationFailedError,
    ClientClosedError,
    ConnectionFailedError,
    ContextLeakError,
    ContextOverflowError,
    ContextWindowExceededError,
    IncompleteAnswerError,
    LLMConfigError,
    InvalidContentError,
    MalformedAnswerError,
    ModelNotFoundError,
    OrphanToolCallError,
    ProviderTimeoutError,
    QuotaExceededError,
    RateLimitedError,
    ToolsUnsupportedError,
    UnknownDriverError,
    UnsupportedModelError,
)


def is_invalid_json_schema_error(error: BaseException | None) -> bool:
    """Return whether a weaker mode of structured output may help.

    It may when an `InvalidJSONSchemaError` is among the error and its causes, or the text of one of them mentions
    schemas or modes, unless the error's class says that something else is wrong.
    """
    chain = list(_causes(error))
    if any(isinstance(one, InvalidJSONSchemaError) for one in chain):
        return True
    if any(isinstance(one, _OTHER_CAUSES) for one in chain):
        return False
    return any(_mentions_schemas(str(one)) for one in chain)


def _mentions_schemas(text: str) -> bool:
    lowered = text.lower()
    return any(phrase in lowered for phrase in _PHRASES)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error, its cause, the cause of that, and so on; a circular chain ends."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__
