"""What the document of a server says of these paths; the shapes of their messages are OpenAI's own."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType
from typing import Any, Final

_TAG: Final = "openai"
_JSON: Final = "application/json"
_MEANINGS: Final = {
    400: "the input, or a parameter of it, cannot be used",
    401: "not known who asks",
    403: "a scope is missing",
    404: "no such agent, run or question for the caller",
    405: "runs are records, and are not deleted",
    409: "it does not fit where the run is",
    429: "too many at once",
    500: "the run did not reach its goal, or the server failed",
    503: "the server is stopping",
    504: "the run takes longer than a request waits; it goes on",
}
_ERROR: Final = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}
_READS: Final = (401, 404, 500, 503)
_RUNS: Final = (400, 401, 404, 409, 429, 500, 503, 504)
_SESSION: Final = {
    "name": "X-Harbor-Session",
    "in": "header",
    "required": False,
    "description": "The session; that of the token by default.",
    "schema": {"type": "string"},
}
_KEY: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The same key starts one run.",
    "schema": {"type": "string"},
}


def _named(name: str, text: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "description": text, "schema": {"type": "string"}}


def _operation(
    name: str, summary: str, statuses: Iterable[int], *parameters: dict[str, Any], body: tuple[str, ...] = ()
) -> dict[str, Any]:
    """One operation; `body` are the parameters that its body must have, and a stream is possible where there is one."""
    answer = {_JSON: {"schema": {"type": "object"}}}
    described: dict[str, Any] = {
        "operationId": f"{_TAG}.{name}",
        "tags": [_TAG],
        "summary": summary,
        "parameters": [_SESSION, *parameters],
        "responses": {
            "200": {"description": "What was asked for.", "content": answer},
            **{
                str(status): {"description": _MEANINGS[status], "content": {_JSON: {"schema": _ERROR}}}
                for status in statuses
            },
        },
    }
    if body:
        schema = {"type": "object", "required": list(body), "properties": {"model": {"type": "string"}}}
        described["requestBody"] = {"required": True, "content": {_JSON: {"schema": schema}}}
        answer["text/event-stream"] = {"schema": {"type": "string"}}
    return described


_ID: Final = _named("id", "The id of the run.")

PATHS: Final = MappingProxyType(
    {
        "/v1/models": {"get": _operation("models.list", "The agents, as models.", (401, 500))},
        "/v1/models/{model}": {
            "get": _operation("models.retrieve", "One agent, as a model.", _READS, _named("model", "Its name."))
        },
        "/v1/chat/completions": {
            "post": _operation("chat", "Chat with an agent.", _RUNS, _KEY, body=("model", "messages"))
        },
        "/v1/responses": {
            "post": _operation(
                "responses.create", "Start a run, or answer its question.", _RUNS, _KEY, body=("model", "input")
            )
        },
        "/v1/responses/{id}": {
            "get": _operation("responses.retrieve", "A run as it stands.", (400, *_READS), _ID),
            "delete": _operation("responses.delete", "Refused: runs are records.", (401, 405, 500), _ID),
        },
        "/v1/responses/{id}/cancel": {
            "post": _operation("responses.cancel", "Cancel a run at once.", (400, *_READS, 409), _ID)
        },
    }
)
"""The items of the paths."""
