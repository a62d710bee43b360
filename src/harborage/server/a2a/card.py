"""The card of an agent: what it does, where and how it is called. The public one names no tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from harborage.server.a2a.dialects import V03, V1
from harborage.server.a2a.values import JSON_MODE, TEXT_MODE
from harborage.server.served import agent_id

if TYPE_CHECKING:
    from harborage.runtime.effects.agent_parts import AgentParts

PATH: Final = "/v1/a2a"
CARD_PATH: Final = "/.well-known/agent-card.json"

_BINDING: Final = "JSONRPC"
_SCHEME: Final = "bearer"
_INPUT: Final = [TEXT_MODE, JSON_MODE, "image/*", "audio/*"]


def card_of(agent: AgentParts, base_url: str, *, is_extended: bool = False) -> dict[str, Any]:
    """Return the card of an agent, as both versions of the protocol read it.

    The extended one, for callers who are known, names the agent's tools as tags of its skill.
    """
    from harborage import __version__

    name = agent_id(agent.name)
    url = f"{base_url.rstrip('/')}{PATH}/{quote(name, safe='')}"
    description = str(getattr(agent.value, "description", "") or "") or f"The agent {name}."
    tags = [one.name for one in agent.catalog.list()] if is_extended else []
    http = {"scheme": "Bearer", "bearerFormat": "JWT"}
    return {
        "name": name,
        "description": description,
        "version": __version__,
        "supportedInterfaces": [
            {"url": url, "protocolBinding": _BINDING, "protocolVersion": one.version} for one in (V1, V03)
        ],
        "capabilities": {"streaming": True, "pushNotifications": False, "extendedAgentCard": True},
        "securitySchemes": {_SCHEME: {"httpAuthSecurityScheme": http, "type": "http", **http}},
        "securityRequirements": [{"schemes": {_SCHEME: {"list": []}}}],
        "defaultInputModes": _INPUT,
        "defaultOutputModes": [TEXT_MODE, JSON_MODE],
        "skills": [{"id": name, "name": name, "description": description, "tags": tags or ["agent"]}],
        # What 0.3 reads in place of the interfaces and the requirements above.
        "url": url,
        "preferredTransport": _BINDING,
        "protocolVersion": f"{V03.version}.0",
        "security": [{_SCHEME: []}],
        "supportsAuthenticatedExtendedCard": True,
    }
