"""The official MCP client against a server on a socket: `async with mcp_client(runtime) as client`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

import httpx2

from harborage.server.application import Server
from harborage.server.listening import Address, Listener, bound_address, listen
from tests.kit.wire import ADA, WITHIN_S, HeaderGate, caller_headers

if TYPE_CHECKING:
    from harborage.identity import Identity
    from harborage.runtime.host import Runtime


@asynccontextmanager
async def on_socket(runtime: Runtime, gate: Any = None) -> AsyncIterator[str]:
    """Serve a runtime; gives the address of its MCP server."""
    opened = listen(Address("127.0.0.1", 0))
    server = Server(runtime, gate=HeaderGate() if gate is None else gate)
    listener, address = Listener(server, opened, grace=1), bound_address(opened)
    task = asyncio.create_task(listener.serve())
    try:
        yield f"http://{address}/mcp"
    finally:
        server.drain()
        listener.stop()
        async with asyncio.timeout(WITHIN_S):
            await task


@asynccontextmanager
async def mcp_client(url: str, who: Identity | None = ADA, *, token: str = "", **options: Any) -> AsyncIterator[Any]:
    """Connect the official client as a principal, or with a token."""
    client: Any = import_module("mcp").Client
    transport: Any = import_module("mcp.client.streamable_http").streamable_http_client
    headers = {} if who is None else caller_headers(who)
    headers |= {"authorization": f"Bearer {token}"} if token else {}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=WITHIN_S) as http,
        client(transport(url, http_client=http), cache=None, read_timeout_seconds=WITHIN_S, **options) as connected,
    ):
        yield connected
