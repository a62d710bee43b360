"""What a request looks like to the Messages API. Pure.

System messages are lifted out of the history, all answers to one turn's calls stand in one message, and the roles
alternate; the API refuses anything else.
"""

from __future__ import annotations

from typing import Any

from harborage.llm.anthropic.habits import Habits, habits_of
from harborage.llm.client import ChatMessage, CompleteRequest, ReasoningEffort, Role, ToolChoice
from harborage.llm.content import AudioPart, FilePart, ImagePart, Part, TextPart
from harborage.llm.media import decode_inline
from harborage.llm.sdk.parts import (
    answer_schema,
    arguments,
    check_tools,
    effort_of,
    extra_of,
    parts_of,
    refuse_part,
    safe_id,
    without_marks,
)

__all__ = ["ANSWER_TOOL", "body_of"]

Json = dict[str, Any]

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


def body_of(request: CompleteRequest, model: str, *, provider: str, max_tokens: int | None = None) -> Json:
    """The body of the call; `max_tokens` is the length of the answer, None where nobody says.

    Raises:
        BadRequestError: a tool that cannot be declared.
        InvalidContentError: an attachment that is broken, too large, or of a kind that the API does not take.
        InvalidJSONSchemaError: a schema was asked for, and there is none.
    """
    check_tools(request, provider)
    habits = habits_of(model)
    body: Json = {"model": model, "messages": _messages(request, provider)}
    if system := _system(request, provider):
        body["system"] = system
    if request.stream:
        body["stream"] = True
    if request.stops:
        # A stop of nothing but white space is refused.
        body["stop_sequences"] = [stop for stop in request.stops if stop.strip()]
    schema = _schema(request, provider)
    body.update(_tools(request, schema, habits))
    is_forced = body.get("tool_choice", {}).get("type") in ("any", "tool")
    body.update(_thinking(request, habits, is_forced=is_forced))
    if schema is not None and not habits.can_be_forced:
        body.setdefault("output_config", {})["format"] = {"type": "json_schema", "schema": _closed(schema)}
    budget = body.get("thinking", {}).get("budget_tokens", 0)
    body["max_tokens"] = (max_tokens or habits.max_tokens) + budget
    if request.temperature is not None and habits.takes_temperature and not _thinks(body):
        body["temperature"] = request.temperature
    body.update(extra_of(request))
    return body


# --- messages -----------------------------------------------------------------------------------------------------


def _system(request: CompleteRequest, provider: str) -> list[Json]:
    """Every system message, in order; what comes before the conversation stays the same and is worth caching."""
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
        blocks[leading - 1]["cache_control"] = _CACHED
    return blocks


def _messages(request: CompleteRequest, provider: str) -> list[Json]:
    turns: list[Json] = []
    for message in request.messages:
        if message.role is Role.SYSTEM:
            continue
        role = "assistant" if message.role is Role.ASSISTANT else "user"
        blocks = _blocks(message, provider)
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"].extend(blocks)
        elif blocks:
            turns.append({"role": role, "content": blocks})
    # A conversation begins and ends with the user.
    if not turns or turns[0]["role"] == "assistant":
        turns.insert(0, {"role": "user", "content": [_GO_ON]})
    if turns[-1]["role"] == "assistant":
        turns.append({"role": "user", "content": [_GO_ON]})
    return turns


def _blocks(message: ChatMessage, provider: str) -> list[Json]:
    blocks = [_block(part, provider) for part in parts_of(message) if not _is_blank(part)]
    if message.role is Role.TOOL and message.tool_call_id:
        result: Json = {"type": "tool_result", "tool_use_id": safe_id(message.tool_call_id)}
        if blocks:
            result["content"] = blocks
        return [result]
    for call in message.tool_calls:
        use = {"type": "tool_use", "id": safe_id(call.id), "name": call.name, "input": arguments(call.args)}
        blocks.append(use)
    return blocks


def _is_blank(part: Part) -> bool:
    """Text that shows nothing is refused."""
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
            raise refuse_part(part, provider)


def _document(part: FilePart, provider: str) -> Json:
    held = decode_inline(part, limit_bytes=_FILE_LIMIT, provider=provider) if part.data_url else None
    if held is None:
        source = {"type": "url", "url": part.url}
    elif held.mime == _PDF:
        source = {"type": "base64", "media_type": _PDF, "data": held.base64}
    elif held.mime.startswith("text/") or held.mime == "application/json":
        source = {"type": "text", "media_type": "text/plain", "data": held.data.decode("utf-8", "replace")}
    else:
        raise refuse_part(part, provider, f"file of the kind {held.mime}")
    document: Json = {"type": "document", "source": source}
    if part.filename:
        document["title"] = part.filename
    return document


# --- options ------------------------------------------------------------------------------------------------------


def _schema(request: CompleteRequest, provider: str) -> Json | None:
    """The schema of the answer, from wherever a layer above has put it."""
    moved = request.extra.get("anthropic_tool_schema")
    return without_marks(moved) if isinstance(moved, dict) else answer_schema(request.response_format, provider)


def _tools(request: CompleteRequest, schema: Json | None, habits: Habits) -> Json:
    declared = [
        {"name": tool.name, "description": tool.description, "input_schema": _of_object(tool.schema)}
        for tool in request.tools
    ]
    answers_by_tool = schema is not None and habits.can_be_forced
    if answers_by_tool:
        what = "Gives the answer. Call this instead of answering in text."
        declared.append({"name": ANSWER_TOOL, "description": what, "input_schema": _of_object(schema or {})})
    if not declared:
        return {}
    choice = _choice(request, answers_by_tool=answers_by_tool, can_be_forced=habits.can_be_forced)
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


def _of_object(schema: Json) -> Json:
    """A tool's input is an object, and its schema must say so."""
    return schema if schema.get("type") == "object" else {"type": "object", **schema}


def _closed(schema: Any) -> Any:
    """The schema with every object closed where it does not say; structured output takes no open ones."""
    if isinstance(schema, list):
        return [_closed(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: _closed(inner) for name, inner in schema.items()}
    if closed.get("type") == "object":
        closed.setdefault("additionalProperties", False)
    return closed


def _thinking(request: CompleteRequest, habits: Habits, *, is_forced: bool) -> Json:
    """How much to think.

    Models that take a budget refuse to think where a tool is forced, and after tool results whose call they cannot be
    shown the thinking of, which a history does not keep.
    """
    effort = effort_of(request)
    if effort is ReasoningEffort.UNSET:
        return {}
    if effort is ReasoningEffort.OFF:
        return {"thinking": {"type": habits.off}} if habits.off else {"output_config": {"effort": "low"}}
    if habits.decides_itself:
        return {
            "thinking": {"type": "adaptive", "display": "summarized"},
            "output_config": {"effort": effort.value},
        }
    if is_forced or _answers_calls(request):
        return {"thinking": {"type": "disabled"}}
    return {"thinking": {"type": "enabled", "budget_tokens": max(_LEAST_BUDGET, _BUDGETS[effort])}}


def _answers_calls(request: CompleteRequest) -> bool:
    """Whether the turn that the model goes on with is one in which it has called tools."""
    for message in reversed(request.messages):
        if message.role is Role.TOOL and message.tool_call_id:
            return True
        if message.role is Role.ASSISTANT:
            return bool(message.tool_calls)
    return False


def _thinks(body: Json) -> bool:
    return body.get("thinking", {}).get("type") in ("enabled", "adaptive")
