"""What is the store in memory's own, beside what every store promises."""

from __future__ import annotations

from hashlib import sha256

import pytest

from harborage.identity import Quadruple
from harborage.store import LIVE, Change, Commit, Guard, Lease, RunQuery, RunRow, Status
from harborage.store.memory import MemoryStore, views
from harborage.store.memory import store as memory_store
from harborage.store.memory.views import has_run
from tests.kit.stored_runs import keep, row_of

pytestmark = pytest.mark.anyio

ME = Quadruple("t", "u", "s", "r")


async def test_what_was_read_is_the_readers_own() -> None:
    """Changing it changes nothing in the store, and neither does changing what was handed in."""
    store = MemoryStore()
    handed = [b"1"]
    await keep(store, ME, handed)
    handed.append(b"2")
    (await store.entries("r")).append(b"3")
    (claim,) = await store.claim("worker")
    claim.entries.append(b"4")
    assert await store.entries("r") == [b"1"]


async def test_entries_that_were_appended_at_once_are_counted_and_kept_in_order() -> None:
    """Without an await between them, and whether the run's row is read meanwhile or not."""
    store = MemoryStore()
    await keep(store, ME, [b"0"])
    await store.claim("worker")
    for number in range(1, 5):
        guard = Guard(lease=Lease("r", "worker", 1), position=number)
        store.commit_now(Commit(guard=guard, entries=(b"%d" % number,)))
        if number % 2:
            assert (await row_of(store, "r")).position == number + 1
    assert await store.entries("r") == [b"0", b"1", b"2", b"3", b"4"]
    assert (await row_of(store, "r")).position == 5


async def test_what_is_asked_of_one_run_or_of_those_at_work_costs_the_same_however_many_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every step of a run asks such things, so only the rows that can be meant are looked at."""
    looked: list[str] = []

    def noted(query: RunQuery, row: RunRow) -> bool:
        looked.append(row.run_id)
        return has_run(query, row)

    store = MemoryStore()
    await keep(store, ME, [b"1"])
    for number in range(20):
        await keep(store, ME.identity.with_run(f"ended{number}"), [b"1"], change=Change(status=Status.COMPLETE))
    monkeypatch.setattr(views, "has_run", noted)
    monkeypatch.setattr(memory_store, "has_run", noted)

    one = RunQuery(run_ids=("ended7", "ended7", "unknown"))
    live = RunQuery(statuses=LIVE)
    assert [row.run_id for row in (await store.runs(one)).rows] == ["ended7"]
    assert [row.run_id for row in (await store.runs(live)).rows] == ["r"]
    assert (await store.count_runs(live)).by_status[Status.PENDING] == 1
    assert looked == ["ended7", "r", "r"]


async def test_a_body_stays_for_as_long_as_a_run_names_it() -> None:
    """Two runs name the same one: it goes with the second of them."""
    store = MemoryStore()
    data = b"a long answer"
    digest = sha256(data).hexdigest()
    for run_id in ("a", "b"):
        who = ME.identity.with_run(run_id)
        await keep(store, who, [b"1", b"2"], bodies={digest: data}, change=Change(status=Status.COMPLETE))
    assert await store.delete(["a"]) == 1
    assert await store.body("b", digest) == data
    assert await store.delete(["b"]) == 1
    assert store._tables.bodies == {}
