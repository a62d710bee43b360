"""What a request looks like to pydantic-ai: its own message classes, settings and parameters.

Pure but for the classes, which are handed in: nothing here imports the library.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import msgspec

from harborage.llm.client import ChatMessage, CompleteRequest, ReasoningEffort, Role
from harborage.llm.content import AudioPart, ImagePart, Part, TextPart
from harborage.llm.media import decode_inline
from harborage.llm.sdk.parts import answer_schema, check_tools, effort_of, extra_of, parts_of

__all__ = ["Asked", "Words", "asked_of"]

_INLINE_LIMIT = 50 * 1024 * 1024


class Words(msgspec.Struct, frozen=True, kw_only=True):
    """The modules of pydantic-ai that the bridge speaks in."""

    direct: ModuleType
    exceptions: ModuleType
    messages: ModuleType
    models: ModuleType
    output: ModuleType
    providers: ModuleType
    tools: ModuleType


class Asked(msgspec.Struct, frozen=True):
    """The arguments of one call to its direct interface."""

    messages: list[Any]
    settings: dict[str, Any]
    parameters: Any


def asked_of(request: CompleteRequest, words: Words, *, provider: str, max_tokens: int | None = None) -> Asked:
    """The call that the request comes to; `max_tokens` is the length of the answer, None where nobody says.

    Raises:
        BadRequestError: a tool that cannot be declared.
        InvalidContentError: an attachment that is broken or too large.
        InvalidJSONSchemaError: a schema was asked for, and there is none.
    """
    check_tools(request, provider)
    return Asked(
        _messages(request, words, provider), _settings(request, max_tokens), _parameters(request, words, provider)
    )


def _messages(request: CompleteRequest, words: Words, provider: str) -> list[Any]:
    """The history; its requests and responses take turns, so neighbours of one side become one message."""
    names: dict[str, str] = {}
    turns: list[tuple[bool, list[Any]]] = []
    for message in request.messages:
        names.update({call.id: call.name for call in message.tool_calls})
        is_response = message.role is Role.ASSISTANT
        parts = _said(message, words, provider) if is_response else _asked(message, names, words, provider)
        if turns and turns[-1][0] is is_response:
            turns[-1][1].extend(parts)
        else:
            turns.append((is_response, parts))
    wire = words.messages
    return [
        wire.ModelResponse(parts=parts) if is_response else wire.ModelRequest(parts=parts)
        for is_response, parts in turns
    ]


def _said(message: ChatMessage, words: Words, provider: str) -> list[Any]:
    wire = words.messages
    said: list[Any] = [wire.TextPart(content=part.text) for part in parts_of(message) if isinstance(part, TextPart)]
    for call in message.tool_calls:
        args = (call.args or b"{}").decode("utf-8", "replace")
        said.append(wire.ToolCallPart(tool_name=call.name, args=args, tool_call_id=call.id))
    return said


def _asked(message: ChatMessage, names: dict[str, str], words: Words, provider: str) -> list[Any]:
    wire = words.messages
    pieces = [_piece(part, words, provider) for part in parts_of(message)]
    content = "\n\n".join(pieces) if all(isinstance(piece, str) for piece in pieces) else pieces
    if message.role is Role.SYSTEM:
        return [wire.SystemPromptPart(content=content)]
    if message.role is Role.TOOL and message.tool_call_id:
        name = names.get(message.tool_call_id) or message.name or "unknown"
        return [wire.ToolReturnPart(tool_name=name, content=content, tool_call_id=message.tool_call_id)]
    return [wire.UserPromptPart(content=content)]


def _piece(part: Part, words: Words, provider: str) -> Any:
    wire = words.messages
    if isinstance(part, TextPart):
        return part.text
    if part.data_url:
        held = decode_inline(part, limit_bytes=_INLINE_LIMIT, provider=provider)
        return wire.BinaryContent(data=held.data, media_type=held.mime)
    if isinstance(part, ImagePart):
        return wire.ImageUrl(url=part.url)
    return (wire.AudioUrl if isinstance(part, AudioPart) else wire.DocumentUrl)(url=part.url)


def _settings(request: CompleteRequest, max_tokens: int | None) -> dict[str, Any]:
    """The settings; repeating a failed call is not the library's business but the chain's."""
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


def _parameters(request: CompleteRequest, words: Words, provider: str) -> Any:
    tools = [
        words.tools.ToolDefinition(
            name=tool.name,
            description=tool.description or None,
            parameters_json_schema=tool.schema or {"type": "object", "properties": {}},
            strict=False,
        )
        for tool in request.tools
    ]
    schema = answer_schema(request.response_format, provider)
    if schema is None:
        return words.models.ModelRequestParameters(function_tools=tools)
    wanted = words.output.OutputObjectDefinition(json_schema=schema, name="answer")
    return words.models.ModelRequestParameters(function_tools=tools, output_mode="native", output_object=wanted)
