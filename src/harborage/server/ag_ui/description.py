"""What the document of a server says of these paths; the shapes of their messages are the protocol's own."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final

from harborage.server.described import EVENTS, TEXT, named, operation, refusals

_ERROR: Final = {
    "type": "object",
    "required": ["type", "message", "code"],
    "properties": {"type": {"const": "RUN_ERROR"}, "message": TEXT, "code": TEXT},
}
_BODY: Final = {
    "type": "object",
    "required": ["threadId", "runId", "messages"],
    "properties": {
        "threadId": TEXT,
        "runId": TEXT,
        "messages": {"type": "array", "items": {"type": "object"}},
        "tools": {"type": "array"},
        "context": {"type": "array"},
        "resume": {"type": "array"},
    },
}
_STATUSES: Final = (400, 401, 403, 404, 409, 500, 503, 504)


def _run(name: str, summary: str, *parameters: dict[str, Any]) -> dict[str, Any]:
    return {"post": operation("ag-ui", name, summary, EVENTS, refusals(_STATUSES, _ERROR), *parameters, body=_BODY)}


PATHS: Final = MappingProxyType(
    {
        "/v1/ag-ui": _run("run_first", "Run the first agent, or answer its interrupts."),
        "/v1/ag-ui/{agent}": _run(
            "run", "Run an agent, or answer its interrupts.", named("agent", "The name of the agent.")
        ),
    }
)
"""The items of the paths."""
