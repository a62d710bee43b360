"""The words with which the document of a server describes paths that are no methods of the protocol."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

JSON: Final = "application/json"
SSE: Final = "text/event-stream"
TEXT: Final = {"type": "string"}
EVENTS: Final = {SSE: {"schema": {"type": "object", "properties": {"event": TEXT, "data": TEXT, "id": TEXT}}}}
"""A stream of server-sent events, each of this shape."""

MEANINGS: Final = {
    400: "the request, or a part of it, cannot be used",
    401: "not known who asks",
    403: "a scope is missing",
    404: "no such agent, run or question for the caller",
    405: "runs are records, and are not deleted",
    406: "the client takes none of the types of the answer",
    409: "it does not fit where the run is",
    413: "the body is too long",
    415: "the body is no JSON",
    429: "too many at once",
    500: "the run did not reach its goal, or the server failed",
    501: "a library is not installed at the server",
    503: "the server is stopping",
    504: "the run takes longer than a request waits; it goes on",
}
SESSION: Final = {
    "name": "X-Harbor-Session",
    "in": "header",
    "required": False,
    "description": "The session; that of the token by default.",
    "schema": TEXT,
}


def named(name: str, text: str) -> dict[str, Any]:
    """Describe a part of a path."""
    return {"name": name, "in": "path", "required": True, "description": text, "schema": TEXT}


def refusals(statuses: Iterable[int], schema: Any) -> dict[str, Any]:
    """Describe the answers with these statuses, which have one shape."""
    return {
        str(status): {"description": MEANINGS[status], "content": {JSON: {"schema": schema}}} for status in statuses
    }


def operation(
    tag: str,
    name: str,
    summary: str,
    answers: dict[str, Any],
    refused: dict[str, Any],
    *parameters: dict[str, Any],
    body: Any = None,
) -> dict[str, Any]:
    """Describe one operation: what it answers, by its content types, and how it refuses."""
    described: dict[str, Any] = {
        "operationId": f"{tag}.{name}",
        "tags": [tag],
        "summary": summary,
        "parameters": [SESSION, *parameters],
        "responses": {"200": {"description": "What was asked for.", "content": answers}, **refused},
    }
    if body is not None:
        described["requestBody"] = {"required": True, "content": {JSON: {"schema": body}}}
    return described


def rpc_error() -> dict[str, Any]:
    """Describe a refusal of JSON-RPC."""
    error = {
        "type": "object",
        "required": ["code", "message"],
        "properties": {"code": {"type": "integer"}, "message": TEXT},
    }
    return {
        "type": "object",
        "required": ["jsonrpc", "error"],
        "properties": {"jsonrpc": {"const": "2.0"}, "error": error},
    }


def rpc_answer() -> dict[str, Any]:
    """Describe an answer of JSON-RPC: a result or a refusal."""
    result = {"type": "object", "required": ["jsonrpc", "result"], "properties": {"jsonrpc": {"const": "2.0"}}}
    return {"anyOf": [result, rpc_error()]}
