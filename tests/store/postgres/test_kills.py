"""A process that is killed in the middle of its commits to Postgres leaves tables that agree; so does a server."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from tests.kit.kills import Acknowledged, assert_agrees, busy, finish_all, read_lines, work_and_be_killed

ROUNDS = 4
OURS = "select coalesce(array_agg(pid), '{}') from pg_stat_activity where application_name = $1"
# What a dead process had sent is still carried out for a moment, and read from its connection before that one ends.
IS_OVER = "select not exists (select from pg_stat_activity where application_name = $1 and pid <> all($2::int[]))"


async def test_what_a_killed_process_leaves_agrees(place: Any) -> None:
    """Two processes share a database and are killed again and again; what was acknowledged is kept, and others go
    on."""
    acknowledged, dice = Acknowledged(), random.Random(1)
    store = await place.open()
    for number in range(ROUNDS):
        ours = await place.admin.fetchval(OURS, place.schema)
        await asyncio.gather(
            *(
                work_and_be_killed(place.url, f"{name}{number}", number, acknowledged, dice.randrange(20, 200))
                for name in ("one", "two")
            )
        )
        await place.has_come(IS_OVER, place.schema, ours)
        await assert_agrees(store, acknowledged)
    await finish_all(store)
    await assert_agrees(store, acknowledged)


async def test_what_a_killed_server_leaves_agrees(place: Any) -> None:
    """A server that crashes under its workers keeps what it acknowledged; they wait for it, and go on."""
    acknowledged = Acknowledged()
    await (await place.open()).aclose()
    async with busy(place.url, "one", 1) as one, busy(place.url, "two", 2) as two:
        for _ in range(2):
            await asyncio.gather(read_lines(one, acknowledged, 60), read_lines(two, acknowledged, 60))
            await asyncio.to_thread(place.server.stop, at_once=True)
            await asyncio.to_thread(place.server.start)
        await asyncio.gather(read_lines(one, acknowledged, 60), read_lines(two, acknowledged, 60))
        for process in (one, two):
            process.kill()
            assert process.stdout is not None
            for line in (await process.stdout.read()).splitlines(keepends=True):
                acknowledged.add(line)
    await place.connect()
    await place.has_come(IS_OVER, place.schema, [])
    store = await place.open()
    await assert_agrees(store, acknowledged)
    await finish_all(store)
    await assert_agrees(store, acknowledged)
