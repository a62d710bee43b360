"""Streams that break: browsers that leave and come back, held against the log of the session."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harborage.store import EventQuery, EventRow
from harborage.tools import tool
from tests.kit.sse import Frame, open_page
from tests.kit.streaming import STEP
from tests.kit.wire import ADA, Wire
from tests.programs.chaos.disconnects import FamilyPlanner, stroll

if TYPE_CHECKING:
    from harborage.runtime.host import Runtime

ENDS: Final = frozenset({"task.completed", "task.failed", "task.cancelled"})


class Reader:
    """A browser: it connects again with the last id that it got, and keeps what came on each connection."""

    def __init__(self, wire: Wire, query: str, luck: random.Random) -> None:
        self.wire, self.query, self.luck = wire, query, luck
        self.last_id: int | None = None
        self.joined: list[Frame] = []
        self.connections = 0

    async def read_until_end_of(self, run_id: str) -> None:
        """Read the run to its end, in pieces."""
        while not await self._connect(run_id, self.luck.randint(0, 15)):
            await stroll(self.luck.choice((0, 0, 2, 20)))

    async def _connect(self, run_id: str, stay: int) -> bool:
        self.connections += 1
        async with open_page(self.wire, self.query, last_id=self.last_id) as page:
            try:
                if self.last_id is not None:
                    assert page.first.id == self.last_id
                for _ in range(stay):
                    frame = await page.event()
                    self.joined.append(frame)
                    if frame.event in ENDS and frame.payload["TaskID"] == run_id:
                        return True
                    await stroll(self.luck.choice((0, 0, 0, 1, 5)))
                return False
            finally:
                assert page.ids == sorted(set(page.ids)), "a number came twice on a connection, or they shrank"
                self.last_id = page.last_id


async def disconnects(wire: Wire, store: Any, seed: int, most: int) -> int:
    """Read runs with three levels of children in pieces until readers have left so often; how many events came."""
    luck, connections, events = random.Random(seed), 0, 0
    runtime: Runtime = wire.app.services.runtime
    while connections < most:
        before = await store.events(EventQuery(newest_first=True, limit=1))
        cursor = before[0].sequence if before else 0
        run = await runtime.start("3", who=ADA)
        other = await runtime.start("1", who=ADA)
        readers = [Reader(wire, "", luck), Reader(wire, f"?run={run.id}&children=1", luck)]
        for reader in readers:
            reader.last_id = cursor
        async with asyncio.timeout(60):
            await asyncio.gather(*(reader.read_until_end_of(run.id) for reader in readers))
            await other.finished()
        rows = await store.events(EventQuery(tenant="acme", user="ada", session="s-1", after=cursor, limit=100_000))
        family = family_of(rows, run.id)
        for reader, wanted in zip(readers, (rows, [row for row in rows if _is_of(row, family)]), strict=True):
            got = [frame.sequence for frame in reader.joined if frame.sequence % STEP == 0]
            due = [row.sequence for row in wanted if row.sequence <= got[-1]]
            assert got == due, reader.query
            assert "bus.dropped" not in {frame.event for frame in reader.joined}
            connections += reader.connections
            events += len(reader.joined)
        assert len(family) == 15
    return events


def family_of(rows: list[EventRow], root: str) -> set[str]:
    found = {root}
    for row in rows:
        payload = msgspec.json.decode(row.data)["payload"]
        if row.type == "task.spawned" and payload["ParentTaskID"] in found:
            found.add(payload["TaskID"])
    return found


def _is_of(row: EventRow, family: set[str]) -> bool:
    return row.run_id in family or msgspec.json.decode(row.data)["payload"].get("TaskID") in family


@tool(name="stroll")
async def family_tool(turns: int) -> int:
    """Give the other tasks so many turns."""
    return await stroll(turns)


FAMILY: Final[dict[str, Any]] = {"planner": FamilyPlanner(), "tools": [family_tool]}
"""The options of a runtime whose runs have children, and those have children."""
