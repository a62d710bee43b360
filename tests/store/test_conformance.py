"""Every store of record keeps the promises of the port, and the suite notices one that does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harborage.store.memory import MemoryStore, conditions
from harborage.store.memory.due import Due
from harborage.store.memory.groups import Groups
from harborage.store.memory.tables import Tables
from harborage.store.sqlite import SQLiteStore
from harborage.testing.clock import FakeClock
from harborage.testing.conformance.store_bench import StoreBench
from harborage.testing.conformance.stores import SCENARIOS, Scenario, check, run_conformance

pytestmark = pytest.mark.anyio


class MemoryBench:
    """A store in memory."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(clock=self.clock)

    async def another(self) -> MemoryStore:
        return self.store

    def later(self, seconds: float) -> None:
        self.clock.advance(seconds)

    async def aclose(self) -> None:
        await self.store.aclose()


class SQLiteBench:
    """A store in a file, and any number of others over the same file."""

    def __init__(self, path: Path, clock: FakeClock, store: SQLiteStore) -> None:
        self.path, self.clock, self.store = path, clock, store
        self.others: list[SQLiteStore] = []

    async def another(self) -> SQLiteStore:
        self.others.append(await SQLiteStore.open(self.path, clock=self.clock))
        return self.others[-1]

    def later(self, seconds: float) -> None:
        self.clock.advance(seconds)

    async def aclose(self) -> None:
        for store in (*self.others, self.store):
            await store.aclose()


async def in_memory() -> StoreBench:
    return MemoryBench()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_sqlite(scenario: Scenario, tmp_path: Path) -> None:
    """A store in a file, which two processes share, keeps a promise of the port."""

    async def in_a_file() -> StoreBench:
        clock = FakeClock()
        path = tmp_path / "runs.db"
        return SQLiteBench(path, clock, await SQLiteStore.open(path, clock=clock))

    await check(scenario, in_a_file)


async def test_memory() -> None:
    """A store in memory keeps every promise of the port."""
    await run_conformance(in_memory)


async def test_a_store_that_breaks_a_promise_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever rule of the tables is left out, a scenario fails and names it."""
    left_out: list[tuple[Any, str, Any]] = [
        *(
            (conditions, f"_check_{part}", lambda *_: None)
            for part in ("start", "move", "group", "patch", "send", "change", "wait")
        ),
        (Groups, "leave", lambda *_: None),
        (Groups, "forget", lambda *_: None),
        (Due, "fallen", lambda *_: []),
        (Tables, "_end", lambda *_: None),
        (Tables, "_wake", lambda *_: None),
        (Tables, "_take", lambda *_: ()),
        (Tables, "publish", lambda *_: (0, 0)),
        (Tables, "wake_due", lambda *_: None),
    ]
    unseen = []
    for owner, name, broken in left_out:
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, broken)
            try:
                await run_conformance(in_memory)
            except ExceptionGroup:
                continue
        unseen.append(name)
    assert unseen == []
