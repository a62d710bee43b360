"""A check of everything in a file: it finds what was damaged from outside, wherever that is, and nothing else."""

from __future__ import annotations

import shutil
from itertools import count
from pathlib import Path

import apsw
import pytest

from harborage.store import NewEvent
from harborage.store.examining import Examined, Judges, Part, Place
from harborage.store.sqlite import SQLiteStore
from harborage.store.suspects import check_everything
from harborage.testing.conformance.store_bench import ME, start, step
from tests.kit.audited import DAMAGE, JUDGES, fill, found


@pytest.fixture(params=["slice by slice", "at once"])
def sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How much a slice looks at: next to nothing, or all there is."""
    if request.param == "slice by slice":
        monkeypatch.setattr("harborage.store.sql.audit.SIZES", dict.fromkeys(Part, 2))


@pytest.fixture
async def kept(path: Path) -> Path:
    """A file with a store that is whole."""
    store = await SQLiteStore.open(path)
    await fill(store)
    await store.aclose()
    return path


async def checked(path: Path) -> dict[str, set[str]]:
    """What a check of everything finds in a file."""
    store = await SQLiteStore.open(path)
    try:
        return await found(store)
    finally:
        await store.aclose()


@pytest.mark.usefixtures("sizes")
async def test_what_is_damaged_is_found_and_nothing_else(kept: Path, tmp_path: Path) -> None:
    """Each fact that no longer agrees is reported with its row; a store that is whole has none."""
    assert await checked(kept) == {}
    for number, (sql, (kind, subjects)) in enumerate(DAMAGE.items()):
        path = tmp_path / f"{number}.db"
        shutil.copyfile(kept, path)
        connection = apsw.Connection(str(path))
        connection.execute(sql.format(bad="x'6e6f'", no="x'7b7d'"))
        assert connection.changes() > 0, sql
        connection.close()
        assert (sql, await checked(path)) == (sql, {kind: {*subjects.split()}})


async def test_workers_go_on_beside_a_check(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process commits between two slices: it waits for nothing, none of it is damage, and the check ends."""
    monkeypatch.setattr("harborage.store.sql.audit.SIZES", dict.fromkeys(Part, 2))
    store, worker = await SQLiteStore.open(kept), await SQLiteStore.open(kept)
    await worker.join("two")
    lease = await start(worker, "beside", worker="two")
    positions = count(1)
    examine = store.examine

    async def examine_and_work(part: Part, judges: Judges, after: Place) -> Examined:
        examined = await examine(part, judges, after)
        events = (NewEvent(type="a", data=b"{}", run_id="beside"),) * 3
        await worker.commit(step(lease, next(positions), b"one", who=ME, events=events))
        return examined

    monkeypatch.setattr(store, "examine", examine_and_work)
    assert await found(store) == {}
    assert next(positions) > 20
    await worker.aclose()
    await store.aclose()


async def test_the_progress_of_each_part_is_reported(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts are reported in their order, each up to the whole of it."""
    monkeypatch.setattr("harborage.store.sql.audit.SIZES", dict.fromkeys(Part, 2))
    received: list[tuple[str, float]] = []
    store = await SQLiteStore.open(kept)
    assert [
        one async for one in check_everything(store, JUDGES, on_progress=lambda *progress: received.append(progress))
    ] == []
    await store.aclose()
    assert list(dict.fromkeys(part for part, _ in received)) == list(Part)
    of_runs = [share for part, share in received if part is Part.RUNS]
    assert of_runs == sorted(of_runs)
    assert len(of_runs) > 2
    assert {share for part, share in received if share == 1} == {1}
