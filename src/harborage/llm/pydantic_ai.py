"""The models that pydantic-ai knows and Harborage does not: a bridge over its direct interface.

Model strings are its own, such as `any:cohere:command-r-plus`. Install with the `any` extra, and with the extra of
pydantic-ai that the provider needs. Its classes are handed in or read by their own names; nothing here imports it.
"""

from __future__ import annotations

import inspect
from contextlib import AsyncExitStack
from types import ModuleType
from typing import TYPE_CHECKING, Any

import msgspec

from harborage import codec
from harborage.llm.client import ChatMessage, CompleteRequest, Cost, ReasoningEffort, Role, Usage, reported_usage
from harborage.llm.content import AudioPart, ImagePart, Part, TextPart, decode_inline
from harborage.llm.driver import Driver, import_sdk
from harborage.llm.errors import (
    ConnectionFailedError,
    IncompleteAnswerError,
    InvalidJSONSchemaError,
    LLMConfigError,
    LLMError,
    MalformedAnswerError,
    ProviderTimeoutError,
)
from harborage.llm.providers import resolve_key
from harborage.llm.request_parts import answer_schema, check_tools, effort_of, extra_of, parts_of
from harborage.llm.transport import Timed

if TYPE_CHECKING:
    from harborage.llm.config import ConfigSnapshot, Deps
    from harborage.llm.streaming import AnswerBuilder


_PREFIX = "any:"
_INLINE_LIMIT = 50 * 1024 * 1024


class PydanticAIDriver(Driver):
    """A bridge to pydantic-ai; each of its models is made once and kept."""

    def __init__(self, cfg: ConfigSnapshot, deps: Deps, *, library: Library, key: str) -> None:
        super().__init__(cfg, deps, provider="any", variable="", key=key)
        self._library = library
        self._models: dict[str, Any] = {}

    async def _call(self, request: CompleteRequest, model: str, answer: AnswerBuilder) -> None:
        bridge = self._model(self._name(model))
        length = self._max_tokens(request, model)
        call = build_call(request, self._library, provider=self._provider, max_tokens=length)
        if request.stream:
            await self._stream(bridge, call, answer, model)
        else:
            direct = self._library.direct
            response = direct.model_request(
                bridge, call.messages, model_settings=call.settings, model_request_parameters=call.parameters
            )
            read_response(await self._timeouts.wait_first(response, model), answer)

    async def _stream(self, bridge: Any, call: Call, answer: AnswerBuilder, model: str) -> None:
        streaming = self._library.direct.model_request_stream(
            bridge, call.messages, model_settings=call.settings, model_request_parameters=call.parameters
        )
        async with AsyncExitStack() as stack:
            stream = await self._timeouts.wait_first(stack.enter_async_context(streaming), model)
            async for event in Timed(aiter(stream), self._timeouts, model):
                read_event(event, answer)
            read_response(stream.get(), answer, is_streamed=True)

    def _name(self, model: str) -> str:
        """Return the library's name of a model; one without a provider gets the configured one."""
        name = model.removeprefix(_PREFIX)
        provider, colon, _ = self._cfg.model.removeprefix(_PREFIX).partition(":")
        provider = provider if colon else self._cfg.provider
        return name if ":" in name or provider in ("", "any") else f"{provider}:{name}"

    def _model(self, name: str) -> Any:
        """Return pydantic-ai's model of this name, with the key and the address of the configuration."""
        made = self._models.get(name)
        if made is None:
            models = self._library.models
            made = self._models[name] = models.infer_model(name, provider_factory=self._provider_of)
        return made

    def _provider_of(self, name: str) -> Any:
        try:
            cls = self._library.providers.infer_provider_class(name)
        except ValueError as error:
            raise LLMConfigError(f"pydantic-ai knows no provider {name!r}; write any:PROVIDER:MODEL") from error
        wanted = {"api_key": self._key, "base_url": self._cfg.base_url}
        known = inspect.signature(cls.__init__).parameters
        given = {option: value for option, value in wanted.items() if value and option in known}
        return cls(**given) if given else self._library.providers.infer_provider(name)

    async def _close(self) -> None:
        models, self._models = self._models, {}
        for model in models.values():
            # The last block that is left closes its clients; entering one makes it this block.
            async with model:
                pass

    def _translate_error(self, error: Exception, model: str) -> Exception | None:
        if isinstance(error, LLMError):
            return None
        exceptions = self._library.exceptions
        if isinstance(error, ImportError):
            # It names what has to be installed for the provider.
            return LLMConfigError(f"{self._provider}: {error}")
        if isinstance(error, exceptions.ModelHTTPError):
            body = codec.encode({"error": error.body} if isinstance(error.body, dict) else error.body, "the refusal")
            return self._refusal(error.status_code, body, error.headers or {}, model)
        if isinstance(error, (exceptions.ModelTimeoutError, exceptions.ModelRequestTimeout)):
            return ProviderTimeoutError(f"{self._provider}: no answer in time", provider=self._provider, model=model)
        if isinstance(error, exceptions.ModelConnectionError):
            cause = type(error.__cause__).__name__ if error.__cause__ is not None else "unknown"
            return ConnectionFailedError(
                f"{self._provider}: the connection failed ({cause})", provider=self._provider, model=model
            )
        if isinstance(error, exceptions.ModelAPIError) and isinstance(error.__cause__, ValueError):
            return self._malformed_error(error.message.encode(), model)
        if isinstance(error, exceptions.ModelAPIError):
            return self._stream_error(codec.encode({"error": {"message": error.message}}), model)
        if isinstance(error, exceptions.UnexpectedModelBehavior) and "ended without" in str(error):
            return IncompleteAnswerError(
                f"{self._provider}: the answer ended without a word", provider=self._provider, model=model
            )
        if isinstance(error, exceptions.UnexpectedModelBehavior):
            return MalformedAnswerError(
                f"{self._provider}: {type(error).__name__}", provider=self._provider, model=model
            )
        if isinstance(error, exceptions.UserError):
            is_about_schema = "structured output" in str(error)
            return (InvalidJSONSchemaError if is_about_schema else LLMConfigError)(f"{self._provider}: {error}")
        return super()._translate_error(error, model)


