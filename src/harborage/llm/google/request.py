"""What a request looks like to the Gemini API: turns of two roles, and one bag of options. Pure."""

from __future__ import annotations

import base64
import re
from typing import Any

import msgspec

from harborage.llm.client import (
    ChatMessage,
    CompleteRequest,
    ReasoningEffort,
    ResponseFormatKind,
    Role,
    ToolChoice,
)
from harborage.llm.content import AudioPart, FilePart, ImagePart, TextPart
from harborage.llm.google.schemas import accepted
from harborage.llm.media import decode_inline
from harborage.llm.sdk.parts import answer_schema, arguments, check_tools, effort_of, extra_of, parts_of

__all__ = ["Call", "call_of"]

Json = dict[str, Any]

# What a request may carry in itself; larger media have to be uploaded.
_INLINE_LIMIT = 20 * 1024 * 1024
_GO_ON = {"text": "Continue."}
# Later models want every call back with the signature of the thought behind it, which a history does not keep; this
# is the word that the API's documentation gives for histories from elsewhere.
_NO_SIGNATURE = base64.b64encode(b"skip_thought_signature_validator").decode()
_VERSION = re.compile(r"gemini-(\d+)(?:\.(\d+))?")
_BUDGETS = {ReasoningEffort.LOW: 1024, ReasoningEffort.MEDIUM: 8192, ReasoningEffort.HIGH: 24576}
_LEAST_PRO_BUDGET = 128
_MODES = {ToolChoice.AUTO: "AUTO", ToolChoice.REQUIRED: "ANY", ToolChoice.NONE: "NONE"}
_KINDS = {ImagePart: "image/png", AudioPart: "audio/wav", FilePart: "application/pdf"}


class Call(msgspec.Struct, frozen=True):
    """The arguments of a call in the library's own spelling, and what is passed through as it is."""

    contents: list[Json]
    config: Json
    extra: Json = {}


def call_of(request: CompleteRequest, model: str, *, provider: str, max_tokens: int | None = None) -> Call:
    """The call that the request comes to; `max_tokens` is the length of the answer, None where nobody says.

    Raises:
        BadRequestError: a tool that cannot be declared.
        InvalidContentError: an attachment that is broken or too large.
        InvalidJSONSchemaError: a schema was asked for, and there is none.
    """
    check_tools(request, provider)
    config: Json = {"automatic_function_calling": {"disable": True}}
    system = [
        part.text
        for message in request.messages
        if message.role is Role.SYSTEM
        for part in parts_of(message)
        if isinstance(part, TextPart) and part.text
    ]
    if system:
        config["system_instruction"] = [{"text": text} for text in system]
    options = {
        "temperature": request.temperature,
        "max_output_tokens": max_tokens,
        "stop_sequences": list(request.stops) or None,
        "thinking_config": _thinking(request, model),
    }
    config.update({name: value for name, value in options.items() if value is not None})
    config.update(_form(request, provider))
    config.update(_tools(request))
    return Call(_contents(request, model, provider), config, extra_of(request))


# --- messages -----------------------------------------------------------------------------------------------------


def _contents(request: CompleteRequest, model: str, provider: str) -> list[Json]:
    wants_signatures = _version(model) >= (3, 0)
    names: dict[str, str] = {}
    turns: list[Json] = []
    for message in request.messages:
        if message.role is Role.SYSTEM:
            continue
        names.update({call.id: call.name for call in message.tool_calls})
        role = "model" if message.role is Role.ASSISTANT else "user"
        parts = _parts(message, names, provider, wants_signatures=wants_signatures)
        if turns and turns[-1]["role"] == role:
            turns[-1]["parts"].extend(parts)
        elif parts:
            turns.append({"role": role, "parts": parts})
    # A conversation begins and ends with the user.
    if not turns or turns[0]["role"] == "model":
        turns.insert(0, {"role": "user", "parts": [_GO_ON]})
    if turns[-1]["role"] == "model":
        turns.append({"role": "user", "parts": [_GO_ON]})
    return turns


def _parts(message: ChatMessage, names: dict[str, str], provider: str, *, wants_signatures: bool) -> list[Json]:
    if message.role is Role.TOOL and message.tool_call_id:
        return _response(message, names, provider)
    parts = [_part(part, provider) for part in parts_of(message) if not isinstance(part, TextPart) or part.text]
    for at, call in enumerate(message.tool_calls):
        part: Json = {"function_call": {"id": call.id, "name": call.name, "args": arguments(call.args)}}
        if wants_signatures and at == 0:
            part["thought_signature"] = _NO_SIGNATURE
        parts.append(part)
    return parts


def _response(message: ChatMessage, names: dict[str, str], provider: str) -> list[Json]:
    """A tool's answer, paired with its call by name and id; pictures and files follow it, having no place in it."""
    call_id = message.tool_call_id or ""
    parts = parts_of(message)
    text = "\n\n".join(part.text for part in parts if isinstance(part, TextPart))
    name = names.get(call_id) or message.name or "unknown"
    answer = {"function_response": {"id": call_id, "name": name, "response": {"output": text}}}
    return [answer, *(_part(part, provider) for part in parts if not isinstance(part, TextPart))]


def _part(part: TextPart | ImagePart | AudioPart | FilePart, provider: str) -> Json:
    if isinstance(part, TextPart):
        return {"text": part.text}
    if part.data_url:
        held = decode_inline(part, limit_bytes=_INLINE_LIMIT, provider=provider)
        return {"inline_data": {"mime_type": held.mime, "data": held.base64}}
    return {"file_data": {"mime_type": part.mime or _KINDS[type(part)], "file_uri": part.url}}


# --- options ------------------------------------------------------------------------------------------------------


def _version(model: str) -> tuple[int, int]:
    """The generation of a model; (0, 0) for one that its name does not tell."""
    found = _VERSION.search(model)
    return (int(found[1]), int(found[2] or 0)) if found else (0, 0)


def _thinking(request: CompleteRequest, model: str) -> Json | None:
    """How much to think: in tokens up to generation 2.5, in levels from 3 on, and not at all before."""
    effort = effort_of(request)
    version = _version(model)
    if effort is ReasoningEffort.UNSET or version < (2, 5):
        return None
    is_pro = "-pro" in model
    if version < (3, 0):
        if effort is ReasoningEffort.OFF:
            return {"thinking_budget": _LEAST_PRO_BUDGET if is_pro else 0}
        return {"thinking_budget": _BUDGETS[effort], "include_thoughts": True}
    if effort is ReasoningEffort.OFF:
        return {"thinking_level": "LOW" if is_pro else "MINIMAL"}
    return {"thinking_level": effort.value.upper(), "include_thoughts": True}


def _form(request: CompleteRequest, provider: str) -> Json:
    wanted = request.response_format
    if wanted is None or wanted.kind is ResponseFormatKind.TEXT:
        return {}
    schema = answer_schema(wanted, provider)
    form: Json = {"response_mime_type": "application/json"}
    return form if schema is None else {**form, "response_json_schema": accepted(schema)}


def _tools(request: CompleteRequest) -> Json:
    if not request.tools:
        return {}
    declared: list[Json] = []
    for tool in request.tools:
        declaration: Json = {"name": tool.name, "description": tool.description}
        if tool.schema.get("properties"):
            declaration["parameters_json_schema"] = accepted(tool.schema)
        declared.append(declaration)
    options: Json = {"tools": [{"function_declarations": declared}]}
    if mode := _MODES.get(request.tool_choice):
        options["tool_config"] = {"function_calling_config": {"mode": mode}}
    return options
