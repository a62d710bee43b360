"""What `harborage doctor` does: checks, pending work, orphans."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from harborage import codec
from harborage.app.doctor import check_storage, end_orphans, list_pending
from harborage.events import BusDroppedPayload, DurableEventBus, Event, EventType
from harborage.events.rows import encode_event
from harborage.identity import Identity, Quadruple
from harborage.planner import (
    AwaitTask,
    CallTool,
    Decision,
    Finish,
    FinishReason,
    PauseReason,
    RequestPause,
    RunContext,
    SpawnSpec,
    SpawnTask,
)
from harborage.runtime.approval import AlwaysDeny
from harborage.runtime.durable.journal import Patched, Started, encode_entry, raw
from harborage.runtime.durable.pending import GRACE, Party, PendingItem, PendingKind
from harborage.runtime.effects.options import RuntimeOptions
from harborage.runtime.host import Runtime
from harborage.runtime.loop.controls import ControlEvent, ControlType, Scope
from harborage.runtime.loop.seam import RunRequest
from harborage.runtime.pauses import Coordinator, PauseDecision, PauseRequest
from harborage.state.storage import Storage, open_storage
from harborage.store import Change, Commit, NewEvent, Page, RunRow, SendControl, Status
from harborage.store.times import micros
from harborage.tasks import GroupRequest, GroupStatus, InProcessTaskRegistry, SpawnRequest, TaskKind, TaskStatus
from harborage.testing.clock import FakeClock, settle
from harborage.testing.planners import ScriptedPlanner
from tests.kit.stored_runs import PARKED, keep

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WHO = Quadruple("t", "u", "s", "r")


@pytest.fixture
async def database(tmp_path: Path) -> Path:
    """A database with tables and nothing else."""
    path = tmp_path / "runs.db"
    await (await open_storage(str(path))).aclose()
    return path


async def test_a_whole_database_is_well(database: Path) -> None:
    """It is opened, and where that is asked for read through."""
    (found,) = await check_storage(str(database), database)
    assert found.is_ok
    assert found.detail == f"{database}: it answers, its tables are those of this version"
    (found,) = await check_storage(str(database), database, is_whole=True)
    assert found.is_ok
    assert found.detail == f"{database}: whole, its tables are those of this version"


async def test_a_file_that_is_no_database_is_reported(tmp_path: Path) -> None:
    """With what to do about it."""
    path = tmp_path / "runs.db"
    path.write_bytes(b"no database" * 100)
    (found,) = await check_storage(str(path), path)
    assert not found.is_ok
    assert "bring back a copy that is whole" in found.detail


async def test_a_newer_database_is_reported(database: Path) -> None:
    """It is left as it is."""
    connection = apsw.Connection(str(database))
    connection.execute("INSERT INTO harborage_migrations (number, name, checksum) VALUES (999, 'later', 'x')")
    connection.close()
    (found,) = await check_storage(str(database), database)
    assert not found.is_ok
    assert "upgrade this package" in found.detail


async def test_damage_inside_is_found(database: Path) -> None:
    """SQLite reads every page and index, also those that no query reads."""
    connection = apsw.Connection(str(database))
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute("UPDATE sqlite_schema SET rootpage = 2 WHERE type = 'index'")
    connection.close()
    (found,) = await check_storage(str(database), database, is_whole=True)
    assert not found.is_ok


BROKEN = {
    "its checksum": ("UPDATE harborage_journal SET crc = crc + 1 WHERE position = 2 AND run = 2", "run b, entry 1"),
    "an entry": ("DELETE FROM harborage_journal WHERE position = 2 AND run = 2", "run b, entry 1"),
    "its count": ("UPDATE harborage_runs SET position = 9999999 WHERE run_id = 'b'", "run b, entry 3"),
    "its row": ("UPDATE harborage_runs SET about = CAST(x'ff' AS TEXT) WHERE run_id = 'b'", "row 2 in harborage_runs"),
    "its status": ("UPDATE harborage_runs SET status = 9 WHERE run_id = 'b'", "row 2 in harborage_runs"),
    "its time": (
        "UPDATE harborage_runs SET created_at = 9223372036854775807 WHERE run_id = 'b'",
        "row 2 in harborage_runs",
    ),
    "what an entry holds": (
        "UPDATE harborage_journal SET data = x'7b7d', crc = 2745614147 WHERE position = 3 AND run = 2",
        "run b, entry 2",
    ),
}


async def test_what_cannot_be_read_is_named_and_hides_no_other(tmp_path: Path) -> None:
    """Damage that SQLite itself takes for whole: file, run and entry are named, once, and all else is looked at."""
    for number, (what, (sql, named)) in enumerate(BROKEN.items()):
        path = tmp_path / f"{number}.db"
        async with await open_storage(str(path)) as storage:
            for run_id in "abc":
                started = encode_entry(Started(at=NOW, request=raw(RunRequest(who=WHO, goal="g"))))
                patched = encode_entry(Patched(at=NOW, change="x"))
                await keep(storage.store, WHO.identity.with_run(run_id), [started, patched, patched])
        connection = apsw.Connection(str(path))
        connection.execute(sql)
        connection.close()
        found = {one.what: one for one in await check_storage(str(path), path, is_whole=True)}
        assert set(found) == {"database", "records"}, what
        assert found["database"].is_ok
        assert not found["records"].is_ok
        assert named in found["records"].detail, (what, found["records"].detail)
        assert "run a" not in found["records"].detail
        assert "run c" not in found["records"].detail
        assert "restore a copy that is whole" in found["records"].detail


GONE = {
    "its row": ("DELETE FROM harborage_runs WHERE run_id = 'b'", "run b: its row in harborage_runs is gone"),
    "its entries": ("DELETE FROM harborage_journal WHERE run = 2", "run b, entry 0"),
    "what was sent to it": (
        "DELETE FROM harborage_controls WHERE num = 2",
        "run b: its row counts 1 unread controls, 0 are there",
    ),
    "what it says": (
        "UPDATE harborage_controls SET data = x'7b' WHERE num = 2",
        "run b: its control 2 (event id 'e-b') cannot be read",
    ),
    "its session": (
        "DELETE FROM harborage_sessions WHERE session = 'e'",
        "session number 2: its row is gone, its events are kept",
    ),
}


async def test_what_is_gone_is_named_with_its_run(tmp_path: Path) -> None:
    """Rows that were deleted from outside, and controls that cannot be read, of runs that are in no other way wrong."""
    whole = tmp_path / "whole.db"
    async with await open_storage(str(whole)) as storage:
        for run_id in "abc":
            who = WHO.identity.with_run(run_id)
            started = encode_entry(Started(at=NOW, request=raw(RunRequest(who=who, goal="g"))))
            await keep(storage.store, who, [started])
            control = ControlEvent(ControlType.PAUSE, who, Scope.ADMIN, f"e-{run_id}", None)
            sent = SendControl(run_id=run_id, event_id=f"e-{run_id}", type="PAUSE", data=codec.encode(control))
            await storage.store.commit(Commit(sends=(sent,)))
        event = Event(EventType.BUS_DROPPED, WHO, BusDroppedPayload(1, 1, 1, 1), NOW)
        await storage.store.commit(Commit(who=Identity("t", "u", "e"), events=(encode_event(event),)))
    assert all(one.is_ok for one in await check_storage(str(whole), whole, is_whole=True))
    for number, (what, (sql, named)) in enumerate(GONE.items()):
        path = tmp_path / f"{number}.db"
        shutil.copyfile(whole, path)
        connection = apsw.Connection(str(path))
        connection.execute(sql)
        connection.close()
        reported = "; ".join(one.detail for one in await check_storage(str(path), path, is_whole=True) if not one.is_ok)
        assert named in reported, (what, reported)
        assert "run a" not in reported, what
        assert "run c" not in reported, what
        assert "restore a copy that is whole" in reported, what


async def test_a_pause_that_cannot_be_read_is_named_with_its_run(tmp_path: Path) -> None:
    """Whatever of it is damaged: what it asks, how it stands, or when it ends."""
    whole = tmp_path / "whole.db"
    async with await open_storage(str(whole)) as storage, Runtime(planner=Hangs(), storage=storage) as runtime:
        run = await runtime.start("child", who=WHO.identity)
        while not await runtime.pauses.list_all_open():
            await settle()
        await runtime.aclose()
    assert all(one.is_ok for one in await check_storage(str(whole), whole, is_whole=True))
    for damage in ("data = x'00'", "status = 'postponed'", "deadline = -1", "reason = 'bored'"):
        path = tmp_path / "damaged.db"
        shutil.copyfile(whole, path)
        connection = apsw.Connection(str(path))
        connection.execute(f"UPDATE harborage_pauses SET {damage}")
        assert connection.changes() > 0, damage
        connection.close()
        (flawed,) = [one for one in await check_storage(str(path), path, is_whole=True) if not one.is_ok]
        assert f"run {run.id}: " in flawed.detail, flawed.detail


async def test_an_event_that_cannot_be_read_is_named(database: Path) -> None:
    """By its session and its place in it."""
    async with await open_storage(str(database)) as storage:
        entry = encode_entry(Started(at=NOW, request=raw(RunRequest(who=WHO, goal="g"))))
        await keep(storage.store, WHO.identity.with_run("a"), [entry])
        events = tuple(NewEvent(type="x", data=data) for data in (b"no event", b'{"payload":{}}', b'{"payload":1}'))
        await storage.store.commit(Commit(who=WHO.identity, events=(*events, events[1], events[1])))
    connection = apsw.Connection(str(database))
    connection.execute("UPDATE harborage_events SET data = x'7b7d' WHERE place = 3")
    connection.execute("UPDATE harborage_events SET type = CAST(x'ff' AS TEXT) WHERE place = 5")
    connection.execute("DELETE FROM harborage_events WHERE place = 4")
    connection.close()
    _, found = await check_storage(str(database), database, is_whole=True)
    for wrong in (", event 1: ", ", event 3: ", ": events 4 to 4 are gone", ", event 5: "):
        assert f"session s{wrong}" in found.detail
    assert "event 2: " not in found.detail


RUN = "UPDATE harborage_runs SET {}"
SESSION = "UPDATE harborage_sessions SET {}"
DAMAGED = {
    RUN.format("asked = x'ff00'"): "the task record of '",
    RUN.format("outcome = x'ff00'"): "the task record of '",
    SESSION.format("context = x'ff00'"): "the record of session 's' cannot be read",
    SESSION.format("close_reason = CAST(x'ff41' AS TEXT)"): "the record of session 's' cannot be read: row 1",
    SESSION.format("opened_at = -1"): "the record of session 's' cannot be read: row 1",
}
"""What may be damaged, and how doctor names each."""


class Hangs:
    """A run that starts another, and waits for a person."""

    async def next(self, run: RunContext) -> Decision:
        if run.query == "parent" and not run.trajectory.steps:
            return SpawnTask(spec=SpawnSpec(query="child"))
        return RequestPause(PauseReason.AWAIT_INPUT)


async def test_a_record_that_cannot_be_read_is_named_and_hides_no_run(tmp_path: Path) -> None:
    """Of tasks and sessions; what waits beside it is listed all the same."""
    whole = tmp_path / "whole.db"
    async with await open_storage(str(whole)) as storage, Runtime(planner=Hangs(), storage=storage) as runtime:
        run = await runtime.start("parent", who=WHO.identity)
        while len(await runtime.pauses.list_all_open()) < 2:
            await settle()
        await runtime.aclose()
    for damage, named in DAMAGED.items():
        path = tmp_path / "damaged.db"
        shutil.copyfile(whole, path)
        connection = apsw.Connection(str(path))
        connection.execute(damage)
        assert connection.changes() > 0, damage
        connection.close()
        (flawed,) = [one for one in await check_storage(str(path), path, is_whole=True) if not one.is_ok]
        assert named in flawed.detail, (damage, flawed.detail)
        async with await open_storage(str(path)) as storage:
            waits = await list_pending(storage)
        assert run.id in {wait.id for wait in waits if wait.kind is PendingKind.RUN}, damage


async def test_a_missing_log_is_found(database: Path) -> None:
    """Beside shared memory that a process left behind, the log belongs to the database."""
    database.with_name(f"{database.name}-shm").write_bytes(b"")
    found = await check_storage(str(database), database, is_whole=True)
    assert [(one.what, one.is_ok) for one in found] == [("log", False), ("database", True)]
    assert f"{database.name}-wal is missing" in found[0].detail


async def test_a_log_that_is_gone_without_a_trace_is_found(database: Path, tmp_path: Path) -> None:
    """A log that was removed together with the shared memory took commits with it, and that is reported."""
    async with await open_storage(str(database)) as storage:
        await keep(storage.store, WHO.identity.with_run("a"), [b"x"])
        copy = tmp_path / "copy.db"
        shutil.copyfile(database, copy)
    found = await check_storage(str(copy), copy, is_whole=True)
    assert [(one.what, one.is_ok) for one in found if not one.is_ok] == [("log", False)]
    assert f"{copy.name}-wal is missing" in found[0].detail
    closed = await check_storage(str(database), database, is_whole=True)
    assert "log" not in {one.what for one in closed}


async def test_a_lost_log_is_reported_until_that_is_accepted(database: Path, tmp_path: Path) -> None:
    """Whoever opens the file meanwhile, to read or to write, does not take the report away."""
    async with await open_storage(str(database)) as storage:
        await keep(storage.store, WHO.identity.with_run("a"), [b"x"])
        copy = tmp_path / "copy.db"
        shutil.copyfile(database, copy)
    async with await open_storage(str(copy)) as storage:
        await keep(storage.store, WHO.identity.with_run("b"), [b"y"])
    for _ in range(2):
        (lost,) = [one for one in await check_storage(str(copy), copy) if not one.is_ok]
        assert (lost.what, "--accept-loss" in lost.detail) == ("log", True)
    for accepts_loss in (True, False):
        found = await check_storage(str(copy), copy, accepts_loss=accepts_loss)
        assert all(one.is_ok for one in found), found


async def test_a_storage_without_a_file_answers() -> None:
    """Of a server nothing but that can be known."""
    (found,) = await check_storage("memory:", None)
    assert found.is_ok


ME = Identity("t", "u", "s")
LEAVES_AT_ONCE = RuntimeOptions(linger=timedelta(0))


@pytest.fixture
def clock() -> FakeClock:
    """The time in which everything waits."""
    return FakeClock()


@pytest.fixture(params=["memory:", "sqlite:"])
async def storage(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> AsyncIterator[Storage]:
    """A storage that outlives the runtimes of a test."""
    url = request.param if request.param == "memory:" else f"sqlite:{tmp_path / 'kept.db'}"
    async with await open_storage(url, clock=clock) as opened:
        yield opened


async def until(storage: Storage, clock: FakeClock, enough: Callable[[list[PendingItem]], object]) -> list[PendingItem]:
    """What waits, once that is enough."""
    async with asyncio.timeout(30):
        while not enough(found := await list_pending(storage, clock=clock)):
            await clock.run_for(0.05)
    return found


def by_kind(waits: list[PendingItem], kind: PendingKind) -> list[PendingItem]:
    """Those of one kind."""
    return [wait for wait in waits if wait.kind is kind]


async def kept(storage: Storage, run_id: str, change: Change | None = None) -> None:
    """A run that is ready for any worker, or as one left it with this change."""
    await keep(storage.store, ME.with_run(run_id), [b"started"], goal="go", change=change)


ENDED = Change(status=Status.COMPLETE)


def registry(storage: Storage, clock: FakeClock) -> tuple[InProcessTaskRegistry, Callable[[], Awaitable[Any]]]:
    """Tasks in the storage, as a process has them that has no runtime; and what closes them."""
    bus = DurableEventBus(storage.store, clock=clock)
    tasks = InProcessTaskRegistry(bus=bus, store=storage.store, clock=clock)

    async def close() -> None:
        await tasks.aclose()
        await bus.aclose()

    return tasks, close


async def test_nothing_waits_in_an_empty_storage(storage: Storage, clock: FakeClock) -> None:
    """The list is empty, and there is nothing to settle."""
    assert await list_pending(storage, clock=clock) == []
    assert await end_orphans(storage, clock=clock) == []


async def test_everything_that_waits_names_who_ends_it_and_when(storage: Storage, clock: FakeClock) -> None:
    """A parked run and its approval, a run that awaits another, and that other one, while no process is up."""
    script = ScriptedPlanner(
        [],
        by_query={
            "pay": [CallTool("pay", b"{}"), Finish(FinishReason.GOAL, "paid")],
            "boss": [
                SpawnTask(spec=SpawnSpec(query="work")),
                lambda run: AwaitTask(run.trajectory.steps[0].observation["task_id"]),
                Finish(FinishReason.GOAL, "all done"),
            ],
            "work": [RequestPause(PauseReason.AWAIT_INPUT), Finish(FinishReason.GOAL, "worked")],
        },
    )

    async def pay() -> str:
        """Pay."""
        return "paid"

    gates = {"pay": AlwaysDeny("look first")}
    runtime = Runtime(
        planner=script, tools=[pay], approvals=gates, storage=storage, options=LEAVES_AT_ONCE, clock=clock, agent="a"
    )
    async with runtime:
        payer = await runtime.start("pay", who=ME)
        boss = await runtime.start("boss", who=ME)
        await until(
            storage,
            clock,
            lambda waits: (
                {wait.on for wait in by_kind(waits, PendingKind.RUN)} == {Party.PERSON, Party.RUN}
                and len(by_kind(waits, PendingKind.RUN)) == 3
            ),
        )
    waits = await list_pending(storage, clock=clock)
    (session,) = by_kind(waits, PendingKind.SESSION)
    assert (session.on, session.id) == (Party.CLOCK, ME.session_id)
    assert not [wait for wait in waits if wait.is_orphan or not (wait.name or wait is session)]
    timed = {PendingKind.RUN, PendingKind.PAUSE, PendingKind.APPROVAL, PendingKind.SESSION}
    assert not [wait for wait in waits if wait.kind in timed and wait.until is None]
    (approval,) = by_kind(waits, PendingKind.APPROVAL)
    (pause,) = by_kind(waits, PendingKind.PAUSE)
    assert (approval.who.run_id, approval.detail) == (payer.id, "approval_required: pay")
    runs = {wait.id: wait for wait in by_kind(waits, PendingKind.RUN)}
    assert (runs[payer.id].on, runs[payer.id].name) == (Party.PERSON, approval.id)
    assert (runs[boss.id].on, runs[boss.id].name) == (Party.RUN, pause.who.run_id)
    assert by_kind(waits, PendingKind.TASK) == []
    assert await end_orphans(storage, clock=clock) == []


class Counted:
    """Runs, and how many of them were read."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.read = 0

    async def runs(self, *wanted: Any) -> Page[RunRow]:
        found: Page[RunRow] = await self.store.runs(*wanted)
        self.read += len(found.rows)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