def make(cfg: ConfigSnapshot, deps: Deps) -> PydanticAIDriver:
    """Return a bridge to pydantic-ai. Without a configured key each of its providers reads its own variable.

    Raises:
        MissingExtraError: the `any` extra is not installed.
        MissingAPIKeyError: the configuration names a variable, and that one is empty.
    """

    def part(name: str) -> Any:
        return import_sdk(f"pydantic_ai.{name}", extra="any", what="the pydantic-ai bridge")

    library = Library(
        direct=part("direct"),
        exceptions=part("exceptions"),
        messages=part("messages"),
        models=part("models"),
        output=part("output"),
        providers=part("providers"),
        tools=part("tools"),
    )
    return PydanticAIDriver(cfg, deps, library=library, key=resolve_key(cfg) if cfg.api_key else "")


# ── Requests ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Library(msgspec.Struct, frozen=True, kw_only=True):
    """The modules of pydantic-ai that the bridge uses."""

    direct: ModuleType
    exceptions: ModuleType
    messages: ModuleType
    models: ModuleType
    output: ModuleType
    providers: ModuleType
    tools: ModuleType


class Call(msgspec.Struct, frozen=True):
    """The arguments of one call to its direct interface."""

    messages: list[Any]
    settings: dict[str, Any]
    parameters: Any


def build_call(request: CompleteRequest, library: Library, *, provider: str, max_tokens: int | None = None) -> Call:
    """Return the call for a request; `max_tokens` is the length of the answer, None where none is set.

    Raises:
        BadRequestError: a tool that cannot be declared.
        InvalidContentError: an attachment that is broken or too large.
        InvalidJSONSchemaError: the format is a schema that is missing.
    """
    check_tools(request, provider)
    return Call(
        _messages(request, library, provider), _settings(request, max_tokens), _parameters(request, library, provider)
    )


