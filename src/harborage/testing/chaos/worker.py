"""One process of a chaos story: it begins runs that somebody wants, and carries whatever the storage holds."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import msgspec

from harborage.errors import HarborageError
from harborage.identity import Identity
from harborage.runtime.approval import AlwaysDeny
from harborage.runtime.host import Runtime
from harborage.runtime.options import RuntimeOptions
from harborage.state.storage import open_storage
from harborage.testing.chaos.points import Points, watch_commits, watched
from harborage.testing.chaos.service import Client
from harborage.testing.simulation.world import Mind, tools_of

__all__ = ["ME", "Orders", "work"]

ME = Identity("tenant", "user", "session")
_LINGER = timedelta(seconds=0.1)
_LOOK_S = 0.05


class Orders(msgspec.Struct, frozen=True):
    """What a worker is started with; `kill_at` is the moment at which it dies, 0 for never."""

    url: str
    port: int
    name: str
    kill_at: int


class _Straight:
    """The way to the service when nothing lies between."""

    async def ask(self, what: str, act: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        return await act()


def work(orders: Orders) -> None:
    """Work until a SIGTERM comes, or the moment to die."""
    points = Points(orders.kill_at)
    watch_commits(points)
    asyncio.run(_work(orders, points))


async def _work(orders: Orders, points: Points) -> None:
    client = Client(orders.port, points)
    storage = watched(await open_storage(orders.url), points)
    runtime = Runtime(
        planner=Mind(client, orders.name, _Straight()),
        tools=tools_of(client, orders.name, _Straight()),
        approvals={"gated": AlwaysDeny()},
        storage=storage,
        options=RuntimeOptions(linger=_LINGER),
    )
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    try:
        async with runtime, asyncio.TaskGroup() as group:
            beginning = group.create_task(_begin(client, runtime))
            await stop.wait()
            beginning.cancel()
    finally:
        await storage.aclose()


async def _begin(client: Client, runtime: Runtime) -> None:
    """Begin the runs that somebody wants, one after the other."""
    while True:
        wanted = await client.want()
        if wanted is None:
            await asyncio.sleep(_LOOK_S)
            continue
        try:
            run = await runtime.start(wanted.goal, who=ME)
        except HarborageError:
            await asyncio.sleep(_LOOK_S)
            continue
        await client.begun(wanted, run.id)
