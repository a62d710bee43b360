"""OpenAI's Responses API, through the official library.

Nothing is stored with the provider: every call sends its whole history. Install with the `openai` extra.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from harborage.llm.client import (
    ChatMessage,
    CompleteRequest,
    ReasoningEffort,
    ResponseFormatKind,
    Role,
    ToolChoice,
    Usage,
    reported_usage,
)
from harborage.llm.content import AudioPart, FilePart, ImagePart, Part, TextPart, decode_inline
from harborage.llm.driver import ErrorOf, StainlessDriver, http_client, http_timeout, import_sdk
from harborage.llm.providers import resolve_key
from harborage.llm.request_parts import (
    Json,
    answer_schema,
    check_tools,
    effort_of,
    extra_of,
    parts_of,
    unsupported_part,
)

if TYPE_CHECKING:
    from harborage.llm.config import ConfigSnapshot, Deps
    from harborage.llm.streaming import AnswerBuilder


_KEY = "OPENAI_API_KEY"


class OpenAIResponsesDriver(StainlessDriver):
    """One connection pool to the Responses API; the API has no stop sequences, so `stops` is not sent."""

    async def _call(self, request: CompleteRequest, model: str, answer: AnswerBuilder) -> None:
        length = self._max_tokens(request, model)
        body = build_body(request, model, provider=self._provider, max_tokens=length)
        reader = ResponseReader(answer, self._stream_error, self._malformed_error, model=model)
        async with self._post("/responses", body, model) as response:
            if request.stream:
                await self._read_events(response, model, reader.read_event)
            else:
                reader.read_response(await self._read_body(response, model))


def make(cfg: ConfigSnapshot, deps: Deps) -> OpenAIResponsesDriver:
    """Return a driver for the Responses API.

    Raises:
        MissingExtraError: the `openai` extra is not installed.
        MissingAPIKeyError: there is no key.
    """
    openai = import_sdk("openai", extra="openai", what="the OpenAI Responses driver")
    key = resolve_key(cfg, _KEY)
    client = openai.AsyncOpenAI(
        api_key=key,
        base_url=cfg.base_url or None,
        max_retries=0,
        timeout=http_timeout(cfg),
        default_headers=dict(cfg.headers),
        http_client=http_client(cfg),
    )
    return OpenAIResponsesDriver(cfg, deps, sdk=openai, client=client, provider="openai", key=(_KEY, key))


# ── Request ─────────────────────────────────────────────────────────────────────────────────────────────────────────

_REASONS = re.compile(r"(?:^|/)(?:o\d|gpt-(?:[5-9]|\d\d)|codex)")
_NEVER_REASONS = re.compile(r"(?:^|/)(?:gpt-[34]|chatgpt|gpt-5-chat)")
# The lowest effort that a model accepts, by its family; later ones accept none.
_LEAST_EFFORT = ((re.compile(r"(?:^|/)o\d"), "low"), (re.compile(r"(?:^|/)gpt-5(?:-|$)"), "minimal"))
_NAME_OF_ANSWER = "answer"
_INLINE_LIMIT = 50 * 1024 * 1024


def build_body(request: CompleteRequest, model: str, *, provider: str, max_tokens: int | None = None) -> Json:
    """Return the body of the call; `max_tokens` is the length of the answer, None where none is set.

    Raises:
        BadRequestError: a tool that cannot be declared.
        InvalidContentError: an attachment that is broken, too large, or of a kind that the API does not take.
        InvalidJSONSchemaError: the format is a schema that is missing.
    """
    check_tools(request, provider)
    body: Json = {
        "model": model,
        "input": [item for message in request.messages for item in _items(message, provider)],
        "store": False,
    }
    if request.stream:
        body["stream"] = True
    if max_tokens is not None:
        body["max_output_tokens"] = max_tokens
    body.update(_thinking(request, model))
    if (form := _form(request, provider)) is not None:
        body["text"] = {"format": form}
    if request.tools:
        body.update(_tools(request))
    body.update(extra_of(request))
    return body


def _items(message: ChatMessage, provider: str) -> Iterator[Json]:
    if message.role is Role.TOOL and message.tool_call_id:
        output = _output(message, provider)
        yield {"type": "function_call_output", "call_id": message.tool_call_id, "output": output}
        return
    if message.role is Role.ASSISTANT:
        if text := _text(message, provider):
            yield {"role": "assistant", "content": text}
        for call in message.tool_calls:
            arguments = (call.args or b"{}").decode("utf-8", "replace")
            yield {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": arguments}
        return
    if message.role is Role.SYSTEM:
        yield {"role": "system", "content": _text(message, provider)}
        return
    yield {"role": "user", "content": _content(message, provider)}


def _text(message: ChatMessage, provider: str) -> str:
    """Return the text of a message whose role takes nothing but text."""
    texts = []
    for part in parts_of(message):
        if not isinstance(part, TextPart):
            raise unsupported_part(part, provider, f"{type(part).__name__} in a message of the {message.role.value}")
        texts.append(part.text)
    return "\n\n".join(texts)


def _content(message: ChatMessage, provider: str) -> str | list[Json]:
    if message.content.text is not None:
        return message.content.text
    return [_part(part, provider) for part in parts_of(message)]


def _output(message: ChatMessage, provider: str) -> str | list[Json]:
    """Return a tool's answer; text alone stays text, which every server behind this API takes."""
    parts = parts_of(message)
    if all(isinstance(part, TextPart) for part in parts):
        return _text(message, provider)
    return [_part(part, provider) for part in parts]


