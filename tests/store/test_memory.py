"""What is the store in memory's own, beside what every store promises."""

from __future__ import annotations

from hashlib import sha256

import pytest

from harborage.identity import Identity, Quadruple
from harborage.store import (
    LIVE,
    Change,
    ChangeGroup,
    Commit,
    GroupQuery,
    GroupStatus,
    Guard,
    Lease,
    Move,
    NewEvent,
    NewGroup,
    NewRun,
    RunQuery,
    RunRow,
    SessionQuery,
    Status,
)
from harborage.store.memory import MemoryStore, views
from harborage.store.memory import store as memory_store
from harborage.store.memory.views import Asks, has_run
from harborage.store.times import micros
from harborage.testing.clock import FakeClock
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
    lease = Lease("r", "worker", 1)
    for number in range(1, 5):
        assert store.append_now(lease, number, [b"%d" % number])
        assert not store.append_now(lease, number, [b"again"])
        if number % 2:
            assert (await row_of(store, "r")).position == number + 1
    assert await store.entries("r") == [b"0", b"1", b"2", b"3", b"4"]
    assert (await row_of(store, "r")).position == 5
    assert not store.append_now(lease._replace(fence=2), 5, [b"5"])
    await store.aclose()
    assert not store.append_now(lease, 5, [b"5"])


async def test_what_is_asked_of_one_run_or_of_those_at_work_costs_the_same_however_many_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every step of a run asks such things, so only the rows that can be meant are looked at."""
    looked: list[str] = []

    def noted(query: RunQuery, row: RunRow, asks: Asks) -> bool:
        looked.append(row.run_id)
        return has_run(query, row, asks)

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


async def test_what_is_asked_of_a_session_a_family_or_a_group_costs_the_same_however_many_others_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the smallest of what a query names is looked at: its session, parent, root, group or the live runs."""
    looked: list[str] = []

    def noted(query: RunQuery, row: RunRow, asks: Asks) -> bool:
        looked.append(row.run_id)
        return has_run(query, row, asks)

    store = MemoryStore()
    mine = {"tenant": "t", "user": "u", "session": "s"}
    await store.commit(Commit(groups=(NewGroup(group_id="g", who=ME.identity),)))
    kin = [NewRun(run_id="root", who=ME.identity), NewRun(run_id="parent", who=ME.identity, parent="root", root="root")]
    kin.append(NewRun(run_id="child", who=ME.identity, parent="parent", root="root", group="g"))
    others = (NewRun(run_id=f"o{number}", who=Identity("t", "u", f"s{number}")) for number in range(20))
    await store.commit(Commit(starts=(*kin, *others)))
    monkeypatch.setattr(views, "has_run", noted)
    for asked, wanted in (
        (RunQuery(**mine), ["root", "parent", "child"]),
        (RunQuery(**mine, statuses=LIVE), ["root", "parent", "child"]),
        (RunQuery(**mine, group="g"), ["child"]),
        (RunQuery(parent="parent"), ["child"]),
        (RunQuery(root="root", tenant="t"), ["parent", "child"]),
        (RunQuery(**mine, parent="nobody"), []),
    ):
        looked.clear()
        assert [row.run_id for row in (await store.runs(asked)).rows] == wanted[::-1]
        assert looked == wanted
    for run_id in ("child", "parent", "root"):
        await store.commit(Commit(moves=(Move(run_id=run_id, expected=LIVE, status=Status.COMPLETE),)))
    assert await store.delete(["root", "parent", "child"]) == 3
    assert len(store._tables.index) == 20


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


async def test_what_was_kept_for_runs_goes_with_them() -> None:
    """Groups that ended, waits and sessions that were never opened: nothing stays that only the deleted runs had."""
    store = MemoryStore(keep_ended=2, keep_strays=1)
    tables = store._tables
    for number in range(10):
        who = Identity("t", "u", f"s{number}")
        opened = NewGroup(group_id="g", who=who)
        member = NewRun(run_id=f"member{number}", who=who, group="g")
        waits = NewRun(run_id=f"waits{number}", who=who)
        wait = Move(run_id=waits.run_id, expected=(Status.PENDING,), awaits="g")
        ends = tuple(
            Move(run_id=one.run_id, expected=(Status.PENDING,), status=Status.COMPLETE) for one in (member, waits)
        )
        done = ChangeGroup(group_id="g", who=who, expected=(GroupStatus.OPEN,), status=GroupStatus.COMPLETED)
        nobodys = ChangeGroup(group_id="empty", who=who, expected=(GroupStatus.OPEN,), status=GroupStatus.CANCELLED)
        await store.commit(Commit(groups=(opened, NewGroup(group_id="empty", who=who)), starts=(member, waits)))
        await store.commit(Commit(moves=(wait,), groups=(done, nobodys)))
        await store.commit(Commit(moves=ends))
    assert set(tables.runs) == {"member9", "waits9"}
    kept = (await store.groups(GroupQuery())).rows
    assert [(row.who.session_id, row.group_id) for row in kept] == [("s9", "empty"), ("s9", "g")]
    assert (tables.live, tables.ready, tables.waiting) == ({}, {}, {})
    assert [row.who.session_id for row in (await store.sessions(SessionQuery())).rows] == ["s9"]
    assert await store.delete(["member9", "waits9"]) == 2
    assert [row.group_id for row in (await store.groups(GroupQuery())).rows] == ["empty"]


