"""A server over an open runtime, for tests of its families: `async with serving(agents) as served`.

`STORAGES` are the places where a runtime keeps what the tests ask for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from harborage import Agent, Runtime
from harborage.clock import SYSTEM_CLOCK
from harborage.events import (
    Event,
    EventType,
    RuntimeWarningPayload,
)
from harborage.identity import Quadruple
from harborage.llm import CompleteResponse, Cost, Usage
from harborage.server.application import Server
from harborage.server.services import ServerOptions
from harborage.store import EventQuery
from harborage.testing.llm import ScriptedLLM, says
from tests.kit.wire import HeaderGate, Wire

if TYPE_CHECKING:
    from harborage.identity import Identity
    from harborage.server.flows import Flows
    from harborage.server.mcp_servers import McpServers
    from harborage.testing.clock import FakeClock

STORAGES: Final = ("memory", "sqlite")


class Served(NamedTuple):
    """A server, a client of it, and the runtime below."""

    rt: Runtime
    server: Server
    wire: Wire

    async def events(self, type: str, who: Identity | None = None) -> list[dict[str, Any]]:
        """Return the payloads of the stored events of a type, oldest first, also of those that were not awaited."""
        last = Event(EventType.RUNTIME_WARNING, Quadruple("none", "none", "none", ""), RuntimeWarningPayload(""))
        await self.rt.bus.publish(last)  # it is stored behind all that was published before
        query = EventQuery(types=(type,), limit=1_000)
        if who is not None:
            query = replace(query, tenant=who.tenant_id, user=who.user_id, session=who.session_id)
        rows = await self.rt.parts.store.events(query)
        return [msgspec.json.decode(row.data)["payload"] for row in rows]


def talker(name: str = "talker") -> Agent[Any, Any]:
    """An agent that says one thing."""
    return Agent(name, model=ScriptedLLM([says("hello")]))


def priced(answer: CompleteResponse, usd: float, *, prompt: int = 10, completion: int = 5) -> CompleteResponse:
    """The same answer of a model, at a price."""
    usage = Usage(prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion)
    return replace(answer, usage=usage, cost=Cost(total_cost=usd))


@asynccontextmanager
async def serving(
    agents: Iterable[Agent[Any, Any]] | None = None,
    *,
    storage: str = "memory",
    folder: Path | None = None,
    options: ServerOptions = ServerOptions(),  # noqa: B008 - a frozen value
    clock: FakeClock | None = None,
    mcp: McpServers | None = None,
    flows: Flows | None = None,
    **runtime: Any,
) -> AsyncIterator[Served]:
    """Serve a runtime with these agents; `folder` is where a storage on disk is."""
    url = f"sqlite:{folder / 'runs.db'}" if storage == "sqlite" and folder is not None else "memory:"
    async with Runtime([talker()] if agents is None else agents, storage=url, **runtime) as rt:
        timers = SYSTEM_CLOCK if clock is None else clock
        server = Server(rt, gate=HeaderGate(), options=options, clock=timers, mcp=mcp, flows=flows)
        yield Served(rt, server, Wire(server))