def _part(part: Part, provider: str) -> Json:
    match part:
        case TextPart():
            return {"type": "input_text", "text": part.text}
        case ImagePart():
            address = _data_url(part, provider) if part.data_url else part.url
            return {"type": "input_image", "image_url": address, "detail": part.detail or "auto"}
        case FilePart():
            if not part.data_url:
                return {"type": "input_file", "file_url": part.url}
            return {"type": "input_file", "filename": part.filename or "file", "file_data": _data_url(part, provider)}
        case AudioPart():
            raise unsupported_part(part, provider)


def _data_url(part: ImagePart | FilePart, provider: str) -> str:
    return decode_inline(part, limit_bytes=_INLINE_LIMIT, provider=provider).data_url


def _thinking(request: CompleteRequest, model: str) -> Json:
    """Return how much to think, and the temperature, which models that think refuse."""
    effort = effort_of(request)
    reasons = _REASONS.search(model) is not None and _NEVER_REASONS.search(model) is None
    options: Json = {}
    if effort is ReasoningEffort.OFF:
        if reasons:
            options["reasoning"] = {"effort": _least(model)}
    elif effort and _NEVER_REASONS.search(model) is None:
        options["reasoning"] = {"effort": effort.value, "summary": "auto"}
    if request.temperature is not None and (not reasons or options.get("reasoning") == {"effort": "none"}):
        options["temperature"] = request.temperature
    return options


def _least(model: str) -> str:
    return next((effort for family, effort in _LEAST_EFFORT if family.search(model)), "none")


def _form(request: CompleteRequest, provider: str) -> Json | None:
    wanted = request.response_format
    if wanted is None or wanted.kind is ResponseFormatKind.TEXT:
        return None
    if wanted.kind is ResponseFormatKind.JSON_OBJECT:
        return {"type": "json_object"}
    schema = answer_schema(wanted, provider)
    return {"type": "json_schema", "name": _NAME_OF_ANSWER, "schema": schema, "strict": _is_strict(schema)}


def _is_strict(schema: Any) -> bool:
    """Return whether the provider can enforce the schema: every object closed, every property required."""
    if isinstance(schema, list):
        return all(_is_strict(inner) for inner in schema)
    if not isinstance(schema, dict):
        return True
    if schema.get("type") == "object" or "properties" in schema:
        properties = schema.get("properties", {})
        if schema.get("additionalProperties") is not False or set(schema.get("required", ())) != set(properties):
            return False
    return all(_is_strict(inner) for inner in schema.values())


def _tools(request: CompleteRequest) -> Json:
    declared = [
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.schema or {"type": "object", "properties": {}},
            "strict": False,
        }
        for tool in request.tools
    ]
    options: Json = {"tools": declared}
    if request.tool_choice is not ToolChoice.UNSET:
        options["tool_choice"] = request.tool_choice.value
    if request.parallel_tool_calls or request.tool_choice is not ToolChoice.UNSET:
        options["parallel_tool_calls"] = request.parallel_tool_calls
    return options


# ── Response ────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Part(msgspec.Struct):
    """A piece of a message or of a summary."""

    type: str = ""
    text: str = ""
    refusal: str = ""


class _Item(msgspec.Struct):
    """One output of the model: a message, a call, a summary of its thinking."""

    type: str = ""
    call_id: str | None = ""
    name: str | None = ""
    arguments: str | None = ""
    content: list[_Part] | None = None
    summary: list[_Part] | None = None


class _Response(msgspec.Struct):
    """The state of the whole answer."""

    status: str = ""
    output: list[_Item] = []
    usage: dict[str, Any] | None = None
    incomplete_details: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


class _Event(msgspec.Struct):
    """One event of a stream; each kind has its own few of these fields."""

    type: str = ""
    delta: str | dict[str, Any] = ""
    text: str = ""
    output_index: int = 0
    item: _Item | None = None
    response: _Response | None = None
    error: dict[str, Any] | None = None


