"""What the tests of MCP servers share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from harborage.artifacts.memory import MemoryArtifactStore
from harborage.identity import Identity
from harborage.tools import CallContext, Invoker
from harborage.tools.mcp.options import MCP
from harborage.tools.mcp.source import OpenMCP
from harborage.tools.sources import SourceServices

WHO = Identity("acme", "ada", "s-1").with_run("run-1")


class Opened:
    """A server that is open, and calls of its tools as a run makes them."""

    def __init__(self, source: OpenMCP) -> None:
        self.source = source
        self.artifacts = MemoryArtifactStore()

    async def tools(self) -> dict[str, Any]:
        """What the server offers, by the names of the catalog."""
        return {one.tool.name: one for one in await self.source.list_tools(WHO)}

    async def call(self, name: str, args: bytes = b"{}", *, key: str = "run-1/1", **context: Any) -> Any:
        """The value of a call."""
        found = (await self.tools())[name]
        made = CallContext(WHO, "call-1", key, self.artifacts, **context)
        return (await Invoker().invoke(found, args, made)).value


Open = Callable[..., AbstractAsyncContextManager[Opened]]


@pytest.fixture
def opened() -> Open:
    """Opens a server for a block: `async with opened("name", command=[…]) as server`."""

    @asynccontextmanager
    async def open_one(name: str, services: SourceServices | None = None, **options: Any) -> AsyncIterator[Opened]:
        source = MCP(name, **options).open(SourceServices() if services is None else services)
        assert isinstance(source, OpenMCP)
        try:
            yield Opened(source)
        finally:
            await source.aclose()

    return open_one
