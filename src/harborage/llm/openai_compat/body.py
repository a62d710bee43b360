"""The body of a Chat Completions request. Pure: what cannot be sent is refused here, before the network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from harborage.llm.client import (
    CompleteRequest,
    ReasoningEffort,
    ResponseFormat,
    ResponseFormatKind,
    ToolDeclaration,
)
from harborage.llm.errors import BadRequestError, InvalidJSONSchemaError
from harborage.llm.openai_compat.habits import habits_of, is_openai_reasoning, thinking_fields
from harborage.llm.openai_compat.messages import encoded_messages

__all__ = ["request_body"]

_EFFORTS = {effort.value: effort for effort in ReasoningEffort if effort}
# Fields of `extra` by which a correction speaks to a driver; they are no fields of the protocol.
_HINT, _TOOL_SCHEMA, _EFFORT = "schema_hint", "anthropic_tool_schema", "reasoning_effort"


def request_body(
    request: CompleteRequest, *, provider: str, model: str, extra: Mapping[str, Any], default_max_tokens: int | None
) -> dict[str, Any]:
    """Everything that is sent for one call; the fields of `extra`, then the request's own extra ones, win over ours.

    The messages are in JSON already.

    Raises:
        InvalidContentError: an attachment is broken, too large, or in a form that the server does not take.
        InvalidJSONSchemaError: a schema was asked for, and there is none, or it is no JSON object.
        BadRequestError: a tool has no name, or describes its arguments by something that is no object.
        UnserializableError: a message has a text that cannot be spelled in UTF-8.
    """
    habits = habits_of(provider)
    passed = {**extra, **request.extra}
    effort = _EFFORTS.get(str(passed.get(_EFFORT)))
    if effort is not None:
        del passed[_EFFORT]
    passed.pop(_HINT, None)
    tool_schema = passed.pop(_TOOL_SCHEMA, None)
    body: dict[str, Any] = {
        "model": model,
        "messages": encoded_messages(request.messages, habits, provider),
        **habits.body,
        **_sampling(request, provider, model, default_max_tokens),
        **_tools(request, provider, model),
        **(_format(request.response_format, provider) if tool_schema is None else _schema_format(tool_schema)),
        **thinking_fields(habits.thinking, effort or request.reasoning_effort),
        **passed,
    }
    body.pop("stream", None)
    if request.stream:
        body["stream"] = True
        if habits.streams_usage_on_request:
            body.setdefault("stream_options", {"include_usage": True})
    return body


def _sampling(request: CompleteRequest, provider: str, model: str, default_max_tokens: int | None) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    thinks = is_openai_reasoning(provider, model)
    if request.temperature is not None and not thinks:
        fields["temperature"] = request.temperature
    limit = request.max_tokens if request.max_tokens is not None else default_max_tokens
    if limit is not None:
        fields["max_completion_tokens" if thinks else "max_tokens"] = limit
    if request.stops:
        fields["stop"] = list(request.stops)
    return fields


def _tools(request: CompleteRequest, provider: str, model: str) -> dict[str, Any]:
    """The tools, and how to use them; without a tool there is nothing to choose, and servers refuse a choice."""
    if not request.tools:
        return {}
    fields: dict[str, Any] = {"tools": [_tool(tool, provider) for tool in request.tools]}
    if request.tool_choice:
        fields["tool_choice"] = request.tool_choice.value
    asks = request.parallel_tool_calls or bool(request.tool_choice)
    if asks and not (is_openai_reasoning(provider, model) and not request.parallel_tool_calls):
        fields["parallel_tool_calls"] = request.parallel_tool_calls
    return fields


def _tool(tool: ToolDeclaration, provider: str) -> dict[str, Any]:
    schema = tool.schema or {"type": "object", "properties": {}}
    if not tool.name:
        raise BadRequestError(f"{provider}: a tool has no name", provider=provider)
    if not _is_object(schema):
        what = f"the tool {tool.name!r} describes its arguments by something that is no object"
        raise BadRequestError(f"{provider}: {what}", provider=provider)
    function = {"name": tool.name, "parameters": schema}
    if tool.description:
        function["description"] = tool.description
    return {"type": "function", "function": function}


def _is_object(schema: Any) -> bool:
    """Whether a schema that came from anywhere describes a JSON object, as far as every server looks at it."""
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        return False
    return isinstance(schema.get("properties", {}), dict)


def _format(wanted: ResponseFormat | None, provider: str) -> dict[str, Any]:
    if wanted is None or wanted.kind is ResponseFormatKind.TEXT:
        return {}
    if wanted.kind is ResponseFormatKind.JSON_OBJECT:
        return {"response_format": {"type": "json_object"}}
    return _schema_format(_schema(wanted.json_schema, provider))


def _schema_format(schema: dict[str, Any]) -> dict[str, Any]:
    named: dict[str, Any] = {"name": "answer", "schema": schema}
    if schema.get("strict") is True:
        named = {"name": "answer", "strict": True, "schema": _without_marks(schema)}
    return {"response_format": {"type": "json_schema", "json_schema": named}}


def _schema(text: bytes, provider: str) -> dict[str, Any]:
    try:
        schema = msgspec.json.decode(text) if text else None
    except (msgspec.DecodeError, UnicodeError):
        schema = None
    if not isinstance(schema, dict):
        raise InvalidJSONSchemaError(
            f"{provider}: the answer is to follow a JSON schema, and none that is one was given"
        )
    return schema


def _without_marks(node: Any) -> Any:
    """The schema without the `strict` that a correction leaves on its objects: on the wire it stands beside it."""
    if isinstance(node, list):
        return [_without_marks(inner) for inner in node]
    if not isinstance(node, dict):
        return node
    is_marked = node.get("type") == "object" and node.get("strict") is True
    return {name: _without_marks(inner) for name, inner in node.items() if not (is_marked and name == "strict")}
