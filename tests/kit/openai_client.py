"""The `openai` SDK as a client of a server on a socket: `async with sdk(runtime) as ada`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from openai import AsyncOpenAI

from harborage.server.application import Server
from harborage.server.listening import Address, Listener, bound_address, listen
from harborage.server.services import ServerOptions
from tests.kit.wire import ADA, WITHIN_S, HeaderGate, caller_headers

if TYPE_CHECKING:
    from harborage.identity import Identity
    from harborage.runtime.host import Runtime


class Served(NamedTuple):
    """A server on a socket, and clients of it."""

    server: Server
    address: Address
    client: Callable[..., AsyncOpenAI]


@asynccontextmanager
async def serving_sdk(runtime: Runtime, *, gate: Any = None, **options: Any) -> AsyncIterator[Served]:
    """Serve a runtime; `client(who, **options)` makes a client of one principal."""
    opened = listen(Address("127.0.0.1", 0))
    server = Server(runtime, gate=HeaderGate() if gate is None else gate, options=ServerOptions(**options))
    listener, address = Listener(server, opened, grace=1), bound_address(opened)
    task = asyncio.create_task(listener.serve())
    clients: list[AsyncOpenAI] = []

    def client(who: Identity | None = ADA, *scopes: str, api_key: str = "unused") -> AsyncOpenAI:
        headers = {} if who is None else caller_headers(who, *scopes)
        made = AsyncOpenAI(
            base_url=f"http://{address}/v1", api_key=api_key, default_headers=headers, timeout=WITHIN_S, max_retries=2
        )
        clients.append(made)
        return made

    try:
        yield Served(server, address, client)
    finally:
        for one in clients:
            await one.close()
        server.drain()
        listener.stop()
        async with asyncio.timeout(WITHIN_S):
            await task


@asynccontextmanager
async def sdk(runtime: Runtime, **options: Any) -> AsyncIterator[AsyncOpenAI]:
    """Serve a runtime; the client is Ada's."""
    async with serving_sdk(runtime, **options) as served:
        yield served.client()
