"""The rows that a benchmark fills a store with are such as a store of record has."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import apsw
import pytest

from harborage.app.doctor import check_storage
from harborage.state.storage import open_storage
from harborage.store import LIVE, PauseQuery, PauseStatus, RunQuery

ROOT = Path(__file__).parents[2]


@pytest.fixture
def filling(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(ROOT)
    yield importlib.import_module("benchmarks.million.filling")
    for name in [name for name in sys.modules if name.partition(".")[0] == "benchmarks"]:
        del sys.modules[name]


async def test_a_filled_store_is_whole_and_in_its_proportions(filling: ModuleType, tmp_path: Path) -> None:
    """A check of everything finds nothing wrong; three of a thousand runs wait for an answer, and none is an orphan."""
    path = tmp_path / "runs.db"
    await (await open_storage(str(path))).aclose()
    connection = apsw.Connection(str(path))
    for _, statement in filling.filling(2000, lambda data: f"x'{data.hex()}'"):
        connection.execute(statement)
    connection.close()
    found = await check_storage(str(path), path, is_whole=True)
    assert [one.detail for one in found if not one.is_ok] == []
    async with await open_storage(str(path)) as storage:
        assert (await storage.store.count_runs(RunQuery())).total == 2000
        assert (await storage.store.count_runs(RunQuery(tenant=filling.TENANT))).total in range(1200, 1300)
        assert await storage.store.count_pauses(PauseQuery(statuses=(PauseStatus.OPEN,))) == 6
        assert (await storage.store.count_runs(RunQuery(statuses=LIVE))).total == 9
        assert await storage.store.orphans() == []
