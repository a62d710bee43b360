"""The request to the Messages API, and what the families of Claude accept of it. Pure.

System messages are lifted out of the history, all answers to the calls of one message are put in one message, and the
roles alternate; the API refuses anything else.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from harborage.llm.client import ChatMessage, CompleteRequest, ReasoningEffort, Role, ToolChoice
from harborage.llm.content import AudioPart, FilePart, ImagePart, Part, TextPart, decode_inline
from harborage.llm.request_parts import (
    Json,
    alternate_turns,
    answer_schema,
    check_tools,
    decode_arguments,
    effort_of,
    extra_of,
    parts_of,
    safe_id,
    strip_strict_marks,
    unsupported_part,
)

ANSWER_TOOL = "respond_with_json"
"""The tool a model is made to call when its answer must have a schema; its input is the answer."""

_CACHED = {"type": "ephemeral"}
_GO_ON = {"type": "text", "text": "Continue."}
_PDF = "application/pdf"
_IMAGE_LIMIT = 5 * 1024 * 1024
_FILE_LIMIT = 32 * 1024 * 1024
# The API thinks for no fewer tokens than 1,024, so the lowest effort asks for that many.
_LEAST_BUDGET = 1024
_BUDGETS = {ReasoningEffort.LOW: 512, ReasoningEffort.MEDIUM: 4096, ReasoningEffort.HIGH: 16384}


def build_body(request: CompleteRequest, model: str, *, provider: str, max_tokens: int | None = None) -> Json:
    """Return the body of the call; `max_tokens` is the length of the answer, None where none is set.

    Raises:
        BadRequestError: a tool that cannot be declared.
        InvalidContentError: an attachment that is broken, too large, or of a kind that the API does not take.
        InvalidJSONSchemaError: the format is a schema that is missing.
    """
    check_tools(request, provider)
    quirks = quirks_of(model)
    body: Json = {"model": model, "messages": _messages(request, provider)}
    if system := _system(request, provider):
        body["system"] = system
    if request.stream:
        body["stream"] = True
    if request.stops:
        # A stop of nothing but white space is refused.
        body["stop_sequences"] = [stop for stop in request.stops if stop.strip()]
    schema = _schema(request, provider)
    body.update(_tools(request, schema, quirks))
    is_forced = body.get("tool_choice", {}).get("type") in ("any", "tool")
    body.update(_thinking(request, quirks, is_forced=is_forced))
    if schema is not None and not quirks.can_be_forced:
        body.setdefault("output_config", {})["format"] = {"type": "json_schema", "schema": _closed(schema)}
    budget = body.get("thinking", {}).get("budget_tokens", 0)
    body["max_tokens"] = (max_tokens or quirks.max_tokens) + budget
    if request.temperature is not None and quirks.takes_temperature and not _thinks(body):
        body["temperature"] = request.temperature
    body.update(extra_of(request))
    return body


# ── Messages ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _system(request: CompleteRequest, provider: str) -> list[Json]:
    """Return every system message, in order; those before the conversation stay the same and are worth caching."""
    blocks: list[Json] = []
    leading = 0
    for index, message in enumerate(request.messages):
        if message.role is not Role.SYSTEM:
            continue
        texts = [_block(part, provider) for part in parts_of(message) if not _is_blank(part)]
        blocks.extend(texts)
        if all(before.role is Role.SYSTEM for before in request.messages[:index]):
            leading = len(blocks)
    if leading:
        # Where a caller asks for another time, it must be that of every mark.
        blocks[leading - 1]["cache_control"] = request.extra.get("cache_control", _CACHED)
    return blocks


def _messages(request: CompleteRequest, provider: str) -> list[Json]:
    turns = (
        ("assistant" if message.role is Role.ASSISTANT else "user", _blocks(message, provider))
        for message in request.messages
        if message.role is not Role.SYSTEM
    )
    return alternate_turns(turns, contents="content", model_role="assistant", filler=_GO_ON)


def _blocks(message: ChatMessage, provider: str) -> list[Json]:
    blocks = [_block(part, provider) for part in parts_of(message) if not _is_blank(part)]
    if message.role is Role.TOOL and message.tool_call_id:
        result: Json = {"type": "tool_result", "tool_use_id": safe_id(message.tool_call_id)}
        if blocks:
            result["content"] = blocks
        return [result]
    for call in message.tool_calls:
        use = {"type": "tool_use", "id": safe_id(call.id), "name": call.name, "input": decode_arguments(call.args)}
        blocks.append(use)
    return blocks


def _is_blank(part: Part) -> bool:
    """Return whether a text shows nothing; the API refuses such."""
    return isinstance(part, TextPart) and not part.text.strip()


def _block(part: Part, provider: str) -> Json:
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case ImagePart():
            if not part.data_url:
                return {"type": "image", "source": {"type": "url", "url": part.url}}
            held = decode_inline(part, limit_bytes=_IMAGE_LIMIT, provider=provider)
            return {"type": "image", "source": {"type": "base64", "media_type": held.mime, "data": held.base64}}
        case FilePart():
            return _document(part, provider)
        case AudioPart():
            raise unsupported_part(part, provider)


def _document(part: FilePart, provider: str) -> Json:
    held = decode_inline(part, limit_bytes=_FILE_LIMIT, provider=provider) if part.data_url else None
    if held is None:
        source = {"type": "url", "url": part.url}
    elif held.mime == _PDF:
        source = {"type": "base64", "media_type": _PDF, "data": held.base64}
    elif held.mime.startswith("text/") or held.mime == "application/json":
        source = {"type": "text", "media_type": "text/plain", "data": held.data.decode("utf-8", "replace")}
    else:
        raise unsupported_part(part, provider, f"file of the kind {held.mime}")
    document: Json = {"type": "document", "source": source}
    if part.filename:
        document["title"] = part.filename
    return document


# ── Options ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _schema(request: CompleteRequest, provider: str) -> Json | None:
    """Return the schema of the answer, from the response format or from where a correction moved it."""
    moved = request.extra.get("anthropic_tool_schema")
    return strip_strict_marks(moved) if isinstance(moved, dict) else answer_schema(request.response_format, provider)


def _tools(request: CompleteRequest, schema: Json | None, quirks: Quirks) -> Json:
    declared = [
        {"name": tool.name, "description": tool.description, "input_schema": _object_schema(tool.schema)}
        for tool in request.tools
    ]
    answers_by_tool = schema is not None and quirks.can_be_forced
    if answers_by_tool:
        what = "Gives the answer. Call this instead of answering in text."
        declared.append({"name": ANSWER_TOOL, "description": what, "input_schema": _object_schema(schema or {})})
    if not declared:
        return {}
    choice = _choice(request, answers_by_tool=answers_by_tool, can_be_forced=quirks.can_be_forced)
    if choice and choice["type"] != "none" and not request.parallel_tool_calls:
        choice["disable_parallel_tool_use"] = True
    return {"tools": declared, **({"tool_choice": choice} if choice else {})}


def _choice(request: CompleteRequest, *, answers_by_tool: bool, can_be_forced: bool) -> Json:
    if answers_by_tool:
        may_call = request.tools and request.tool_choice is not ToolChoice.NONE
        return {"type": "any"} if may_call else {"type": "tool", "name": ANSWER_TOOL}
    match request.tool_choice:
        case ToolChoice.REQUIRED:
            return {"type": "any" if can_be_forced else "auto"}
        case ToolChoice.NONE:
            return {"type": "none"}
        case ToolChoice.AUTO:
            return {"type": "auto"}
        case ToolChoice.UNSET:
            return {"type": "auto"} if request.parallel_tool_calls else {}


def _object_schema(schema: Json) -> Json:
    """A tool's input is an object, and its schema must say so."""
    return schema if schema.get("type") == "object" else {"type": "object", **schema}


