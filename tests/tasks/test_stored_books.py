"""Tasks over a store: what outlives a process, what a crash may cut short, and what stays in memory."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import Any

import pytest

from harborage.events import EventType, MemoryEventBus
from harborage.identity import Identity, Quadruple
from harborage.state import MemoryStateStore, StateError, StateRecord, StateStore
from harborage.tasks import (
    GroupNotFoundError,
    GroupRequest,
    GroupStatus,
    InProcessTaskRegistry,
    NotFoundError,
    RegistryParts,
    SpawnRequest,
    TaskFailure,
    TaskFilter,
    TaskLimits,
    TaskRegistry,
    TasksConfig,
    TaskStatus,
    open_tasks,
)
from harborage.tasks.errors import FollowUpPendingError, StaleChangeError, TaskCorruptError
from harborage.tasks.records import ENDED_KIND, GROUP_ENDED_KIND, OWED_KIND, TASK_KIND
from harborage.testing.clock import FakeClock, settle
from harborage.testing.events import EventRecorder
from tests.kit.conformance.tasks import STORED_SCENARIOS, StoredScenario, check_stored
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

SESSION = Identity("tenant", "user", "session")
ME = SESSION.with_run("")
ENDS = {EventType.TASK_COMPLETED, EventType.TASK_FAILED, EventType.TASK_CANCELLED}


class CrashError(StateError):
    """The store was told to fail."""


class FaultyStore(MemoryStateStore):
    """A store that takes its time, counts, and fails from a given write on as if its process had died."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self._random = random.Random(seed)
        self.writes = 0
        self.sizes: list[int] = []
        self.loads = 0
        self.dies_after: int | None = None
        self.refuses: Callable[[StateRecord], bool] = lambda record: False

    async def save(self, record: StateRecord) -> None:
        await self._write()
        if self.refuses(record):
            raise CrashError("refused")
        self.sizes.append(len(record.data))
        await super().save(record)
        await self._wander()

    async def delete(self, identity: Quadruple, kind: str) -> None:
        await self._write()
        await super().delete(identity, kind)

    async def load(self, identity: Quadruple, kind: str) -> StateRecord:
        self.loads += 1
        await self._wander()
        return await super().load(identity, kind)

    async def _write(self) -> None:
        await self._wander()
        if self.dies_after is not None and self.writes >= self.dies_after:
            raise CrashError("dead")
        self.writes += 1

    async def _wander(self) -> None:
        for _ in range(self._random.randrange(3)):
            await asyncio.sleep(0)


@pytest.fixture
def store() -> FaultyStore:
    """What outlives the registries of a test."""
    return FaultyStore()


@pytest.fixture
def clock() -> FakeClock:
    """A clock that moves by hand."""
    return FakeClock()


@pytest.fixture
def starting(store: FaultyStore, clock: FakeClock) -> Callable[..., InProcessTaskRegistry]:
    """Makes another registry over the store, as a process does when it starts."""
    return lambda **options: InProcessTaskRegistry(
        **{"bus": MemoryEventBus(), "store": store, "clock": clock} | options
    )


Starting = Callable[..., InProcessTaskRegistry]


def a_request(**fields: Any) -> SpawnRequest:
    """A request for a background task of the usual session."""
    return SpawnRequest(**{"identity": ME, "kind": "background", **fields})


async def spawn(registry: InProcessTaskRegistry, **fields: Any) -> str:
    """A pending task's id."""
    return (await registry.spawn(a_request(**fields))).id


async def running(registry: InProcessTaskRegistry, **fields: Any) -> str:
    """A running task's id."""
    task_id = await spawn(registry, **fields)
    await registry.mark_running(task_id, who=ME)
    return task_id


async def open_inprocess(parts: RegistryParts) -> TaskRegistry:
    """A registry through the driver table."""
    return await open_tasks(TasksConfig(), parts)


