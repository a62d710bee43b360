"""What a request looks like to the Responses API: history as input items, tools as functions. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from harborage.llm.client import (
    ChatMessage,
    CompleteRequest,
    ReasoningEffort,
    ResponseFormatKind,
    Role,
    ToolChoice,
)
from harborage.llm.content import AudioPart, FilePart, ImagePart, Part, TextPart
from harborage.llm.media import decode_inline
from harborage.llm.sdk.parts import answer_schema, check_tools, effort_of, extra_of, parts_of, refuse_part

__all__ = ["body_of"]

Json = dict[str, Any]

_REASONS = re.compile(r"(?:^|/)(?:o\d|gpt-(?:[5-9]|\d\d)|codex)")
_NEVER_REASONS = re.compile(r"(?:^|/)(?:gpt-[34]|chatgpt|gpt-5-chat)")
# The least that a model can be told to think, by its family; the later ones can be told not to.
_LEAST_EFFORT = ((re.compile(r"(?:^|/)o\d"), "low"), (re.compile(r"(?:^|/)gpt-5(?:-|$)"), "minimal"))
_NAME_OF_ANSWER = "answer"
_INLINE_LIMIT = 50 * 1024 * 1024


def body_of(request: CompleteRequest, model: str, *, provider: str, max_tokens: int | None = None) -> Json:
    """The body of the call; `max_tokens` is the length of the answer, None where nobody says.

    Raises:
        BadRequestError: a tool that cannot be declared.
        InvalidContentError: an attachment that is broken, too large, or of a kind that the API does not take.
        InvalidJSONSchemaError: a schema was asked for, and there is none.
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


# --- messages -----------------------------------------------------------------------------------------------------


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
    """The text of a message of a role that has nothing but text."""
    pieces = []
    for part in parts_of(message):
        if not isinstance(part, TextPart):
            raise refuse_part(part, provider, f"{type(part).__name__} in a message of the {message.role.value}")
        pieces.append(part.text)
    return "\n\n".join(pieces)


def _content(message: ChatMessage, provider: str) -> str | list[Json]:
    if message.content.text is not None:
        return message.content.text
    return [_part(part, provider) for part in parts_of(message)]


def _output(message: ChatMessage, provider: str) -> str | list[Json]:
    """A tool's answer; text alone is sent as text, which every server behind this API takes."""
    parts = parts_of(message)
    if all(isinstance(part, TextPart) for part in parts):
        return _text(message, provider)
    return [_part(part, provider) for part in parts]


def _part(part: Part, provider: str) -> Json:
    match part:
        case TextPart():
            return {"type": "input_text", "text": part.text}
        case ImagePart():
            address = _held(part, provider) if part.data_url else part.url
            return {"type": "input_image", "image_url": address, "detail": part.detail or "auto"}
        case FilePart():
            if not part.data_url:
                return {"type": "input_file", "file_url": part.url}
            return {"type": "input_file", "filename": part.filename or "file", "file_data": _held(part, provider)}
        case AudioPart():
            raise refuse_part(part, provider)


def _held(part: ImagePart | FilePart, provider: str) -> str:
    return decode_inline(part, limit_bytes=_INLINE_LIMIT, provider=provider).data_url


# --- options ------------------------------------------------------------------------------------------------------


def _thinking(request: CompleteRequest, model: str) -> Json:
    """How much to think, and the temperature, which models that think refuse."""
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
    """Whether the provider can hold its model to the schema: every object closed, every property required."""
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
