"""What the document of a server says of these paths; the shapes of their messages are the protocol's own."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final

from harborage.server.a2a.card import CARD_PATH, PATH
from harborage.server.a2a.routes import METHODS
from harborage.server.described import EVENTS, JSON, TEXT, named, operation, refusals, rpc_answer, rpc_error

_AGENT: Final = named("agent", "The name of the agent.")
_VERSION: Final = {
    "name": "A2A-Version",
    "in": "header",
    "required": False,
    "description": "The version of the protocol, which is that of the method.",
    "schema": TEXT,
}
_CARD: Final = {
    "type": "object",
    "required": ["name", "description", "version", "supportedInterfaces", "capabilities", "skills"],
    "properties": {"name": TEXT, "description": TEXT, "version": TEXT},
}
_BODY: Final = {
    "type": "object",
    "required": ["jsonrpc", "method"],
    "properties": {
        "jsonrpc": {"const": "2.0"},
        "id": {"type": ["string", "integer", "null"]},
        "method": {"enum": sorted(METHODS)},
        "params": {"type": "object"},
    },
}
_ANSWERS: Final = {JSON: {"schema": rpc_answer()}, **EVENTS}


def _card(name: str, summary: str, *parameters: dict[str, Any], statuses: tuple[int, ...] = (500, 503)) -> Any:
    answers = {JSON: {"schema": _CARD}}
    refused = refusals(statuses, {"type": "object", "required": ["error"]})
    return {"get": {**operation("a2a", name, summary, answers, refused, *parameters), "security": []}}


def _call(name: str, summary: str, *parameters: dict[str, Any], statuses: tuple[int, ...]) -> Any:
    refused = refusals(statuses, rpc_error())
    made = operation("a2a", name, summary, _ANSWERS, refused, _VERSION, *parameters, body=_BODY)
    return {"post": made}


PATHS: Final = MappingProxyType(
    {
        CARD_PATH: _card("server_card", "The card of the first agent."),
        f"{PATH}{CARD_PATH}": _card("first_card", "The card of the first agent."),
        f"{PATH}/{{agent}}{CARD_PATH}": _card("card", "The card of an agent.", _AGENT, statuses=(404, 500, 503)),
        PATH: _call("first_call", "A method of A2A, at the first agent.", statuses=(401, 403, 429, 503)),
        f"{PATH}/{{agent}}": _call("call", "A method of A2A, at an agent.", _AGENT, statuses=(401, 403, 404, 429, 503)),
    }
)
"""The items of the paths."""
