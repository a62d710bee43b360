"""What the document of a server says of these paths; the shapes of their messages are OpenAI's own."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType
from typing import Any, Final

from harborage.server.described import EVENTS, JSON, TEXT, named, operation, refusals

_TAG: Final = "openai"
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
_KEY: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The same key starts one run.",
    "schema": TEXT,
}


def _operation(
    name: str, summary: str, statuses: Iterable[int], *parameters: dict[str, Any], body: tuple[str, ...] = ()
) -> dict[str, Any]:
    """One operation; `body` are the parameters that its body must have, and a stream is possible where there is one."""
    answers: dict[str, Any] = {JSON: {"schema": {"type": "object"}}}
    refused = refusals(statuses, _ERROR)
    if not body:
        return operation(_TAG, name, summary, answers, refused, *parameters)
    schema = {"type": "object", "required": list(body), "properties": {"model": TEXT}}
    return operation(_TAG, name, summary, {**answers, **EVENTS}, refused, *parameters, body=schema)


_ID: Final = named("id", "The id of the run.")

PATHS: Final = MappingProxyType(
    {
        "/v1/models": {"get": _operation("models.list", "The agents, as models.", (401, 500))},
        "/v1/models/{model}": {
            "get": _operation("models.retrieve", "One agent, as a model.", _READS, named("model", "Its name."))
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
