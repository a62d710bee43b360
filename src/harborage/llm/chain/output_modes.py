"""The ladder of structured output: which mode follows which, and what a request looks like in each. Pure.

Every shape is made from the original request; nothing of one attempt is carried into the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from harborage.llm.client import (
    ChatMessage,
    CompleteRequest,
    CompleteResponse,
    ResponseFormat,
    ResponseFormatKind,
    Role,
)
from harborage.llm.content import Content
from harborage.llm.profile import OutputMode

__all__ = ["KINDS", "LADDERS", "shaped", "unwrapped"]

LADDERS: Final[Mapping[str, tuple[OutputMode, ...]]] = {
    OutputMode.NATIVE: (OutputMode.NATIVE, OutputMode.PROMPTED, OutputMode.TEXT),
    OutputMode.TOOLS: (OutputMode.TOOLS, OutputMode.PROMPTED, OutputMode.TEXT),
    OutputMode.PROMPTED: (OutputMode.PROMPTED, OutputMode.TEXT),
    OutputMode.TEXT: (OutputMode.TEXT,),
}
"""The modes that are tried, by the mode a model's profile names."""

KINDS: Final[Mapping[OutputMode, ResponseFormatKind]] = {
    OutputMode.NATIVE: ResponseFormatKind.JSON_SCHEMA,
    OutputMode.TOOLS: ResponseFormatKind.JSON_OBJECT,
    OutputMode.PROMPTED: ResponseFormatKind.JSON_OBJECT,
    OutputMode.TEXT: ResponseFormatKind.TEXT,
}
"""The response format that each mode amounts to."""

_TOOL: Final = "respond_with"
_INSTRUCTIONS: Final[Mapping[OutputMode, str]] = {
    OutputMode.TOOLS: f'Answer only with {{"name":"{_TOOL}","arguments":…}}, whose arguments match this JSON schema:',
    OutputMode.PROMPTED: "Answer only with JSON that matches this JSON schema:",
    OutputMode.TEXT: "Structure the answer as JSON of this schema where that comes naturally; plain text will do:",
}


def shaped(request: CompleteRequest, mode: OutputMode) -> CompleteRequest:
    """`request` as it is put to a model in `mode`; the schema, if there is one, is told in a system message."""
    if mode is OutputMode.NATIVE or request.response_format is None:
        return request
    schema = request.response_format.json_schema
    messages = request.messages
    if schema:
        told = f"{_INSTRUCTIONS[mode]}\n{_compact(schema)}"
        messages = (ChatMessage(Role.SYSTEM, Content(text=told)), *messages)
    wanted = None if mode is OutputMode.TEXT else ResponseFormat(ResponseFormatKind.JSON_OBJECT)
    return msgspec.structs.replace(request, messages=messages, response_format=wanted)


class _Wrapped(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    arguments: msgspec.Raw


def unwrapped(response: CompleteResponse, mode: OutputMode) -> CompleteResponse:
    """The answer without the wrapper that `tools` mode asks for; what came without one is left as it is."""
    if mode is not OutputMode.TOOLS:
        return response
    try:
        found = msgspec.json.decode(response.content, type=_Wrapped)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return response
    if found.name != _TOOL:
        return response
    return msgspec.structs.replace(response, content=bytes(found.arguments).decode())


def _compact(schema: bytes) -> str:
    """The schema without needless white space; one that is no JSON is quoted as it is."""
    try:
        return msgspec.json.format(schema, indent=-1).decode()
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return schema.decode("utf-8", "replace")