async def test_what_is_over_is_not_read_again_and_again(storage: Storage, clock: FakeClock) -> None:
    """However many runs have ended: only those are read that go on, and those that something which waits names."""
    for index in range(30):
        await kept(storage, f"over-{index}", ENDED)
    await kept(storage, "other")
    await kept(storage, "going", replace(PARKED, awaits="other"))

    store: Any = Counted(storage.store)
    looked_at = Storage(state=storage.state, store=store)
    assert {wait.id: wait.name for wait in await list_pending(looked_at, clock=clock)} == {
        "other": "",
        "going": "other",
    }
    assert store.read == 2


async def test_a_pause_whose_run_has_ended_is_rejected(storage: Storage, clock: FakeClock) -> None:
    """No person answers it without effect."""
    await kept(storage, "r", Change(status=Status.FAILED))
    pauses = Coordinator(store=storage.store, clock=clock)
    pause = await pauses.request(PauseRequest(identity=ME.with_run("r"), reason=PauseReason.AWAIT_INPUT))
    (ended,) = await end_orphans(storage, clock=clock)
    assert (ended.item.id, ended.done) == (pause.token, "rejected")
    assert (await Coordinator(store=storage.store).status(pause.token, who=ME)).decision is PauseDecision.REJECT
    assert await end_orphans(storage, clock=clock) == []


