"""Which endpoint answers which method. A test fails when a method of the protocol has none."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from harborage.server.families import (
    agents,
    artifacts,
    control,
    events,
    flows,
    mcp,
    memory,
    overrides,
    pauses,
    posture,
    runs,
    search,
    sessions,
    tasks,
    tokens,
    tools,
)
from harborage.server.services import Endpoint, Endpoints

_OTHERS: Final[Endpoints] = {
    **agents.ENDPOINTS,
    **artifacts.ENDPOINTS,
    **control.ENDPOINTS,
    **events.ENDPOINTS,
    **flows.ENDPOINTS,
    **mcp.ENDPOINTS,
    **memory.ENDPOINTS,
    **overrides.ENDPOINTS,
    **pauses.ENDPOINTS,
    **runs.ENDPOINTS,
    **search.ENDPOINTS,
    **sessions.ENDPOINTS,
    **tasks.ENDPOINTS,
    **tokens.ENDPOINTS,
    **tools.ENDPOINTS,
}

ENDPOINTS: Final[Endpoints] = MappingProxyType[str, Endpoint]({**_OTHERS, **posture.endpoints_beside(_OTHERS)})
