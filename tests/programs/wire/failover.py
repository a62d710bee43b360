"""Two servers over one Postgres, one of which is killed while clients stream: nobody notices but by the wait."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

import msgspec

from harborage.clock import SYSTEM_CLOCK
from harborage.identity import Identity
from harborage.store import EVENT_STEP, EventQuery, EventRow, RunQuery
from tests.programs.chaos.databases import Databases, open_at
from tests.programs.wire.readers import ENDS, Followed, follow_plainly, follow_with_client
from tests.programs.wire.servers import Keys, serve
from tests.programs.wire.workers import LEDGER

SEATS: Final = 12
_AFTER_EVENTS: Final = 8
_WITHIN_S: Final = 240.0
_LOOK_S: Final = 0.02


class FailedOver(msgspec.Struct, kw_only=True):
    """How it went; `broken` says what must not be. `went_on_s` is the longest that a client waited for its next event
    after the kill, in seconds.
    """

    broken: list[str] = []
    clients: int = 0
    moved: int = 0
    events: int = 0
    bookings: int = 0
    calls: int = 0
    went_on_s: float = 0.0
    took_s: float = 0.0

    def line(self) -> str:
        """All of it, in a line."""
        return (
            f"{self.clients} clients, {self.moved} of them at the killed server, {self.events} events, "
            f"{self.bookings} bookings in {self.calls} calls, on again within {self.went_on_s:.1f} s: "
            f"{len(self.broken)} broken; {self.took_s:.0f} s"
        )


async def fail_over(databases: Databases, folder: Path, *, clients: int, seats: int = SEATS) -> FailedOver:
    """Play it with so many clients, half of them of each kind, half at each server; each books so many seats."""
    outcome, began = FailedOver(clients=clients), time.monotonic()
    ledger = folder / "ledger"
    ledger.mkdir()
    keys, environ = Keys(folder), {LEDGER: str(ledger)}
    async with (
        databases.fresh("failover", folder) as database,
        await open_at(database, SYSTEM_CLOCK) as storage,  # makes the tables before two servers do
        serve(keys, database.url, folder, "first", environ=environ) as first,
        serve(keys, database.url, folder, "second", environ=environ) as second,
        asyncio.timeout(_WITHIN_S),
    ):
        people = [Identity("acme", f"user{number}", f"session{number}") for number in range(clients)]
        got = {who: Followed() for who in people}
        async with asyncio.TaskGroup() as group:
            for number, who in enumerate(people):
                urls = (first.url, second.url) if number % 4 < 2 else (second.url, first.url)
                follow = follow_with_client if number % 2 else follow_plainly
                group.create_task(follow(urls, keys.token(who), who, str(seats), got[who]))
            while min(len(one.numbers) for one in got.values()) < _AFTER_EVENTS:  # noqa: ASYNC110 - of all clients
                await asyncio.sleep(_LOOK_S)
            outcome.moved = sum(number % 4 < 2 for number in range(clients))
            first.kill()
            outcome.went_on_s = await _went_on(got)
        for who, one in got.items():
            outcome.broken += [f"{who.user_id}: {what}" for what in await _faults(storage.store, who, one)]
        runs = (await storage.store.runs(RunQuery(limit=10_000))).rows
        outcome.broken += [f"run {row.run_id} is {row.status}" for row in runs if str(row.status) != "complete"]
        if len(runs) != clients:
            outcome.broken.append(f"{len(runs)} runs of {clients} clients")
    outcome.events = sum(len(one.numbers) for one in got.values())
    _judge_ledger(outcome, ledger, {f"{one.run_id} {seat}" for one in got.values() for seat in range(seats)})
    outcome.took_s = time.monotonic() - began
    return outcome


async def _went_on(got: dict[Identity, Followed]) -> float:
    """Return how long the last client waited for its next event, or its end."""
    killed, had = time.monotonic(), {who: len(one.numbers) for who, one in got.items()}
    while any(len(one.numbers) == had[who] and one.types[-1] not in ENDS for who, one in got.items()):  # noqa: ASYNC110
        await asyncio.sleep(_LOOK_S)
    return time.monotonic() - killed


async def _faults(store: Any, who: Identity, got: Followed) -> list[str]:
    """What is wrong with what a client got of its run."""
    query = EventQuery(tenant=who.tenant_id, user=who.user_id, session=who.session_id, limit=10_000)
    rows = [row for row in await store.events(query) if _is_of(row, got.run_id)]
    faults = list(got.broken)
    numbers = [number for number in got.numbers if number % EVENT_STEP == 0]
    if twice := [number for number, times in Counter(got.numbers).items() if times > 1]:
        faults.append(f"came twice: {twice}")
    if numbers != [row.sequence for row in rows if row.sequence <= numbers[-1]]:
        faults.append(f"got {numbers}, the log has {[row.sequence for row in rows]}")
    if sum(one in ENDS for one in got.types) != 1 or got.types[-1] not in ENDS:
        faults.append(f"ends with {got.types[-3:]}")
    return faults


def _is_of(row: EventRow, run_id: str) -> bool:
    return row.run_id == run_id or msgspec.json.decode(row.data)["payload"].get("TaskID") == run_id


def _judge_ledger(outcome: FailedOver, ledger: Path, wanted: set[str]) -> None:
    booked = Counter(entry.read_text() for entry in ledger.iterdir() if entry.name != "calls")
    outcome.bookings = booked.total()
    outcome.calls = len((ledger / "calls").read_text().splitlines())
    outcome.broken += [f"booked {times} times: {what}" for what, times in booked.items() if times > 1]
    outcome.broken += [f"not booked: {what}" for what in wanted - booked.keys()]
    outcome.broken += [f"booked for nobody: {what}" for what in booked.keys() - wanted]
