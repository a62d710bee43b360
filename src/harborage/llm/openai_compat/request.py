"""The body of a Chat Completions request. Pure: what cannot be sent is refused here, before the network."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, assert_never

import msgspec

from harborage import codec
from harborage.llm.client import (
    ChatMessage,
    CompleteRequest,
    ReasoningEffort,
    ResponseFormat,
    ResponseFormatKind,
    Role,
    ToolCallStructured,
    ToolDeclaration,
)
from harborage.llm.content import AudioPart, Content, FilePart, ImagePart, Part, TextPart, audio_format, decode_inline
from harborage.llm.errors import InvalidContentError
from harborage.llm.openai_compat.connection import is_openai_reasoning, quirks_of, thinking_fields
from harborage.llm.request_parts import check_tools, decode_schema, strip_strict_marks

if TYPE_CHECKING:
    from harborage.llm.openai_compat.connection import Quirks


_EFFORTS = {effort.value: effort for effort in ReasoningEffort if effort}
# Fields of `extra` by which a correction addresses a driver; they are no fields of the protocol.
_HINT, _TOOL_SCHEMA, _EFFORT = "schema_hint", "anthropic_tool_schema", "reasoning_effort"


def build_body(request: CompleteRequest, model: str, *, provider: str, max_tokens: int | None = None) -> dict[str, Any]:
    """Return the body of the call; `max_tokens` is the length of the answer, None where none is set.

    The messages are in JSON already. The extra fields of the request win over ours.

    Raises:
        InvalidContentError: an attachment is broken, too large, or in a form that the server does not take.
        InvalidJSONSchemaError: the format is a schema that is missing or no JSON object.
        BadRequestError: a tool has no name, or the schema of its arguments is not that of an object.
        UnserializableError: a message has a text that cannot be spelled in UTF-8.
    """
    check_tools(request, provider)
    quirks = quirks_of(provider)
    passed = dict(request.extra)
    effort = _EFFORTS.get(str(passed.get(_EFFORT)))
    if effort is not None:
        del passed[_EFFORT]
    passed.pop(_HINT, None)
    tool_schema = passed.pop(_TOOL_SCHEMA, None)
    body: dict[str, Any] = {
        "model": model,
        "messages": encoded_messages(request.messages, quirks, provider),
        **quirks.body,
        **_sampling(request, provider, model, max_tokens),
        **_tools(request, provider, model),
        **(_format(request.response_format, provider) if tool_schema is None else _schema_format(tool_schema)),
        **thinking_fields(quirks.thinking, effort or request.reasoning_effort),
        **passed,
    }
    body.pop("stream", None)
    if request.stream:
        body["stream"] = True
        if quirks.streams_usage_on_request:
            body.setdefault("stream_options", {"include_usage": True})
    return body


def _sampling(request: CompleteRequest, provider: str, model: str, max_tokens: int | None) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    thinks = is_openai_reasoning(provider, model)
    if request.temperature is not None and not thinks:
        fields["temperature"] = request.temperature
    if max_tokens is not None:
        fields["max_completion_tokens" if thinks else "max_tokens"] = max_tokens
    if request.stops:
        fields["stop"] = list(request.stops)
    return fields


def _tools(request: CompleteRequest, provider: str, model: str) -> dict[str, Any]:
    """Return the tools, and how to use them; without tools servers refuse a choice."""
    if not request.tools:
        return {}
    fields: dict[str, Any] = {"tools": [_tool(tool) for tool in request.tools]}
    if request.tool_choice:
        fields["tool_choice"] = request.tool_choice.value
    asks = request.parallel_tool_calls or bool(request.tool_choice)
    if asks and not (is_openai_reasoning(provider, model) and not request.parallel_tool_calls):
        fields["parallel_tool_calls"] = request.parallel_tool_calls
    return fields


def _tool(tool: ToolDeclaration) -> dict[str, Any]:
    function = {"name": tool.name, "parameters": tool.schema or {"type": "object", "properties": {}}}
    if tool.description:
        function["description"] = tool.description
    return {"type": "function", "function": function}


def _format(wanted: ResponseFormat | None, provider: str) -> dict[str, Any]:
    if wanted is None or wanted.kind is ResponseFormatKind.TEXT:
        return {}
    if wanted.kind is ResponseFormatKind.JSON_OBJECT:
        return {"response_format": {"type": "json_object"}}
    return _schema_format(decode_schema(wanted.json_schema, provider))


def _schema_format(schema: dict[str, Any]) -> dict[str, Any]:
    named: dict[str, Any] = {"name": "answer", "schema": schema}
    if schema.get("strict") is True:
        named = {"name": "answer", "strict": True, "schema": strip_strict_marks(schema)}
    return {"response_format": {"type": "json_schema", "json_schema": named}}


# ── Messages ────────────────────────────────────────────────────────────────────────────────────────────────────────

_WIRE = "llm.openai_compat"


def encoded_messages(messages: Sequence[ChatMessage], quirks: Quirks, provider: str) -> list[msgspec.Raw]:
    """Return a conversation as the server reads it, each message in JSON, which is kept beside the message.

    A run sends its whole history with every step. A message with an attachment is encoded anew each time: kept, it
    would take the memory twice.

    Raises:
        InvalidContentError: as for `wire_message`.
        UnserializableError: a text cannot be spelled in UTF-8; the path names the message.
    """
    name = f"{_WIRE}.{provider}"
    encoded = []
    for index, message in enumerate(messages):
        wire: msgspec.Raw | None = vars(message).get(name)
        if wire is None:
            plain = wire_message(message, quirks, provider)
            wire = msgspec.Raw(codec.encode(plain, f"request.messages[{index}]"))
            if not any(part.data_url for part in message.content.parts or () if not isinstance(part, TextPart)):
                vars(message)[name] = wire
        encoded.append(wire)
    return encoded


def wire_message(message: ChatMessage, quirks: Quirks, provider: str) -> dict[str, Any]:
    """Return one message as the server reads it.

    A tool's answer without a call id becomes a user's message; an assistant's empty text beside tool calls is null.

    Raises:
        InvalidContentError: an attachment is broken, too large, or in a form that the server does not take.
    """
    content = _content(message.content, message.role, quirks, provider)
    match message.role:
        case Role.TOOL if message.tool_call_id:
            return {"role": "tool", "tool_call_id": _id(message.tool_call_id, quirks), "content": content}
        case Role.TOOL:
            return {"role": "user", "content": content}
        case Role.ASSISTANT if message.tool_calls:
            calls = [_call(call, quirks) for call in message.tool_calls]
            return {**_named("assistant", message), "content": content or None, "tool_calls": calls}
        case _:
            return {**_named(message.role.value, message), "content": content}


def _named(role: str, message: ChatMessage) -> dict[str, Any]:
    return {"role": role, "name": message.name} if message.name else {"role": role}


def _call(call: ToolCallStructured, quirks: Quirks) -> dict[str, Any]:
    arguments = call.args.decode("utf-8", "replace") or "{}"
    return {"id": _id(call.id, quirks), "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _id(call_id: str, quirks: Quirks) -> str:
    """Return the call's id, or a short one in its place where the server refuses it, as another provider made it."""
    if re.fullmatch(quirks.call_id, call_id):
        return call_id
    return hashlib.sha256(call_id.encode()).hexdigest()[:9]