def _closed(schema: Any) -> Any:
    """Return the schema with every object closed unless it says otherwise; structured output takes no open ones."""
    if isinstance(schema, list):
        return [_closed(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: _closed(inner) for name, inner in schema.items()}
    if closed.get("type") == "object":
        closed.setdefault("additionalProperties", False)
    return closed


def _thinking(request: CompleteRequest, quirks: Quirks, *, is_forced: bool) -> Json:
    """Return how much to think.

    Models that take a budget refuse to think where a tool is forced, and after tool results unless they get their
    thinking before the call back, which a history does not keep.
    """
    effort = effort_of(request)
    if effort is ReasoningEffort.UNSET:
        return {}
    if effort is ReasoningEffort.OFF:
        return {"thinking": {"type": quirks.off}} if quirks.off else {"output_config": {"effort": "low"}}
    if quirks.decides_itself:
        return {
            "thinking": {"type": "adaptive", "display": "summarized"},
            "output_config": {"effort": effort.value},
        }
    if is_forced or _answers_calls(request):
        return {"thinking": {"type": "disabled"}}
    return {"thinking": {"type": "enabled", "budget_tokens": max(_LEAST_BUDGET, _BUDGETS[effort])}}


def _answers_calls(request: CompleteRequest) -> bool:
    """Return whether the model called tools in the turn that it continues."""
    for message in reversed(request.messages):
        if message.role is Role.TOOL and message.tool_call_id:
            return True
        if message.role is Role.ASSISTANT:
            return bool(message.tool_calls)
    return False


def _thinks(body: Json) -> bool:
    return body.get("thinking", {}).get("type") in ("enabled", "adaptive")


# ── Quirks ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Quirks(msgspec.Struct, frozen=True):
    """What one model accepts.

    `decides_itself`: it takes an effort of thinking, not a number of tokens. `off` is the word that switches its
    thinking off, empty where nothing does. Later models refuse a temperature (`takes_temperature`) and to be forced to
    call a tool (`can_be_forced`). `max_tokens` is the length of an answer where none is set.
    """

    decides_itself: bool = False
    off: str = "disabled"
    takes_temperature: bool = True
    can_be_forced: bool = True
    max_tokens: int = 8192


_VERSION = re.compile(
    r"(?:claude-)?(?P<family>opus|sonnet|haiku|fable|mythos)-(?P<major>\d)(?:[-.](?P<minor>\d{1,2}))?(?!\d)"
)
_OLD_VERSION = re.compile(r"claude-(?:3|2|1|instant)(?:[-.](?P<minor>\d{1,2})(?!\d))?")
_ALWAYS_THINK = frozenset({"fable", "mythos"})
_UNKNOWN = Quirks()
_SHORT = Quirks(max_tokens=4096)


def quirks_of(model: str) -> Quirks:
    """Return what the model of this name accepts; an unknown one is taken for one of the older models."""
    if "mythos-preview" in model:
        return Quirks(decides_itself=True, off="", max_tokens=32_000)
    found = _VERSION.search(model)
    if found is None:
        old = _OLD_VERSION.search(model)
        return _UNKNOWN if old is None or old["minor"] == "7" else _SHORT
    family, version = found["family"], (int(found["major"]), int(found["minor"] or 0))
    if version < (4, 6):
        return _UNKNOWN
    return Quirks(
        decides_itself=True,
        off=_off(family, version),
        takes_temperature=version < (4, 7),
        can_be_forced=not _refuses_forced_calls(family, version),
        max_tokens=32_000,
    )


def _off(family: str, version: tuple[int, int]) -> str:
    if family in _ALWAYS_THINK or (family == "opus" and version >= (5, 5)):
        return ""
    return "between_tools" if family == "sonnet" and version >= (5, 5) else "disabled"


def _refuses_forced_calls(family: str, version: tuple[int, int]) -> bool:
    if family in _ALWAYS_THINK:
        return version >= (5, 1)
    return family in ("opus", "sonnet") and version >= (5, 5)
