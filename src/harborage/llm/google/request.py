"""The request to the Gemini API: turns of two roles, options, and schemas in the words that the API knows. Pure."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
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
from harborage.llm.content import AudioPart, FilePart, ImagePart, TextPart, decode_inline
from harborage.llm.request_parts import (
    Json,
    alternate_turns,
    answer_schema,
    check_tools,
    decode_arguments,
    effort_of,
    extra_of,
    parts_of,
)

# What a request may carry in itself; larger media have to be uploaded.
_INLINE_LIMIT = 20 * 1024 * 1024
_GO_ON = {"text": "Continue."}
# Later models want every call back with the signature of the thinking behind it, which a history does not keep; this
# is the word that the API's documentation gives for histories from elsewhere.
_NO_SIGNATURE = base64.b64encode(b"skip_thought_signature_validator").decode()
_VERSION = re.compile(r"gemini-(\d+)(?:\.(\d+))?")
_BUDGETS = {ReasoningEffort.LOW: 1024, ReasoningEffort.MEDIUM: 8192, ReasoningEffort.HIGH: 24576}
_LEAST_PRO_BUDGET = 128
_MODES = {ToolChoice.AUTO: "AUTO", ToolChoice.REQUIRED: "ANY", ToolChoice.NONE: "NONE"}
_KINDS = {ImagePart: "image/png", AudioPart: "audio/wav", FilePart: "application/pdf"}


class Call(msgspec.Struct, frozen=True):
    """The arguments of a call in the library's own spelling, and the fields that are passed on unchanged."""

    contents: list[Json]
    config: Json
    extra: Json = {}


def build_call(request: CompleteRequest, model: str, *, provider: str, max_tokens: int | None = None) -> Call:
    """Return the call for a request; `max_tokens` is the length of the answer, None where none is set.

    Raises:
        BadRequestError: a tool that cannot be declared.
        InvalidContentError: an attachment that is broken or too large.
        InvalidJSONSchemaError: the format is a schema that is missing.
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


# ── Messages ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _contents(request: CompleteRequest, model: str, provider: str) -> list[Json]:
    return alternate_turns(_turns(request, model, provider), contents="parts", model_role="model", filler=_GO_ON)


def _turns(request: CompleteRequest, model: str, provider: str) -> Iterator[tuple[str, list[Json]]]:
    wants_signatures = _version(model) >= (3, 0)
    names: dict[str, str] = {}
    for message in request.messages:
        names.update({call.id: call.name for call in message.tool_calls})
        if message.role is not Role.SYSTEM:
            role = "model" if message.role is Role.ASSISTANT else "user"
            yield role, _parts(message, names, provider, wants_signatures=wants_signatures)


def _parts(message: ChatMessage, names: dict[str, str], provider: str, *, wants_signatures: bool) -> list[Json]:
    if message.role is Role.TOOL and message.tool_call_id:
        return _response(message, names, provider)
    parts = [_part(part, provider) for part in parts_of(message) if not isinstance(part, TextPart) or part.text]
    for at, call in enumerate(message.tool_calls):
        part: Json = {"function_call": {"id": call.id, "name": call.name, "args": decode_arguments(call.args)}}
        if wants_signatures and at == 0:
            part["thought_signature"] = _NO_SIGNATURE
        parts.append(part)
    return parts


def _response(message: ChatMessage, names: dict[str, str], provider: str) -> list[Json]:
    """Return a tool's answer, paired with its call by name and id; pictures and files follow it."""
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


# ── Options ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _version(model: str) -> tuple[int, int]:
    """Return the generation of a model by its name; (0, 0) where the name has none."""
    found = _VERSION.search(model)
    return (int(found[1]), int(found[2] or 0)) if found else (0, 0)


def _thinking(request: CompleteRequest, model: str) -> Json | None:
    """Return how much to think: in tokens in generation 2.5, in levels from 3 on, and nothing before."""
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
    return form if schema is None else {**form, "response_json_schema": accepted_schema(schema)}


def _tools(request: CompleteRequest) -> Json:
    if not request.tools:
        return {}
    declared: list[Json] = []
    for tool in request.tools:
        declaration: Json = {"name": tool.name, "description": tool.description}
        if tool.schema.get("properties"):
            declaration["parameters_json_schema"] = accepted_schema(tool.schema)
        declared.append(declaration)
    options: Json = {"tools": [{"function_declarations": declared}]}
    if mode := _MODES.get(request.tool_choice):
        options["tool_config"] = {"function_calling_config": {"mode": mode}}
    return options


# ── Schemas ─────────────────────────────────────────────────────────────────────────────────────────────────────────

_KNOWN = frozenset(
    {
        "$anchor",
        "$defs",
        "$id",
        "$ref",
        "additionalProperties",
        "anyOf",
        "description",
        "enum",
        "format",
        "items",
        "maxItems",
        "maximum",
        "minItems",
        "minimum",
        "oneOf",
        "prefixItems",
        "properties",
        "propertyOrdering",
        "required",
        "title",
        "type",
    }
)
_OF_SCHEMAS = frozenset({"$defs", "properties"})
_NESTED = frozenset({"additionalProperties", "anyOf", "items", "oneOf", "prefixItems"})


def accepted_schema(schema: Any) -> Any:
    """Return the schema in the words that the API knows; the rest is left out, and checked after the call."""
    if isinstance(schema, list):
        return [accepted_schema(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    kept: Json = {}
    for name, value in _plainly(schema).items():
        if name not in _KNOWN:
            continue
        if name in _OF_SCHEMAS and isinstance(value, dict):
            kept[name] = {key: accepted_schema(inner) for key, inner in value.items()}
        else:
            kept[name] = accepted_schema(value) if name in _NESTED else value
    return kept


def _plainly(schema: Json) -> Json:
    """Return the same schema without the words that others can replace."""
    plain = dict(schema)
    if "definitions" in plain:
        plain.setdefault("$defs", plain.pop("definitions"))
    if "const" in plain:
        plain.setdefault("enum", [plain.pop("const")])
    if isinstance(plain.get("$ref"), str):
        plain["$ref"] = plain["$ref"].replace("#/definitions/", "#/$defs/")
    members = plain.pop("allOf", None)
    for member in members if isinstance(members, list) else ():
        if isinstance(member, dict):
            plain = _joined(_plainly(member), plain)
    return plain


def _joined(first: Json, second: Json) -> Json:
    """Return both schemas as one: the properties of either, and all that either requires."""
    joined = {**first, **second}
    if "properties" in first and "properties" in second:
        joined["properties"] = {**first["properties"], **second["properties"]}
    if "required" in first and "required" in second:
        joined["required"] = list(dict.fromkeys([*first["required"], *second["required"]]))
    return joined