_event = msgspec.json.Decoder(_Event)
_response = msgspec.json.Decoder(_Response)


class ResponseReader:
    """Reads one answer into its builder, streamed (`read_event`) or whole (`read_response`)."""

    __slots__ = ("_answer", "_called", "_malformed", "_model", "_refused", "_stream_error", "_text_of")

    def __init__(self, answer: AnswerBuilder, stream_error: ErrorOf, malformed: ErrorOf, *, model: str) -> None:
        self._answer = answer
        self._stream_error = stream_error
        self._malformed = malformed
        self._model = model
        self._text_of: int | None = None
        self._called: dict[int, bool] = {}  # calls by place, and whether their arguments have come in pieces
        self._refused = False

    def read_event(self, data: bytes) -> bool:
        """Read one event of a stream; return whether the answer is whole.

        Raises:
            ProviderError: the provider reports a failure, or sends an event that cannot be read.
        """
        if data == b"[DONE]":
            return True
        try:
            event = _event.decode(data)
        except (msgspec.DecodeError, UnicodeError):
            raise self._malformed(data, self._model) from None
        delta = event.delta if isinstance(event.delta, str) else ""
        match event.type:
            case "response.output_text.delta":
                self._add_text(delta, event.output_index)
            case "response.refusal.delta":
                self._refused = True
                self._add_text(delta, event.output_index)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                self._answer.reasoning(delta)
            case "response.reasoning_summary_text.done" | "response.reasoning_text.done":
                self._answer.reasoning_detail(event.text)
            case "response.function_call_arguments.delta":
                self._called[event.output_index] = True
                self._answer.tool_call(event.output_index, args=delta)
            case "response.output_item.added" | "response.output_item.done" if event.item is not None:
                self._read_call(event.item, event.output_index, is_whole=event.type.endswith("done"))
            case "response.completed" | "response.incomplete" | "response.failed" if event.response is not None:
                self._end(event.response, data)
            case "error":
                raise self._stream_error(data, self._model)
            case _ if event.error is not None and not event.type:
                raise self._stream_error(data, self._model)
            case _:
                pass  # a kind of event without a part of the answer, or newer than this file
        return self._answer.has_finished

    def read_response(self, data: bytes) -> None:
        """Read an answer that came whole.

        Raises:
            ProviderError: as for `read_event`.
        """
        try:
            response = _response.decode(data)
        except (msgspec.DecodeError, UnicodeError):
            raise self._malformed(data, self._model) from None
        for index, item in enumerate(response.output):
            for part in item.summary or ():
                self._answer.reasoning_detail(part.text)
            for part in item.content or ():
                self._read_part(item, part, index)
            self._read_call(item, index, is_whole=True)
        self._end(response, data)

    def _read_part(self, item: _Item, part: _Part, index: int) -> None:
        if item.type == "reasoning":
            self._answer.reasoning_detail(part.text)
            return
        self._refused = self._refused or bool(part.refusal)
        self._add_text(part.text or part.refusal, index)

    def _add_text(self, text: str, index: int) -> None:
        """Add text of the message at `index`; a further message begins a new paragraph."""
        if text and self._text_of is not None and index != self._text_of:
            self._answer.content("\n\n")
        if text:
            self._text_of = index
        self._answer.content(text)

    def _read_call(self, item: _Item, index: int, *, is_whole: bool) -> None:
        if item.type != "function_call":
            return
        came_in_pieces = self._called.setdefault(index, False)
        args = item.arguments if is_whole and not came_in_pieces else ""
        self._answer.tool_call(index, id=item.call_id or "", name=item.name or "", args=args or "")

    def _end(self, response: _Response, data: bytes) -> None:
        self._answer.usage(_usage(response.usage or {}))
        if response.status == "failed" or response.error:
            raise self._stream_error(msgspec.json.encode({"error": response.error or {}}), self._model)
        if response.status == "incomplete":
            reason = (response.incomplete_details or {}).get("reason", "")
            self._answer.finish("length" if reason == "max_output_tokens" else str(reason) or "incomplete")
        elif response.status == "completed":
            self._answer.finish("tool_calls" if self._called else "content_filter" if self._refused else "stop")
        else:
            raise self._malformed(data, self._model)


def _usage(report: dict[str, Any]) -> Usage:
    read = report.get("input_tokens_details") or {}
    written = report.get("output_tokens_details") or {}
    extras = {name: value for name, value in {**read, **written}.items() if value and name != "reasoning_tokens"}
    return reported_usage(
        prompt=report.get("input_tokens"),
        completion=report.get("output_tokens"),
        reasoning=written.get("reasoning_tokens"),
        total=report.get("total_tokens"),
        extras=extras,
    )