async def test_a_pause_takes_its_default_at_its_deadline_and_wakes_its_run(storage: Storage, clock: FakeClock) -> None:
    """Although no worker ran at that moment, and the run's next poll is a day later."""
    await kept(storage, "r", replace(PARKED, wake_at=micros(clock.now() + timedelta(days=1))))
    request = PauseRequest(
        identity=ME.with_run("r"),
        reason=PauseReason.AWAIT_INPUT,
        deadline=clock.now() + timedelta(minutes=1),
        default=PauseDecision.APPROVE,
    )
    pause = await Coordinator(store=storage.store, clock=clock).request(request)
    assert await end_orphans(storage, clock=clock) == []
    clock.advance(60)
    (overdue,) = [wait for wait in await list_pending(storage, clock=clock) if wait.kind is PendingKind.PAUSE]
    assert overdue.is_overdue
    (ended,) = await end_orphans(storage, clock=clock)
    assert ended.item.id == pause.token
    assert "approve" in ended.done
    assert [claimed.row.run_id for claimed in await storage.store.claim("w")] == ["r"]


async def test_a_run_that_nothing_wakes_is_looked_at_again(storage: Storage, clock: FakeClock) -> None:
    """It is found, woken once, and ready for the next worker."""
    await kept(storage, "r", PARKED)
    (ended,) = await end_orphans(storage, clock=clock)
    assert (ended.item.id, ended.item.on) == ("r", Party.NONE)
    assert [claimed.row.run_id for claimed in await storage.store.claim("w")] == ["r"]
    assert await end_orphans(storage, clock=clock) == []