def _content(content: Content, role: Role, quirks: Quirks, provider: str) -> str | list[dict[str, Any]]:
    """Return text as text, and parts as blocks.

    Many servers read blocks in a user's message only, so text parts of any other message become one text.
    """
    if content.parts is None:
        return content.text or ""
    blocks = [_block(part, quirks, provider) for part in content.parts]
    if role is not Role.USER and all(block["type"] == "text" for block in blocks):
        return "\n".join(block["text"] for block in blocks)
    return blocks


def _block(part: Part, quirks: Quirks, provider: str) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if part.artifact is not None:
        return {"type": "text", "text": part.artifact.text()}
    match part:
        case ImagePart():
            return _image(part, quirks, provider)
        case AudioPart():
            return _audio(part, quirks, provider)
        case FilePart():
            return _file(part, quirks, provider)
        case _:
            assert_never(part)


def _image(part: ImagePart, quirks: Quirks, provider: str) -> dict[str, Any]:
    url = part.url
    if part.data_url:
        url = decode_inline(part, limit_bytes=quirks.attachment_bytes, provider=provider).data_url
    image = {"url": url, "detail": part.detail} if part.detail else {"url": url}
    return {"type": "image_url", "image_url": image}


def _audio(part: AudioPart, quirks: Quirks, provider: str) -> dict[str, Any]:
    if not part.data_url:
        _check_url(quirks, provider, "audio")
        return {"type": "audio_url", "audio_url": {"url": part.url}}
    media = decode_inline(part, limit_bytes=quirks.attachment_bytes, provider=provider)
    return {"type": "input_audio", "input_audio": {"data": media.base64, "format": audio_format(media.mime)}}


def _file(part: FilePart, quirks: Quirks, provider: str) -> dict[str, Any]:
    if not part.data_url:
        _check_url(quirks, provider, "a file")
        return {"type": "file", "file": {"filename": part.filename or "file", "file_data": part.url}}
    media = decode_inline(part, limit_bytes=quirks.attachment_bytes, provider=provider)
    filename = part.filename or f"file.{media.mime.rpartition('/')[2]}"
    return {"type": "file", "file": {"filename": filename, "file_data": media.data_url}}


def _check_url(quirks: Quirks, provider: str, what: str) -> None:
    if not quirks.takes_media_urls:
        raise InvalidContentError(f"{provider} does not fetch {what} from an address; give it inline, as a data URL")
