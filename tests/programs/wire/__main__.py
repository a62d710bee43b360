"""`python -m tests.programs.wire [PART …]`: what the server promises, at full size; one line for each part.

The parts are `canary`, `filters`, `failover` and `disconnects`; without any, all of them.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from harborage.clock import SYSTEM_CLOCK
from harborage.events import BusConfig, DurableEventBus
from harborage.state.storage import open_storage
from harborage.store.memory import MemoryStore
from harborage.store.sqlite import SQLiteStore
from tests.kit.isolation.filters import NOT_SEEN, find_filters, is_missed
from tests.kit.isolation.served_canary import watch_server
from tests.kit.stream_breaks import FAMILY, disconnects
from tests.kit.streaming import streaming
from tests.programs.chaos.databases import Databases, open_at
from tests.programs.wire.failover import fail_over

if TYPE_CHECKING:
    from harborage.store import Store

PRINCIPALS: Final = 50
REQUESTS: Final = 10_000
CLIENTS: Final = 50
BREAKS: Final = 1_000
_OF_A_FILTER: Final = 400
_NEVER_ANSWERED: Final = {"topology.snapshot"}
_SMALL: Final = BusConfig(subscriber_buffer_size=4)


async def canary(folder: Path) -> list[str]:
    """Fifty principals ask ten thousand things, over SQLite; whoever sees another's mark is named."""
    async with await open_storage(f"sqlite:{folder / 'canary.db'}") as storage:
        found = await watch_server(folder / "files", storage, principals=PRINCIPALS, requests=REQUESTS, seed=1)
    _say(f"canary: {found.asked} requests of {PRINCIPALS} principals, {found.shown.total()} answers with a mark")
    silent = set(found.refused) - set(found.answered) - _NEVER_ANSWERED
    return [*found.leaks, *(f"{name} was never answered" for name in sorted(silent))]


async def filters(folder: Path) -> list[str]:
    """Every filter by identity is taken out, one at a time, and each time somebody sees it."""
    every = [one for one in find_filters() if one.is_seen]
    unseen = [
        f"nobody misses {one.name}"
        for one in every
        if not await is_missed(one, folder, principals=20, requests=_OF_A_FILTER)
    ]
    _say(f"filters: {len(every)} taken out one at a time, {len(unseen)} of them unseen; {len(NOT_SEEN)} kinds left out")
    return unseen


async def failover(folder: Path) -> list[str]:
    """One of two servers over a Postgres is killed while fifty clients stream."""
    with Databases("postgres") as databases:
        outcome = await fail_over(databases, folder, clients=CLIENTS)
    _say(f"failover: {outcome.line()}")
    return outcome.broken


async def breaks(folder: Path) -> list[str]:
    """A thousand times a reader leaves the streams of runs with three levels of children, over each store."""
    await _breaks_over(MemoryStore(), "memory")
    await _breaks_over(await SQLiteStore.open(folder / "breaks.db"), "SQLite")
    with Databases("postgres") as databases:
        async with databases.fresh("breaks", folder) as at, await open_at(at, SYSTEM_CLOCK) as storage:
            await _breaks_over(storage.store, "Postgres", is_mine=False)
    return []


async def _breaks_over(store: Store, name: str, *, is_mine: bool = True) -> None:
    bus = DurableEventBus(store, config=_SMALL)
    try:
        async with streaming(bus, planner=FAMILY) as wire:
            events = await disconnects(wire, store, 1, BREAKS)
    finally:
        await bus.aclose()
        if is_mine:
            await store.aclose()
    _say(f"disconnects: {BREAKS} over {name}, {events} events read")


PARTS: Final[dict[str, Callable[[Path], Awaitable[list[str]]]]] = {
    "canary": canary,
    "filters": filters,
    "failover": failover,
    "disconnects": breaks,
}


def main(names: Sequence[str]) -> int:
    """The exit code: 1 when something was broken, 2 for a part that is none."""
    if unknown := set(names) - set(PARTS):
        _say(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
        return 2
    logging.disable(logging.WARNING)
    broken: list[str] = []
    for name in names or PARTS:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="harborage-wire-") as folder:
            found = asyncio.run(_play(PARTS[name], Path(folder)))
        broken += (f"{name}: {what}" for what in found)
        _say(f"{name}: {len(found)} broken; {time.monotonic() - began:.0f} s")
    for what in broken:
        _say(what)
    return 1 if broken else 0


async def _play(part: Callable[[Path], Awaitable[list[str]]], folder: Path) -> list[str]:
    return await part(folder)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