async def test_a_task_without_a_run_goes_with_the_run_that_spawned_it(storage: Storage, clock: FakeClock) -> None:
    """One that was spawned by no run waits for the program that spawned it."""
    tasks, close = registry(storage, clock)
    await kept(storage, "boss", ENDED)
    spawn = SpawnRequest(identity=ME.with_run(""), kind=TaskKind.FOREGROUND, query="go")
    alone = (await tasks.spawn(spawn)).id
    child = (await tasks.spawn(replace(spawn, parent_task_id="boss"))).id
    waits = {wait.id: wait for wait in await list_pending(storage, clock=clock)}
    assert (waits[alone].on, waits[alone].is_orphan, waits[child].is_orphan) == (Party.PERSON, False, True)
    done = {one.item.id: one.done for one in await end_orphans(storage, clock=clock)}
    assert done == {child: "cancelled"}
    statuses = [(await tasks.get(one, who=ME)).status for one in (alone, child)]
    assert statuses == [TaskStatus.PENDING, TaskStatus.CANCELLED]
    await close()


async def test_a_group_that_no_run_can_seal_is_cancelled(storage: Storage, clock: FakeClock) -> None:
    """Its members continue; a watching caller gets its end."""
    tasks, close = registry(storage, clock)
    await kept(storage, "boss", ENDED)
    await kept(storage, "lone")
    group = await tasks.resolve_or_create_group(GroupRequest(session=ME, owner_task_id="boss"), who=ME)
    spawn = SpawnRequest(identity=ME.with_run(""), kind=TaskKind.BACKGROUND, query="go", group_id=group.id)
    member = (await tasks.spawn(spawn)).id
    watch = await tasks.watch_group(ME, group.id)
    clock.advance(GRACE.total_seconds())
    (ended,) = await end_orphans(storage, clock=clock)
    assert (ended.item.kind, ended.item.id, ended.done) == (PendingKind.GROUP, group.id, "cancelled")
    async with asyncio.timeout(10):
        completion = await watch.completion()
    assert completion is not None
    assert completion.final_status is GroupStatus.CANCELLED
    assert (await tasks.get(member, who=ME)).status is TaskStatus.PENDING
    await close()