@pytest.mark.parametrize("scenario", STORED_SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_processes_over_one_store_keep_the_contract(scenario: StoredScenario) -> None:
    """Every scenario of several processes holds, over a quick store and over slow ones."""

    async def quick() -> StateStore:
        return MemoryStateStore()

    await check_stored(scenario, open_inprocess, quick)
    for seed in range(5):

        async def slow(seed: int = seed) -> StateStore:
            return FaultyStore(seed)

        await check_stored(scenario, open_inprocess, slow)


@pytest.mark.parametrize("dies_after", range(10))
async def test_a_spawn_that_a_crash_cut_short_can_be_repeated(
    store: FaultyStore, starting: Starting, dies_after: int
) -> None:
    """Wherever the process died, the same request in the next one gives one task, listed once, with one spawn told."""
    first = starting()
    parent = await spawn(first)
    await first.resolve_or_create_group(GroupRequest(session=SESSION, id="g"), who=ME)
    request = a_request(idempotency_key="k", query="q", parent_task_id=parent, group_id="g")
    store.dies_after = store.writes + dies_after
    with contextlib.suppress(CrashError):
        await first.spawn(request)
    store.dies_after = None
    bus = MemoryEventBus()
    told = EventRecorder(bus)
    second = starting(bus=bus)
    handle = await second.spawn(request)
    assert (await second.spawn(request)).reused
    assert told.types.count("task.spawned") == (0 if handle.reused else 1)
    for registry in (second, starting()):
        listed = [task.id for task in await registry.list(SESSION)]
        assert sorted(listed) == sorted([parent, handle.id])
        assert [task.id for task in await registry.list(SESSION, TaskFilter(parent=parent))] == [handle.id]
        group = await registry.resolve_or_create_group(GroupRequest(session=SESSION, id="g"), who=ME)
        assert group.members == (handle.id,)


async def test_a_key_that_a_crash_left_without_a_task_is_free_for_another_request(
    store: FaultyStore, starting: Starting
) -> None:
    """It stood for nothing that anybody could have seen."""
    store.dies_after = store.writes + 1
    with pytest.raises(CrashError):
        await starting().spawn(a_request(idempotency_key="k", query="one"))
    store.dies_after = None
    second = starting()
    task_id = await spawn(second, idempotency_key="k", query="two")
    assert (await second.get(task_id, who=ME)).query == "two"
    assert (await starting().spawn(a_request(idempotency_key="k", query="two"))).reused


async def test_a_task_that_nobody_may_have_begun_is_told_again(store: FaultyStore, starting: Starting) -> None:
    """The process that spawned it may have died before it began; whoever asks for it again hears of it, once."""
    first = starting()
    request = a_request(idempotency_key="k")
    task_id = (await first.spawn(request)).id
    second, heard = starting(), []
    second.on_spawned(heard.append)
    for _ in range(2):
        assert (await second.spawn(request)).reused
    assert [task.id for task in heard] == [task_id]
    await first.mark_running(task_id, who=ME)
    third = starting()
    third.on_spawned(lambda task: pytest.fail("it has begun"))
    assert (await third.spawn(request)).reused


async def test_a_refused_spawn_gives_its_key_back(store: FaultyStore, starting: Starting) -> None:
    """Nothing happened, so the key may stand for another request at once."""
    registry = starting()
    store.refuses = lambda record: record.kind == TASK_KIND
    with pytest.raises(CrashError):
        await registry.spawn(a_request(idempotency_key="k", query="one"))
    store.refuses = lambda record: False
    assert not (await registry.spawn(a_request(idempotency_key="k", query="two"))).reused
    assert len(await registry.list(SESSION)) == 1


@pytest.mark.parametrize("dies_after", range(12))
async def test_a_cancellation_that_a_crash_cut_short_is_finished(
    store: FaultyStore, starting: Starting, dies_after: int
) -> None:
    """Either nobody was cancelled, or the next change of the session finds that all of them are."""
    first = starting()
    root = await running(first)
    ids = [root]
    for _ in range(3):
        ids.append(await spawn(first, parent_task_id=ids[-1]))
    bystander = await spawn(first)
    store.dies_after = store.writes + dies_after
    with contextlib.suppress(CrashError, FollowUpPendingError):
        await first.cancel(root, "stop", who=ME)
    store.dies_after = None
    second = starting()
    await second.prioritize(bystander, 5, who=ME)
    statuses = {(await second.get(task_id, who=ME)).status for task_id in ids[1:]}
    began = (await second.get(root, who=ME)).status is TaskStatus.CANCELLED
    assert statuses == {TaskStatus.CANCELLED if began else TaskStatus.PENDING}
    assert OWED_KIND not in {kind for _, kind in store._records}
    assert (await second.get(bystander, who=ME)).status is TaskStatus.PENDING


@pytest.mark.parametrize("dies_after", range(12))
async def test_a_group_whose_end_a_crash_cut_short_is_ended(
    store: FaultyStore, starting: Starting, dies_after: int
) -> None:
    """Whoever watches it next finds it ended, as it must be, with every member cancelled."""
    first = starting()
    await first.resolve_or_create_group(GroupRequest(session=SESSION, id="g", fail_fast=True), who=ME)
    bad, *rest = [await running(first, group_id="g") for _ in range(3)]
    store.dies_after = store.writes + dies_after
    with contextlib.suppress(CrashError, FollowUpPendingError):
        await first.mark_failed(bad, TaskFailure("boom"), who=ME)
    store.dies_after = None
    bus = MemoryEventBus()
    told = EventRecorder(bus)
    second = starting(bus=bus)
    has_failed = (await second.get(bad, who=ME)).status is TaskStatus.FAILED
    completion = (await second.watch_group(SESSION, "g")).peek()
    assert (completion is not None) is has_failed
    for task_id in rest:
        status = (await second.get(task_id, who=ME)).status
        assert status is (TaskStatus.CANCELLED if has_failed else TaskStatus.RUNNING)
    assert told.types.count("task.group_cancelled") <= 1
    if completion is not None:
        assert (completion.final_status, completion.reason) == (GroupStatus.CANCELLED, "fail-fast:boom")


async def test_a_sealed_group_whose_last_member_ended_in_a_crash_is_completed(
    store: FaultyStore, starting: Starting
) -> None:
    """The member's end was kept, the group's was not."""
    first = starting()
    await first.resolve_or_create_group(GroupRequest(session=SESSION, id="g"), who=ME)
    task_id = await running(first, group_id="g")
    await first.seal_group("g", who=ME)
    store.refuses = lambda record: record.kind == GROUP_ENDED_KIND
    with pytest.raises(FollowUpPendingError):
        await first.mark_complete(task_id, b"1", who=ME)
    store.refuses = lambda record: False
    completion = (await starting().watch_group(SESSION, "g")).peek()
    assert completion is not None
    assert completion.final_status is GroupStatus.COMPLETED
    assert [member.result for member in completion.members] == [b"1"]


async def test_one_more_task_costs_the_same_however_many_there_are(store: FaultyStore, starting: Starting) -> None:
    """Records stay small and few with a thousand tasks in the session, in one family and in one group."""
    registry = starting(keep=50, limits=TaskLimits(max_children=10_000, max_tree=10_000))
    parent = await running(registry)
    await registry.resolve_or_create_group(GroupRequest(session=SESSION, id="g"), who=ME)
    for number in range(1_000):
        await spawn(registry, parent_task_id=parent, group_id="g", idempotency_key=f"k{number}")
    store.sizes, store.loads, before = [], 0, store.writes
    await spawn(registry, parent_task_id=parent, group_id="g", idempotency_key="last")
    assert store.writes - before <= 6
    assert max(store.sizes) < 4_000
    assert store.loads <= 7
    assert len(await starting().list(SESSION)) == 1_002


async def test_ten_thousand_tasks_of_a_session_are_listed(clock: FakeClock) -> None:
    """Every one of them is found again, and a page of them does not fill the memory."""
    store = MemoryStateStore()
    registry = InProcessTaskRegistry(bus=MemoryEventBus(), store=store, clock=clock, keep=100)
    for _ in range(10_000):
        await spawn(registry)
    second = InProcessTaskRegistry(bus=MemoryEventBus(), store=store, clock=clock, keep=100)
    assert len({task.id for task in await second.list(SESSION)}) == 10_000
    assert not list(second._books)
    ledger = registry._books.find(SESSION)
    assert ledger is not None
    assert len(ledger.tasks) <= 101


async def test_memory_holds_what_was_used_last(store: FaultyStore, starting: Starting) -> None:
    """Sessions of which nothing is left are forgotten whole; what is asked for again comes from the store."""
    registry = starting(keep=10)
    ids = {}
    for number in range(50):
        who = Identity("t", "u", f"s{number}")
        ids[who] = (await registry.spawn(a_request(identity=who.with_run("")))).id
        await registry.mark_running(ids[who], who=who)
        await registry.mark_complete(ids[who], b"1", who=who)
    assert len(list(registry._books)) <= 10
    for who, task_id in ids.items():
        assert (await registry.get(task_id, who=who)).result == b"1"
    assert len(list(registry._books)) <= 10
    assert len(await registry.sessions()) == 50


async def test_what_leaves_memory_takes_its_tool_calls_along(store: FaultyStore, starting: Starting) -> None:
    """Counted calls are kept before the task is forgotten."""
    registry = starting(keep=5)
    task_id = await running(registry)
    for _ in range(3):
        await registry.increment_tool_count(task_id, who=ME)
    for number in range(20):
        await registry.spawn(a_request(identity=Quadruple("t", "u", f"s{number}", "")))
        await settle()
    ledger = registry._books.find(SESSION)
    assert ledger is None or task_id not in ledger.tasks
    assert (await registry.get(task_id, who=ME)).tool_count == 3
    await registry.aclose()


async def test_what_somebody_waits_for_stays(store: FaultyStore, starting: Starting) -> None:
    """However much comes in between, the waiter is woken by the end itself."""
    registry = starting(keep=2)
    task_id = await running(registry)
    waiting = asyncio.create_task(registry.wait_ended(task_id, who=ME))
    await settle()
    for number in range(20):
        await registry.spawn(a_request(identity=Quadruple("t", "u", f"s{number}", "")))
    await registry.mark_complete(task_id, b"1", who=ME)
    assert (await waiting).result == b"1"


async def test_asking_for_nothing_leaves_nothing(store: FaultyStore, starting: Starting) -> None:
    """Unknown tasks, groups and sessions cost no memory."""
    registry = starting()
    for number in range(20):
        who = Identity("t", "u", f"s{number}")
        with pytest.raises(NotFoundError):
            await registry.get("none", who=who)
        with pytest.raises(GroupNotFoundError):
            await registry.watch_group(who, "none")
        with pytest.raises(GroupNotFoundError):
            await registry.seal_group("none", who=who)
        assert await registry.list(who) == []
        assert await registry.acknowledge_background(who, ["none"]) == 0
    assert not list(registry._books)
    assert store.writes == 0


async def test_a_recheck_can_be_asked_for(store: FaultyStore, starting: Starting, clock: FakeClock) -> None:
    """Whoever learns that something happened elsewhere need not wait for the timer."""
    first, second = starting(), starting()
    task_id = await running(first)
    waiting = asyncio.create_task(first.wait_ended(task_id, who=ME))
    await settle()
    await second.mark_complete(task_id, b"1", who=ME)
    await first.recheck()
    assert (await waiting).result == b"1"
    await InProcessTaskRegistry(bus=MemoryEventBus()).recheck()


async def test_a_recheck_that_fails_is_tried_again(
    store: FaultyStore, starting: Starting, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A store that is away for a while does not strand those who wait; with nobody left no timer is armed."""
    first, second = starting(recheck_s=5.0), starting()
    task_id = await running(first)
    waiting = asyncio.create_task(first.wait_ended(task_id, who=ME))
    await settle()
    await second.mark_complete(task_id, b"1", who=ME)
    load, store.load = store.load, _failing  # type: ignore[method-assign]
    await clock.run_for(5.0)
    assert "could not be told" in caplog.text
    assert not waiting.done()
    store.load = load  # type: ignore[method-assign]
    await clock.run_for(5.0)
    await settle()
    assert (await waiting).result == b"1"
    await clock.run_for(5.0)
    assert clock.armed == 0


async def _failing(identity: Quadruple, kind: str) -> StateRecord:
    raise CrashError("away")


async def test_a_change_that_always_comes_too_late_gives_up(store: FaultyStore, starting: Starting) -> None:
    """A store that reports a conflict for ever is not asked for ever; nothing was changed."""
    registry = starting()
    task_id = await running(registry)
    save = store.save

    async def overtaken(record: StateRecord) -> None:
        if record.kind == ENDED_KIND:
            await save(StateRecord(record.event_id, record.identity, "elsewhere", b"{}"))
        await save(record)

    store.save = overtaken  # type: ignore[method-assign]
    with pytest.raises(StaleChangeError):
        await registry.mark_complete(task_id, who=ME)
    store.save = save  # type: ignore[method-assign]
    assert (await registry.get(task_id, who=ME)).status is TaskStatus.RUNNING


@each_row("seed", range(40))
async def test_no_late_writer_undoes_an_end(clock: FakeClock, seed: int) -> None:
    """Many processes change one task at once, again and again: once it has ended it stays as it ended."""
    store = FaultyStore(seed)
    buses = [MemoryEventBus() for _ in range(4)]
    told = [EventRecorder(bus) for bus in buses]
    processes = [InProcessTaskRegistry(bus=bus, store=store, clock=clock) for bus in buses]
    task_id = await running(processes[0])
    calls: list[Any] = [one.prioritize(task_id, n + 10 * i, who=ME) for i, one in enumerate(processes) for n in (1, 2)]
    calls += [processes[0].mark_complete(task_id, b"1", who=ME), processes[1].cancel(task_id, "stop", who=ME)]
    calls += [processes[2].mark_paused(task_id, who=ME), processes[3].mark_failed(task_id, TaskFailure("x"), who=ME)]
    random.Random(seed).shuffle(calls)
    await asyncio.gather(*calls, return_exceptions=True)
    ends = [event for recorder in told for event in recorder.events if event.type in ENDS]
    processes.append(InProcessTaskRegistry(bus=buses[0], store=store, clock=clock))
    seen = {(await one.get(task_id, who=ME)).status for one in processes}
    assert len(ends) == 1
    assert len(seen) == 1
    assert seen.pop().is_terminal


async def test_a_damaged_record_is_named(store: FaultyStore, starting: Starting) -> None:
    """Nothing is guessed, nothing is overwritten, and the others are unaffected."""
    registry = starting()
    bad, good = await spawn(registry), await spawn(registry)
    await store.save(StateRecord("damage", SESSION.with_run(bad), TASK_KIND, b"{"))
    second = starting()
    for call in (second.get(bad, who=ME), second.mark_running(bad, who=ME), second.list(SESSION)):
        with pytest.raises(TaskCorruptError, match=TASK_KIND):
            await call
    assert (await store.load(SESSION.with_run(bad), TASK_KIND)).data == b"{"
    await second.mark_running(good, who=ME)


async def test_a_bus_that_refuses_undoes_the_record(store: FaultyStore, starting: Starting) -> None:
    """What was not told has not happened, in no process."""

    class Refusing(MemoryEventBus):
        refused: EventType | None = None

        async def publish(self, event: Any) -> Any:
            if event.type == self.refused:
                raise StateError("refused")
            return await super().publish(event)

    bus = Refusing()
    registry = starting(bus=bus)
    task_id = await running(registry)
    await registry.increment_tool_count(task_id, who=ME)
    bus.refused = EventType.TASK_COMPLETED
    with pytest.raises(StateError):
        await registry.mark_complete(task_id, b"1", who=ME)
    for process in (registry, starting()):
        assert (await process.get(task_id, who=ME)).status is TaskStatus.RUNNING
    bus.refused = None
    assert (await registry.mark_complete(task_id, b"1", who=ME)).tool_count == 1


async def test_a_store_that_fails_at_close_is_logged(
    store: FaultyStore, starting: Starting, caplog: pytest.LogCaptureFixture
) -> None:
    """Closing goes on; only the count is lost."""
    registry = starting()
    task_id = await running(registry)
    await registry.increment_tool_count(task_id, who=ME)
    store.dies_after = store.writes
    await registry.aclose()
    assert "tool calls counted last are not kept" in caplog.text
