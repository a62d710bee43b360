"""Steps down to a weaker mode of structured output when a provider refuses the configured one.

Every attempt is made from the original request, and nothing is remembered: the next call starts at the mode of the
profile again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from harborage.events import EventType, LLMModeDowngradedPayload
from harborage.llm.chain.layer import Layer, caller_or_empty, cut, publish_event
from harborage.llm.chain.retry import Attempts
from harborage.llm.client import (
    ChatMessage,
    CompleteRequest,
    CompleteResponse,
    ResponseFormat,
    ResponseFormatKind,
    Role,
)
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
    ProviderTimeoutError,
    QuotaExceededError,
    RateLimitedError,
    ToolsUnsupportedError,
    UnknownDriverError,
    UnsupportedModelError,
)
from harborage.llm.profile import OutputMode

_REASON_BYTES: Final = 256
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
        raise _exhausted(refused) from refused[-1][1]

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
            reason=cut(str(error), _REASON_BYTES),
            occurred_at=self._deps.clock.now(),
        )
        publish_event(self._deps, EventType.LLM_MODE_DOWNGRADED, payload, who=who)


def _exhausted(refused: list[tuple[OutputMode, Exception]]) -> DowngradeExhaustedError:
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
