"""The MCP transport keeps every promise of tool transports, over HTTP against a server of the official library."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from typing import Any

import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError as ProtocolError
from msgspec.structs import replace

from harborage.testing.conformance.tools import PEER_TOOLS, SCENARIOS, WHO, Ability, Peer, PeerError, Scenario, check
from harborage.tools import SideEffect, ToolDescriptor
from harborage.tools.mcp.options import MCP
from harborage.tools.mcp.values import KEY_META
from harborage.tools.sources import SourceServices
from tests.kit.mcp_peers import at_an_address, listed, server_of
from tests.kit.sockets import CuttingProxy

pytestmark = pytest.mark.anyio


class Bench:
    """The transport beside a server whose connections can be cut."""

    without: frozenset[Ability] = frozenset()

    def __init__(self) -> None:
        self.peer = Peer()
        self.tools: list[ToolDescriptor[Any]] = []
        self._stack = AsyncExitStack()
        self._proxy: CuttingProxy | None = None

    async def open(self) -> None:
        tools = [listed(one.name, one.description, one.args_schema) for one in PEER_TOOLS]
        url = await self._stack.enter_async_context(at_an_address(server_of(tools, self._called)))
        self._proxy = CuttingProxy(url.removesuffix("/mcp"))
        outside = await self._stack.enter_async_context(self._proxy.open())
        reads = {one.name: "read" for one in PEER_TOOLS if one.side_effects is SideEffect.READ}
        self._opened = MCP("peer", url=f"{outside}/mcp", effects=reads).open(SourceServices())
        for one in await self._opened.list_tools(WHO):
            self.tools.append(replace(one, tool=replace(one.tool, name=one.tool.name.removeprefix("peer_"))))

    async def _called(self, tool: str, args: Any, meta: Any) -> Any:
        try:
            return await self.peer.call(tool, args, meta.get(KEY_META, ""))
        except PeerError as error:
            if error.error_class == "permanent":
                text = types.TextContent(text=str(error))
                return types.CallToolResult(content=[text], is_error=True)
            raise ProtocolError(types.INTERNAL_ERROR, str(error)) from error

    async def disconnect(self) -> None:
        assert self._proxy is not None
        self._proxy.is_down = True
        self._proxy.cut()

    async def aclose(self) -> None:
        await self._opened.aclose()
        with suppress(ConnectionError):
            await self._stack.aclose()


async def open_bench() -> Bench:
    bench = Bench()
    await bench.open()
    return bench


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.__name__)
async def test_the_transport_keeps_its_promises(scenario: Scenario) -> None:
    """Each scenario of the suite holds for MCP over HTTP."""
    async with asyncio.timeout(60):
        await check(scenario, open_bench)
