"""Two agents on a real server, and clients of it: what tests of the client and of the command line share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harborage import Agent, Runtime, tool
from harborage.testing import call, script
from tests.kit.served import client_of, served
from tests.kit.sockets import CuttingProxy
from tests.kit.wire import ADA

if TYPE_CHECKING:
    from harborage.client import RemoteRuntime
    from harborage.identity import Identity


@dataclass
class Receipt:
    """The output of the agent that has one."""

    order: str
    euros: int = 0


@tool(effects="external", approval="always")
async def refund(order: str, euros: int) -> str:
    """Refund an order."""
    return f"refunded {euros} for {order}"


@tool(effects="read")
async def linger() -> str:
    """Take until it is cancelled."""
    await asyncio.Event().wait()
    return "never"


MODEL = script(
    "Hello there.",
    by_text={
        "refund": [call("refund", order="7", euros=12), "It is done."],
        "linger": [call("linger"), "I was told to go on."],
        "typed": [Receipt("7", 12)],
        "nothing": ["Nothing."],
        "a lot": ["x" * 200_000],
        "much": [Receipt("y" * 200_000, 1)],
    },
)


@dataclass
class Host:
    """A server of two agents: `support` writes text, `clerk` gives a receipt."""

    runtime: Runtime
    url: str
    remote: RemoteRuntime
    stack: AsyncExitStack

    async def client(self, who: Identity = ADA, *scopes: str, url: str = "") -> RemoteRuntime:
        """Another client of the server."""
        return await self.stack.enter_async_context(client_of(url or self.url, who, *scopes))

    async def proxy(self, cut_after: Callable[[], int] | None = None) -> tuple[CuttingProxy, str]:
        """A proxy before the server that cuts connections, and its url."""
        proxy = CuttingProxy(self.url)
        proxy.cut_after = cut_after
        return proxy, await self.stack.enter_async_context(proxy.open())


@asynccontextmanager
async def open_host(folder: Path) -> AsyncIterator[Host]:
    """The server, over a database in this folder; its client acts for Ada."""
    support = Agent("support", model=MODEL, tools=[refund, linger])
    clerk = Agent("clerk", model=MODEL, output=Receipt)
    async with AsyncExitStack() as stack:
        agents: list[Any] = [support, clerk]
        runtime = await stack.enter_async_context(Runtime(agents, storage=f"sqlite:{folder / 'runs.db'}"))
        url = await stack.enter_async_context(served(runtime))
        remote = await stack.enter_async_context(client_of(url))
        yield Host(runtime, url, remote, stack)
