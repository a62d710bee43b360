"""A server over a runtime whose runs are decided by a script."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from harborage.runtime.host import Runtime
from harborage.server.application import Server
from tests.kit.wire import HeaderGate, Wire


@pytest.fixture
async def runtime() -> AsyncIterator[Runtime]:
    """An open runtime over a model that says nothing of its own."""
    async with Runtime(model="mock:echo", storage="memory:") as opened:
        yield opened


@pytest.fixture
def server(runtime: Runtime) -> Server:
    """The server over `runtime`; callers are known by headers."""
    return Server(runtime, gate=HeaderGate())


@pytest.fixture
def wire(server: Server) -> Wire:
    """A client of `server`."""
    return Wire(server)
