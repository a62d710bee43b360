"""One process of a chaos story: it starts the requested runs, and executes every run in the storage."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from harborage.clock import SYSTEM_CLOCK, Timer
from harborage.concurrency import Crew
from harborage.errors import HarborageError
from harborage.identity import Identity
from harborage.ids import new_id
from harborage.runtime.approval import AlwaysDeny
from harborage.runtime.effects.options import RuntimeOptions
from harborage.runtime.host import Runtime
from tests.programs.chaos.databases import Database, open_at
from tests.programs.chaos.kill_points import KillPoints, watch_commits, watch_statements, watched
from tests.programs.chaos.service import Client, Wanted
from tests.programs.simulation.world import Mind, tools_of

if TYPE_CHECKING:
    from harborage.store.errors import LeaseLostError
    from harborage.testing.simulation import ServiceCall

ME = Identity("tenant", "user", "session-0")
_LINGER = timedelta(seconds=0.1)
_LOOK_S = 0.05


class Errand(msgspec.Struct, frozen=True):
    """What a process is there for: to begin runs and carry them (`is_client` False), or to begin one and leave, after
    its result when it `stays`."""

    is_client: bool = False
    stays: bool = False


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is started with.

    `kill_at` is the moment at which it dies, 0 for never, `kill_kind` the kind of moments that count; `moved_s` is how
    far its clock is ahead of the machine's, `log` the file it logs to, `deaths` the one that tells where it died;
    `forgets_keys` makes its tools call under a new key each time, as tools do that were written wrong.
    """

    database: Database
    port: int
    name: str
    kill_at: int = 0
    kill_kind: str = ""
    moved_s: float = 0.0
    log: str = ""
    deaths: str = ""
    errand: Errand = Errand()
    forgets_keys: bool = False


class MovedClock:
    """The machine's clock, ahead of its time by so many seconds."""

    def __init__(self, moved_s: float) -> None:
        self._moved = timedelta(seconds=moved_s)

    def now(self) -> datetime:
        return SYSTEM_CLOCK.now() + self._moved

    def monotonic(self) -> float:
        return SYSTEM_CLOCK.monotonic()

    def call_later(self, delay_s: float, wake: Callable[[], None]) -> Timer:
        return SYSTEM_CLOCK.call_later(delay_s, wake)


class _Straight:
    """The way to the service when nothing lies between."""

    async def ask(self, what: str, act: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        return await act()


class _Forgetful(Client):
    """Hands on no key that anybody gave it."""

    async def act(self, act: ServiceCall) -> str:
        return await super().act(act._replace(key=new_id()))


def work(orders: Orders) -> None:
    """Work until a SIGTERM comes, or the moment to die."""
    logging.basicConfig(filename=orders.log or "/dev/null", format=f"{orders.name} %(name)s: %(message)s")
    points = KillPoints(orders.kill_at, kind=orders.kill_kind, log=orders.deaths)
    if orders.database.url.startswith("sqlite:"):
        watch_commits(points)
    else:
        watch_statements(points)
    asyncio.run(_work(orders, points))


async def _work(orders: Orders, points: KillPoints) -> None:
    client = (_Forgetful if orders.forgets_keys else Client)(orders.port, points)
    clock = MovedClock(orders.moved_s)
    crew = Crew(lambda name, error: logging.getLogger(__name__).error("%s: %s", name, error))

    def lost(error: LeaseLostError) -> None:
        crew.start(client.lost(error.run_id, orders.name), "lost")

    storage = watched(await open_at(orders.database, clock), points, lost)
    runtime = Runtime(
        planner=Mind(client, orders.name, _Straight()),
        tools=tools_of(client, orders.name, _Straight()),
        approvals={"gated": AlwaysDeny()},
        storage=storage,
        options=RuntimeOptions(linger=_LINGER),
        clock=clock,
    )
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    doing = partial(_visit, orders, stop) if orders.errand.is_client else partial(_begin, orders.name)
    try:
        async with runtime, asyncio.TaskGroup() as group:
            busy = group.create_task(doing(client, runtime))
            await stop.wait()
            busy.cancel()
    finally:
        await storage.aclose()
        await crew.aclose()


async def _begin(name: str, client: Client, runtime: Runtime) -> None:
    """Start the requested runs, one after the other."""
    while True:
        wanted = await client.want(name)
        if wanted is None:
            await asyncio.sleep(_LOOK_S)
            continue
        try:
            run = await runtime.start(wanted.goal, who=_who(wanted))
        except HarborageError:
            await asyncio.sleep(_LOOK_S)
            continue
        await client.begun(wanted, run.id)


async def _visit(orders: Orders, stop: asyncio.Event, client: Client, runtime: Runtime) -> None:
    """Begin one run, await its result or not, and leave."""
    wanted = await client.want(orders.name)
    if wanted is not None:
        run = await runtime.start(wanted.goal, who=_who(wanted))
        await client.begun(wanted, run.id)
        if orders.errand.stays:
            await run.finished()
    stop.set()


def _who(wanted: Wanted) -> Identity:
    return Identity(ME.tenant_id, ME.user_id, wanted.session)
