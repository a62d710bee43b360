"""What the document of a server says of this path; the shapes of its messages are the protocol's own."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from harborage.server.described import EVENTS, JSON, TEXT, operation, refusals, rpc_answer, rpc_error

_STATUSES: Final = (400, 401, 403, 404, 405, 406, 413, 415, 500, 501)
_BODY: Final = {
    "type": "object",
    "required": ["jsonrpc", "method"],
    "properties": {
        "jsonrpc": {"const": "2.0"},
        "id": {"type": ["string", "integer"]},
        "method": TEXT,
        "params": {"type": "object"},
    },
}

PATHS: Final = MappingProxyType(
    {
        "/mcp": {
            "post": operation(
                "mcp",
                "call",
                "A message of the Model Context Protocol over streamable HTTP.",
                {JSON: {"schema": rpc_answer()}, **EVENTS},
                {
                    **refusals(_STATUSES, rpc_error()),
                    "202": {"description": "A notification, which has no answer."},
                },
                body=_BODY,
            )
        }
    }
)
"""The item of the path."""