def _messages(request: CompleteRequest, library: Library, provider: str) -> list[Any]:
    """Return the history; requests and responses alternate, so neighbours of one side become one message."""
    names: dict[str, str] = {}
    turns: list[tuple[bool, list[Any]]] = []
    for message in request.messages:
        names.update({call.id: call.name for call in message.tool_calls})
        is_response = message.role is Role.ASSISTANT
        parts = _assistant_parts(message, library) if is_response else _input_parts(message, names, library, provider)
        if turns and turns[-1][0] is is_response:
            turns[-1][1].extend(parts)
        else:
            turns.append((is_response, parts))
    wire = library.messages
    return [
        wire.ModelResponse(parts=parts) if is_response else wire.ModelRequest(parts=parts)
        for is_response, parts in turns
    ]


def _assistant_parts(message: ChatMessage, library: Library) -> list[Any]:
    wire = library.messages
    parts: list[Any] = [wire.TextPart(content=part.text) for part in parts_of(message) if isinstance(part, TextPart)]
    for call in message.tool_calls:
        args = (call.args or b"{}").decode("utf-8", "replace")
        parts.append(wire.ToolCallPart(tool_name=call.name, args=args, tool_call_id=call.id))
    return parts


def _input_parts(message: ChatMessage, names: dict[str, str], library: Library, provider: str) -> list[Any]:
    wire = library.messages
    pieces = [_user_content(part, library, provider) for part in parts_of(message)]
    content = "\n\n".join(pieces) if all(isinstance(piece, str) for piece in pieces) else pieces
    if message.role is Role.SYSTEM:
        return [wire.SystemPromptPart(content=content)]
    if message.role is Role.TOOL and message.tool_call_id:
        name = names.get(message.tool_call_id) or message.name or "unknown"
        return [wire.ToolReturnPart(tool_name=name, content=content, tool_call_id=message.tool_call_id)]
    return [wire.UserPromptPart(content=content)]


def _user_content(part: Part, library: Library, provider: str) -> Any:
    wire = library.messages
    if isinstance(part, TextPart):
        return part.text
    if part.data_url:
        held = decode_inline(part, limit_bytes=_INLINE_LIMIT, provider=provider)
        return wire.BinaryContent(data=held.data, media_type=held.mime)
    if isinstance(part, ImagePart):
        return wire.ImageUrl(url=part.url)
    return (wire.AudioUrl if isinstance(part, AudioPart) else wire.DocumentUrl)(url=part.url)


def _settings(request: CompleteRequest, max_tokens: int | None) -> dict[str, Any]:
    """Return the settings; the chain repeats failed calls, so the library must not."""
    effort = effort_of(request)
    settings: dict[str, Any] = {"max_retries": 0}
    if max_tokens is not None:
        settings["max_tokens"] = max_tokens
    if request.temperature is not None:
        settings["temperature"] = request.temperature
    if request.stops:
        settings["stop_sequences"] = list(request.stops)
    if effort is not ReasoningEffort.UNSET:
        settings["thinking"] = False if effort is ReasoningEffort.OFF else effort.value
    if request.tools and request.tool_choice:
        settings["tool_choice"] = request.tool_choice.value
    if request.tools and (request.parallel_tool_calls or request.tool_choice):
        settings["parallel_tool_calls"] = request.parallel_tool_calls
    if extra := extra_of(request):
        settings["extra_body"] = extra
    return settings