async def test_a_session_stays_for_what_happened_in_it_and_for_who_opened_it() -> None:
    """Its events are counted in its row; its owner finds it again."""
    store = MemoryStore(keep_ended=0)
    opened, published = Identity("t", "u", "opened"), Identity("t", "u", "told")
    await store.open_session(opened)
    await store.commit(Commit(who=published, events=(NewEvent(type="a", data=b"{}"),)))
    for who in (opened, published, Identity("t", "u", "other")):
        run = who.with_run(f"of {who.session_id}")
        await keep(store, run, [b"1"], change=Change(status=Status.COMPLETE))
    assert (await store.runs(RunQuery())).rows == []
    assert {row.who for row in (await store.sessions(SessionQuery())).rows} == {opened, published}


class Moment(int):
    """A time that counts how often it is compared with another."""

    compared = 0

    def __lt__(self, other: int) -> bool:
        Moment.compared += 1
        return int(self) < int(other)

    def __le__(self, other: int) -> bool:
        Moment.compared += 1
        return int(self) <= int(other)

    def __gt__(self, other: int) -> bool:
        Moment.compared += 1
        return int(self) > int(other)

    def __eq__(self, other: object) -> bool:
        Moment.compared += 1
        return isinstance(other, int) and int(self) == int(other)

    __hash__ = int.__hash__


async def test_a_look_costs_the_same_however_many_runs_wait_for_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ten thousand parked runs only the next of each agent is looked at; one that falls due costs a few looks."""
    monkeypatch.setattr(Moment, "compared", 0)
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    now = micros(clock.now())
    for number in range(10_000):
        at = Moment(now + 60_000_000 + number * 1_000)
        park = Change(release=True, wake_at=at)
        await keep(store, ME.identity.with_run(f"r{number}"), [b"1"], agent=f"a{number % 2}", change=park)
    Moment.compared = 0
    for agents in ((), ("a0",), ("a1",), ("other",), ("a0", "a1")):
        for _ in range(10):
            assert await store.claim("worker", agents=agents) == []
            await store.next_due(agents=agents)
    assert Moment.compared <= 250
    clock.advance(60)
    assert [one.row.run_id for one in await store.claim("worker")] == ["r0"]
    assert await store.next_due() == now + 60_001_000
    assert Moment.compared <= 300


async def test_times_that_no_longer_hold_are_forgotten() -> None:
    """A run that is parked again and again keeps its last time alone; a run of no agent is anybody's."""
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    now = micros(clock.now())
    await store.join("worker")
    for run_id, agent in (("mine", "a"), ("other", "b"), ("any", "")):
        await keep(store, ME.identity.with_run(run_id), [b"1"], agent=agent)
    for turn in range(1_000):
        claimed = await store.claim("worker")
        assert len(claimed) == 3
        for number, one in enumerate(claimed):
            until = now + 1_000_000 * (10_000 - turn + number)
            change = Change(release=True, progress=True, wake_at=until)
            await store.commit(Commit(guard=Guard(lease=one.row.lease, position=1), change=change))
        if turn < 999:
            await store.commit(Commit(wakes=("mine", "other", "any")))
    assert store._tables.due._size < 100
    due = [await store.next_due(agents=agents) for agents in ((), ["a"], ["b"], ["c"], ["c", "b"])]
    assert due == [now + 1_000_000 * (9_001 + number) for number in (0, 0, 1, 2, 1)]
    clock.advance(9_003)
    for agents, run_ids in ((["c"], ["any"]), (["b", "c"], ["other"]), ([], ["mine"])):
        assert [one.row.run_id for one in await store.claim("worker", agents=agents)] == run_ids
    assert await store.next_due() is None
