"""The parts of a request that every driver sends in one form or another: content, arguments, schemas, effort. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from harborage.llm.client import ChatMessage, CompleteRequest, ReasoningEffort, ResponseFormat, ResponseFormatKind
from harborage.llm.content import Part, TextPart
from harborage.llm.errors import BadRequestError, InvalidContentError, InvalidJSONSchemaError

Json = dict[str, Any]

_NOT_IN_AN_ID = re.compile(r"[^a-zA-Z0-9_-]")
# Fields of `extra` by which a correction addresses a driver; they are no fields of any provider's API.
_FOR_DRIVERS = frozenset({"reasoning_effort", "schema_hint", "anthropic_tool_schema"})


def parts_of(message: ChatMessage) -> tuple[Part, ...]:
    """Return the content of a message as parts; a stored artifact becomes the text of its stub."""
    content = message.content
    if content.parts is None:
        return (TextPart(content.text),) if content.text else ()
    return tuple(_stub_or_part(part) for part in content.parts)


def _stub_or_part(part: Part) -> Part:
    """Return the part, or the stub's text where the bytes are stored as an artifact."""
    if not isinstance(part, TextPart) and part.artifact is not None and not part.data_url:
        return TextPart(part.artifact.text())
    return part


def alternate_turns(
    turns: Iterable[tuple[str, list[Json]]], *, contents: str, model_role: str, filler: Json
) -> list[Json]:
    """Return turns of alternating roles that begin and end with the user, as some APIs require.

    `turns` are roles and their contents, which go into the field `contents`; neighbours of one role become one turn.
    `filler` is the content of a turn that the user has to have.
    """
    joined: list[Json] = []
    for role, items in turns:
        if joined and joined[-1]["role"] == role:
            joined[-1][contents].extend(items)
        elif items:
            joined.append({"role": role, contents: items})
    if not joined or joined[0]["role"] == model_role:
        joined.insert(0, {"role": "user", contents: [filler]})
    if joined[-1]["role"] == model_role:
        joined.append({"role": "user", contents: [filler]})
    return joined


def unsupported_part(part: Part, provider: str, what: str = "") -> InvalidContentError:
    """Return the error for a medium that a provider's API does not take."""
    kind = what or type(part).__name__.removesuffix("Part").lower()
    return InvalidContentError(f"{provider} takes no {kind}; send it to another model, or as text")


def check_tools(request: CompleteRequest, provider: str) -> None:
    """Accept tools that can be declared.

    Raises:
        BadRequestError: a tool has no name, or the schema of its arguments is not that of an object.
    """
    for tool in request.tools:
        schema: Any = tool.schema
        is_object = isinstance(schema, dict) and schema.get("type", "object") == "object"
        if not tool.name:
            raise BadRequestError(f"{provider}: a tool without a name", provider=provider)
        if not is_object or not isinstance(schema.get("properties", {}), dict):
            what = f"the tool {tool.name!r} describes its arguments by something that is no object"
            raise BadRequestError(f"{provider}: {what}", provider=provider)


def decode_arguments(args: bytes) -> dict[str, Any]:
    """Return the arguments of a call as an object; text that is none is kept under `malformed`."""
    try:
        value = msgspec.json.decode(args or b"{}")
    except (msgspec.DecodeError, UnicodeError):
        return {"malformed": args.decode("utf-8", "replace")}
    return value if isinstance(value, dict) else {"malformed": args.decode("utf-8", "replace")}


def safe_id(call_id: str) -> str:
    """Return a call's id in the letters that every provider accepts; the same id always gives the same one."""
    return _NOT_IN_AN_ID.sub("_", call_id) or "call"


def answer_schema(wanted: ResponseFormat | None, provider: str) -> dict[str, Any] | None:
    """Return the JSON schema that the answer must have; None when the request has none.

    Raises:
        InvalidJSONSchemaError: the format is a schema that is missing or no JSON object.
    """
    if wanted is None or wanted.kind is not ResponseFormatKind.JSON_SCHEMA:
        return None
    schema: dict[str, Any] = strip_strict_marks(decode_schema(wanted.json_schema, provider))
    return schema


def decode_schema(text: bytes, provider: str) -> dict[str, Any]:
    """Return the JSON schema in a request.

    Raises:
        InvalidJSONSchemaError: the text is empty or no JSON object.
    """
    try:
        schema = msgspec.json.decode(text) if text else None
    except (msgspec.DecodeError, UnicodeError):
        schema = None
    if not isinstance(schema, dict):
        raise InvalidJSONSchemaError(
            f"{provider}: the answer is to follow a JSON schema, and none that is one was given"
        )
    return schema


def strip_strict_marks(node: Any) -> Any:
    """Return the schema without the `strict` that a correction adds to objects, which is no word of JSON schema."""
    if isinstance(node, list):
        return [strip_strict_marks(inner) for inner in node]
    if not isinstance(node, dict):
        return node
    is_marked = node.get("type") == "object" and isinstance(node.get("strict"), bool)
    return {name: strip_strict_marks(inner) for name, inner in node.items() if not (is_marked and name == "strict")}


def effort_of(request: CompleteRequest) -> ReasoningEffort:
    """Return how long the model may think, from the field or from the extra one that a correction moves it to."""
    if request.reasoning_effort:
        return request.reasoning_effort
    sent = request.extra.get("reasoning_effort")
    known = {effort.value for effort in ReasoningEffort}
    return ReasoningEffort(sent) if isinstance(sent, str) and sent in known else ReasoningEffort.UNSET


def extra_of(request: CompleteRequest) -> dict[str, Any]:
    """Return the extra fields that are passed to the provider unchanged."""
    return {name: value for name, value in request.extra.items() if name not in _FOR_DRIVERS}
