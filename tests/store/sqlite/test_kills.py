"""A process that is killed in the middle of its commits to a file leaves tables that agree."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from harborage.store.sqlite import SQLiteStore
from tests.kit.kills import Acknowledged, assert_agrees, finish_all, work_and_be_killed, work_and_die

ROUNDS = 4


async def test_what_a_killed_process_leaves_agrees(tmp_path: Path) -> None:
    """Two processes share a file and are killed again and again; what was acknowledged is kept, and others go on."""
    path, acknowledged, dice = tmp_path / "runs.db", Acknowledged(), random.Random(1)
    store = await SQLiteStore.open(path)
    for number in range(ROUNDS):
        await asyncio.gather(
            *(
                work_and_be_killed(f"sqlite:{path}", f"{name}{number}", number, acknowledged, dice.randrange(20, 200))
                for name in ("one", "two")
            )
        )
        await assert_agrees(store, acknowledged)
    await finish_all(store)
    await assert_agrees(store, acknowledged)
    await store.aclose()


async def test_a_process_that_dies_within_a_transaction_leaves_none_of_it(tmp_path: Path) -> None:
    """Wherever in its transactions a process dies, what it had not committed is not there, and all else is."""
    path, acknowledged, dice = tmp_path / "runs.db", Acknowledged(), random.Random(2)
    store = await SQLiteStore.open(path)
    for number in range(8):
        await work_and_die(f"sqlite:{path}", f"worker{number}", number, acknowledged, dice.randrange(20, 600))
        await assert_agrees(store, acknowledged)
    assert acknowledged.lines > 0
    await finish_all(store)
    await assert_agrees(store, acknowledged)
    await store.aclose()
