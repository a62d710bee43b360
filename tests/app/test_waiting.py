"""What waits in a storage, seen from outside of every runtime, and the end of what nobody would end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from harborage.app.waiting import Party, Wait, WaitKind, settle_orphans, waiting
from harborage.events import DurableEventBus
from harborage.identity import Identity
from harborage.planner import AwaitTask, CallTool, Finish, FinishReason, PauseReason, RequestPause, SpawnSpec, SpawnTask
from harborage.runtime.approval import AlwaysDeny
from harborage.runtime.host import Runtime
from harborage.runtime.options import RuntimeOptions
from harborage.runtime.pauses import Coordinator, PauseDecision, PauseRequest
from harborage.runtime.waits import GRACE
from harborage.state.storage import Storage, open_storage
from harborage.store import Change, Page, RunRow, Status
from harborage.store.times import micros
from harborage.tasks import GroupRequest, GroupStatus, InProcessTaskRegistry, SpawnRequest, TaskKind, TaskStatus
from harborage.testing.clock import FakeClock
from harborage.testing.planners import ScriptedPlanner
from tests.kit.stored_runs import PARKED, keep

pytestmark = pytest.mark.anyio

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


async def until(storage: Storage, clock: FakeClock, enough: Callable[[list[Wait]], object]) -> list[Wait]:
    """What waits, once that is enough."""
    async with asyncio.timeout(30):
        while not enough(found := await waiting(storage, clock=clock)):
            await clock.run_for(0.05)
    return found


def by_kind(waits: list[Wait], kind: WaitKind) -> list[Wait]:
    """Those of one kind."""
    return [wait for wait in waits if wait.kind is kind]


async def kept(storage: Storage, run_id: str, change: Change | None = None) -> None:
    """A run that is ready for any worker, or as one left it with this change."""
    await keep(storage.store, ME.with_run(run_id), [b"started"], goal="go", change=change)


ENDED = Change(status=Status.COMPLETE)


def registry(storage: Storage, clock: FakeClock) -> tuple[InProcessTaskRegistry, Callable[[], Awaitable[Any]]]:
    """Tasks in the storage, as a process has them that has no runtime; and what closes them."""
    bus = DurableEventBus(storage.store, clock=clock)
    tasks = InProcessTaskRegistry(bus=bus, store=storage.state, clock=clock)

    async def close() -> None:
        await tasks.aclose()
        await bus.aclose()

    return tasks, close


async def test_nothing_waits_in_an_empty_storage(storage: Storage, clock: FakeClock) -> None:
    """The list is empty, and there is nothing to settle."""
    assert await waiting(storage, clock=clock) == []
    assert await settle_orphans(storage, clock=clock) == []


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
                {wait.on for wait in by_kind(waits, WaitKind.RUN)} == {Party.PERSON, Party.RUN}
                and len(by_kind(waits, WaitKind.RUN)) == 3
            ),
        )
    waits = await waiting(storage, clock=clock)
    (session,) = by_kind(waits, WaitKind.SESSION)
    assert (session.on, session.id) == (Party.CLOCK, ME.session_id)
    assert not [wait for wait in waits if wait.is_orphan or not (wait.name or wait is session)]
    timed = {WaitKind.RUN, WaitKind.PAUSE, WaitKind.APPROVAL, WaitKind.SESSION}
    assert not [wait for wait in waits if wait.kind in timed and wait.until is None]
    (approval,) = by_kind(waits, WaitKind.APPROVAL)
    (pause,) = by_kind(waits, WaitKind.PAUSE)
    assert (approval.who.run_id, approval.detail) == (payer.id, "approval_required: pay")
    runs = {wait.id: wait for wait in by_kind(waits, WaitKind.RUN)}
    assert (runs[payer.id].on, runs[payer.id].name) == (Party.PERSON, approval.id)
    assert (runs[boss.id].on, runs[boss.id].name) == (Party.RUN, pause.who.run_id)
    assert [wait.id for wait in by_kind(waits, WaitKind.TASK)] == [pause.who.run_id]
    assert await settle_orphans(storage, clock=clock) == []


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
    assert {wait.id: wait.name for wait in await waiting(looked_at, clock=clock)} == {"other": "", "going": "other"}
    assert store.read == 2


async def test_a_pause_whose_run_has_ended_is_rejected(storage: Storage, clock: FakeClock) -> None:
    """Nobody answers in vain."""
    await kept(storage, "r", Change(status=Status.FAILED))
    pauses = Coordinator(store=storage.store, clock=clock)
    pause = await pauses.request(PauseRequest(identity=ME.with_run("r"), reason=PauseReason.AWAIT_INPUT))
    (settled,) = await settle_orphans(storage, clock=clock)
    assert (settled.wait.id, settled.done) == (pause.token, "rejected")
    assert (await Coordinator(store=storage.store).status(pause.token, who=ME)).decision is PauseDecision.REJECT
    assert await settle_orphans(storage, clock=clock) == []


async def test_a_pause_takes_its_default_at_its_deadline_and_wakes_its_run(storage: Storage, clock: FakeClock) -> None:
    """Although nobody was there at that moment, and the run looks at nothing before a day has passed."""
    await kept(storage, "r", replace(PARKED, wake_at=micros(clock.now() + timedelta(days=1))))
    request = PauseRequest(
        identity=ME.with_run("r"),
        reason=PauseReason.AWAIT_INPUT,
        deadline=clock.now() + timedelta(minutes=1),
        default=PauseDecision.APPROVE,
    )
    pause = await Coordinator(store=storage.store, clock=clock).request(request)
    assert await settle_orphans(storage, clock=clock) == []
    clock.advance(60)
    (overdue,) = [wait for wait in await waiting(storage, clock=clock) if wait.kind is WaitKind.PAUSE]
    assert overdue.is_overdue
    (settled,) = await settle_orphans(storage, clock=clock)
    assert settled.wait.id == pause.token
    assert "approve" in settled.done
    assert [claimed.row.run_id for claimed in await storage.store.claim("w")] == ["r"]


async def test_a_run_that_nothing_wakes_is_looked_at_again(storage: Storage, clock: FakeClock) -> None:
    """It is found, woken once, and ready for the next worker."""
    await kept(storage, "r", PARKED)
    (settled,) = await settle_orphans(storage, clock=clock)
    assert (settled.wait.id, settled.wait.on) == ("r", Party.NOBODY)
    assert [claimed.row.run_id for claimed in await storage.store.claim("w")] == ["r"]
    assert await settle_orphans(storage, clock=clock) == []


async def test_a_task_ends_as_its_run_did(storage: Storage, clock: FakeClock) -> None:
    """A run that failed without a word takes its task along; one that was never begun is cancelled."""
    tasks, close = registry(storage, clock)
    spawn = SpawnRequest(identity=ME.with_run(""), kind=TaskKind.FOREGROUND, query="go")
    begun, never = (await tasks.spawn(spawn)).id, (await tasks.spawn(spawn)).id
    await tasks.mark_running(begun, who=ME)
    await kept(storage, begun, Change(status=Status.FAILED, reason="its code is gone"))
    assert not [wait for wait in await waiting(storage, clock=clock) if wait.id == never and wait.is_orphan]
    clock.advance(GRACE.total_seconds())
    done = {one.wait.id: one.done for one in await settle_orphans(storage, clock=clock)}
    assert done == {begun: "failed", never: "cancelled"}
    task = await tasks.get(begun, who=ME)
    assert task.error is not None
    assert task.error.message == "its code is gone"
    assert (await tasks.get(never, who=ME)).status is TaskStatus.CANCELLED
    await close()


async def test_a_group_that_nobody_can_seal_is_cancelled(storage: Storage, clock: FakeClock) -> None:
    """Its members go on; whoever watches it learns of its end."""
    tasks, close = registry(storage, clock)
    await kept(storage, "boss", ENDED)
    await kept(storage, "lone")
    group = await tasks.resolve_or_create_group(GroupRequest(session=ME, owner_task_id="boss"), who=ME)
    spawn = SpawnRequest(identity=ME.with_run(""), kind=TaskKind.BACKGROUND, query="go", group_id=group.id)
    member = (await tasks.spawn(spawn)).id
    await kept(storage, member)
    watch = await tasks.watch_group(ME, group.id)
    clock.advance(GRACE.total_seconds())
    (settled,) = await settle_orphans(storage, clock=clock)
    assert (settled.wait.kind, settled.wait.id, settled.done) == (WaitKind.GROUP, group.id, "cancelled")
    await tasks.recheck()
    completion = watch.peek()
    assert completion is not None
    assert completion.final_status is GroupStatus.CANCELLED
    assert (await tasks.get(member, who=ME)).status is TaskStatus.PENDING
    await close()
