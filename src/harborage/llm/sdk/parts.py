"""Pieces of requests that every provider's API wants in one shape or another: content, arguments, schemas.

Pure: text in, values out.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from harborage.llm.client import ChatMessage, CompleteRequest, ReasoningEffort, ResponseFormat, ResponseFormatKind
from harborage.llm.content import Part, TextPart
from harborage.llm.errors import BadRequestError, InvalidContentError, InvalidJSONSchemaError

__all__ = [
    "answer_schema",
    "arguments",
    "check_tools",
    "effort_of",
    "extra_of",
    "parts_of",
    "refuse_part",
    "safe_id",
    "without_marks",
]

_NOT_IN_AN_ID = re.compile(r"[^a-zA-Z0-9_-]")
# Fields of `extra` that a layer above uses to speak to a driver; they are no fields of any provider's API.
_OURS = frozenset({"reasoning_effort", "schema_hint", "anthropic_tool_schema"})


def parts_of(message: ChatMessage) -> tuple[Part, ...]:
    """The content of a message as parts; none when it has none. A stored artifact is the text of its stub."""
    content = message.content
    if content.parts is None:
        return (TextPart(content.text),) if content.text else ()
    return tuple(_stub_or_part(part) for part in content.parts)


def _stub_or_part(part: Part) -> Part:
    """The part, or the text that stands for heavy bytes which are kept elsewhere."""
    if not isinstance(part, TextPart) and part.artifact is not None and not part.data_url:
        return TextPart(part.artifact.text())
    return part


def refuse_part(part: Part, provider: str, what: str = "") -> InvalidContentError:
    """The error for a medium that a provider's API has no place for."""
    kind = what or type(part).__name__.removesuffix("Part").lower()
    return InvalidContentError(f"{provider} takes no {kind}; send it to another model, or as text")


def check_tools(request: CompleteRequest, provider: str) -> None:
    """Accept tools that can be declared.

    Raises:
        BadRequestError: a tool has no name, or describes its arguments by something that is no object.
    """
    for tool in request.tools:
        schema: Any = tool.schema
        is_object = isinstance(schema, dict) and schema.get("type", "object") == "object"
        if not tool.name:
            raise BadRequestError(f"{provider}: a tool without a name", provider=provider)
        if not is_object or not isinstance(schema.get("properties", {}), dict):
            what = f"the tool {tool.name!r} describes its arguments by something that is no object"
            raise BadRequestError(f"{provider}: {what}", provider=provider)


def arguments(args: bytes) -> dict[str, Any]:
    """The arguments of a call as an object; what a model wrote that is none is kept as text under `malformed`."""
    try:
        value = msgspec.json.decode(args or b"{}")
    except (msgspec.DecodeError, UnicodeError):
        return {"malformed": args.decode("utf-8", "replace")}
    return value if isinstance(value, dict) else {"malformed": args.decode("utf-8", "replace")}


def safe_id(call_id: str) -> str:
    """A call's id in the letters that every provider accepts; the same id always gives the same one."""
    return _NOT_IN_AN_ID.sub("_", call_id) or "call"


def answer_schema(wanted: ResponseFormat | None, provider: str) -> dict[str, Any] | None:
    """The JSON schema that the answer must have; None when none was asked for.

    Raises:
        InvalidJSONSchemaError: a schema was asked for, and there is none, or it is no JSON object.
    """
    if wanted is None or wanted.kind is not ResponseFormatKind.JSON_SCHEMA:
        return None
    try:
        schema = msgspec.json.decode(wanted.json_schema) if wanted.json_schema else None
    except (msgspec.DecodeError, UnicodeError):
        schema = None
    if not isinstance(schema, dict):
        what = "the answer is to follow a JSON schema, and none that is one was given"
        raise InvalidJSONSchemaError(f"{provider}: {what}")
    closed: dict[str, Any] = without_marks(schema)
    return closed


def without_marks(node: Any) -> Any:
    """The schema without the `strict` that a correction leaves on its objects, which is no word of JSON schema."""
    if isinstance(node, list):
        return [without_marks(inner) for inner in node]
    if not isinstance(node, dict):
        return node
    is_marked = node.get("type") == "object" and isinstance(node.get("strict"), bool)
    return {name: without_marks(inner) for name, inner in node.items() if not (is_marked and name == "strict")}


def effort_of(request: CompleteRequest) -> ReasoningEffort:
    """How long the model may think, whichever way a layer above has sent it."""
    if request.reasoning_effort:
        return request.reasoning_effort
    sent = request.extra.get("reasoning_effort")
    known = {effort.value for effort in ReasoningEffort}
    return ReasoningEffort(sent) if isinstance(sent, str) and sent in known else ReasoningEffort.UNSET


def extra_of(request: CompleteRequest) -> dict[str, Any]:
    """What is passed through to the provider as it is."""
    return {name: value for name, value in request.extra.items() if name not in _OURS}
