"""Which endpoint answers which method. A test fails when a method of the protocol has none."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from harborage.server.families import artifacts, control, events, pauses, runs, tokens, tools
from harborage.server.services import Endpoint, Endpoints

ENDPOINTS: Final[Endpoints] = MappingProxyType[str, Endpoint](
    {
        **artifacts.ENDPOINTS,
        **events.ENDPOINTS,
        **pauses.ENDPOINTS,
        **runs.ENDPOINTS,
        **tokens.ENDPOINTS,
        **tools.ENDPOINTS,
        **control.ENDPOINTS,
    }
)