def _parameters(request: CompleteRequest, library: Library, provider: str) -> Any:
    tools = [
        library.tools.ToolDefinition(
            name=tool.name,
            description=tool.description or None,
            parameters_json_schema=tool.schema or {"type": "object", "properties": {}},
            strict=False,
        )
        for tool in request.tools
    ]
    schema = answer_schema(request.response_format, provider)
    if schema is None:
        return library.models.ModelRequestParameters(function_tools=tools)
    wanted = library.output.OutputObjectDefinition(json_schema=schema, name="answer")
    return library.models.ModelRequestParameters(function_tools=tools, output_mode="native", output_object=wanted)


# ── Responses ───────────────────────────────────────────────────────────────────────────────────────────────────────

# The library's test models never report why they ended.
_TEST_MODELS = frozenset({"function", "test"})
_NEVER_GUESSED = frozenset({"xai"})
_EXTRAS = (
    "cache_read_tokens",
    "cache_write_tokens",
    "cache_write_1h_tokens",
    "input_audio_tokens",
    "output_audio_tokens",
)


def read_event(event: Any, answer: AnswerBuilder) -> None:
    """Pass one event of a stream to the answer; the index of a part is the index of its call."""
    if event.event_kind == "part_start":
        _read_part(event.part, event.index, answer)
    elif event.event_kind == "part_delta":
        delta = event.delta
        match delta.part_delta_kind:
            case "text":
                answer.content(delta.content_delta)
            case "thinking":
                answer.reasoning(delta.content_delta or "")
            case "tool_call":
                answer.tool_call(
                    event.index,
                    id=delta.tool_call_id or "",
                    name=delta.tool_name_delta or "",
                    args=_args_text(delta.args_delta),
                )
            case _:
                pass  # an answer has no media


def read_response(response: Any, answer: AnswerBuilder, *, is_streamed: bool = False) -> None:
    """Pass a whole response to the answer; of a streamed one only usage, cost and finish reason."""
    if not is_streamed:
        for index, part in enumerate(response.parts):
            _read_part(part, index, answer)
    answer.usage(_usage(response.usage))
    answer.cost(_cost(response))
    reason = response.finish_reason if not is_streamed or _is_reported(response) else None
    if reason in (None, "stop", "tool_call") and (reason or not is_streamed or _is_test_model(response)):
        reason = "tool_calls" if any(part.part_kind == "tool-call" for part in response.parts) else "stop"
    if reason:
        answer.finish(reason)


def _is_reported(response: Any) -> bool:
    """Return whether the provider reported why a stream ended; for one that broke off the library guesses `stop`."""
    if response.finish_reason != "stop" or response.provider_name in _NEVER_GUESSED:
        return True
    return bool((response.provider_details or {}).get("finish_reason"))


def _is_test_model(response: Any) -> bool:
    return (response.model_name or "").partition(":")[0] in _TEST_MODELS


def _read_part(part: Any, index: int, answer: AnswerBuilder) -> None:
    match part.part_kind:
        case "text":
            answer.content(part.content)
        case "thinking":
            answer.reasoning(part.content)
        case "tool-call":
            answer.tool_call(index, id=part.tool_call_id, name=part.tool_name, args=_args_text(part.args))
        case _:
            pass


def _args_text(args: Any) -> str:
    """Return arguments as text; some of its models give them decoded."""
    if args is None or isinstance(args, str):
        return args or ""
    return codec.encode(args, "the arguments").decode()


def _usage(report: Any) -> Usage:
    details = dict(report.details or {})
    extras = {name: count for name in _EXTRAS if (count := getattr(report, name, 0))}
    return reported_usage(
        prompt=report.input_tokens,
        completion=report.output_tokens,
        reasoning=details.get("reasoning_tokens") or details.get("thoughts_tokens"),
        extras=extras,
    )


def _cost(response: Any) -> Cost:
    """Return the price by the library's table, which knows the provider behind the bridge; zero for unknown models."""
    try:
        price = response.cost()
    except (AssertionError, LookupError, ValueError):
        return Cost()
    return Cost(
        input_cost=float(price.input_price),
        output_cost=float(price.output_price),
        total_cost=float(price.total_price),
        currency="USD",
    )
