"""The registry keeps the port's contract wherever it keeps its tasks, and what is its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from harborage.events import DurableEventBus, Filter, MemoryEventBus, RedactionFailedError
from harborage.identity import Identity
from harborage.state.errors import DatabaseError
from harborage.store import RunQuery
from harborage.store.memory import MemoryStore
from harborage.tasks import (
    GroupRequest,
    GroupStatus,
    InProcessTaskRegistry,
    SpawnRequest,
    StaleChangeError,
    TaskFailure,
    TaskHandle,
    TaskRegistry,
    TaskStatus,
    pending_order,
)
from harborage.testing.clock import FakeClock, settle
from harborage.testing.events import EventRecorder, FailingRedactor
from tests.kit.conformance import task_races
from tests.kit.conformance.task_bench import in_memory
from tests.kit.conformance.task_stores import RemoteStore
from tests.kit.conformance.tasks import SCENARIOS, STORED_SCENARIOS, Scenario, StoredScenario, check, check_stored

pytestmark = pytest.mark.anyio

SESSION = Identity("tenant", "user", "session")
ME = SESSION.with_run("")


def a_request(**fields: Any) -> SpawnRequest:
    """A request for a background task of the usual session."""
    return SpawnRequest(**{"identity": ME, "kind": "background", **fields})


async def running(registry: InProcessTaskRegistry, **fields: Any) -> str:
    """A running task's id."""
    task_id = (await registry.spawn(a_request(**fields))).id
    await registry.mark_running(task_id, who=ME)
    return task_id


def over(store: MemoryStore) -> tuple[InProcessTaskRegistry, DurableEventBus]:
    """A registry whose events are kept with its tasks."""
    bus = DurableEventBus(store)
    return InProcessTaskRegistry(bus=bus, store=store), bus


PLACES = {
    "memory": in_memory(),
    "recorded": in_memory(is_recorded=True),
    "remote": in_memory(lambda clock: RemoteStore(1, clock=clock), is_recorded=True),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_it_keeps_the_contract(scenario: Scenario, place: str) -> None:
    """Every scenario of the port's suite holds: with events kept beside the tasks or not, and over a slow store."""
    await check(scenario, PLACES[place])


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("scenario", STORED_SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_several_over_one_store_keep_the_contract(scenario: StoredScenario, place: str) -> None:
    """Every scenario of several processes holds."""
    await check_stored(scenario, PLACES[place])


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("scenario", task_races.SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_races_end_well_in_whatever_order(scenario: StoredScenario, seed: int) -> None:
    """Whichever of the callers is faster."""
    await check_stored(scenario, in_memory(lambda clock: RemoteStore(seed, clock=clock), is_recorded=True))


def test_it_is_a_task_registry() -> None:
    """It satisfies the port."""
    assert isinstance(InProcessTaskRegistry(bus=MemoryEventBus()), TaskRegistry)


async def test_a_tree_is_cancelled_in_one_commit() -> None:
    """Whatever its size: a hundred tasks at three levels, their events among it, and the end of their group after."""
    store = RemoteStore()
    registry, bus = over(store)
    group = await registry.resolve_or_create_group(GroupRequest(session=SESSION), who=ME)
    root = await running(registry)
    children = [await running(registry, parent_task_id=root, group_id=group.id) for _ in range(9)]
    for child in children:
        for _ in range(10):
            await registry.spawn(a_request(parent_task_id=child))
    await registry.seal_group(group.id, who=ME)
    store.commits.clear()
    await registry.cancel(root, "stop", who=ME)
    [tree, end] = store.commits
    assert (len(tree.moves), len(tree.events)) == (100, 100)
    assert ([one.status for one in end.groups], len(end.events)) == ([GroupStatus.COMPLETED], 1)  # type: ignore[union-attr]
    assert (await store.count_runs(RunQuery())).by_status["cancelled"] == 100  # type: ignore[index]
    await registry.aclose()
    await bus.aclose()


async def test_a_group_and_its_members_are_cancelled_in_one_commit() -> None:
    """It takes no more members from then on, and its own end, which says how they stood, follows at once."""
    store = RemoteStore()
    registry, bus = over(store)
    group = await registry.resolve_or_create_group(GroupRequest(session=SESSION), who=ME)
    for _ in range(5):
        await running(registry, group_id=group.id)
    store.commits.clear()
    await registry.cancel_group(group.id, who=ME)
    [members, end] = store.commits
    assert (len(members.moves), [one.status for one in members.groups]) == (5, ["ending"])  # type: ignore[union-attr]
    assert [one.status for one in end.groups] == ["cancelled"]  # type: ignore[union-attr]
    await registry.aclose()
    await bus.aclose()


async def test_a_store_that_refuses_changes_nothing() -> None:
    """Every verb raises what the store raised; nothing has happened, nothing was published, and it can be repeated."""
    store = RemoteStore()
    registry, bus = over(store)
    recorder = EventRecorder(bus)
    group = await registry.resolve_or_create_group(GroupRequest(session=SESSION, id="g"), who=ME)
    task_id = await running(registry, group_id=group.id)
    await registry.create_pending_patch(SESSION, "p")
    tasks, events = await registry.read(SESSION), len(recorder.events)
    verbs: list[Callable[[], Awaitable[object]]] = [
        lambda: registry.spawn(a_request(idempotency_key="k", group_id="g", parent_task_id=task_id)),
        lambda: registry.mark_paused(task_id, who=ME),
        lambda: registry.prioritize(task_id, 5, who=ME),
        lambda: registry.increment_tool_count(task_id, who=ME),
        lambda: registry.seal_group("g", who=ME),
        lambda: registry.apply_patch(SESSION, "p", "accept"),
        lambda: registry.cancel(task_id, who=ME),
        lambda: registry.cancel_group("g", who=ME),
        lambda: registry.mark_failed(task_id, TaskFailure("boom"), who=ME),
    ]
    for verb in verbs:
        store.fails = 1
        with pytest.raises(DatabaseError):
            await verb()
    assert await registry.read(SESSION) == tasks
    assert (await registry.group("g", who=ME)).status is GroupStatus.OPEN
    assert len(recorder.events) == events
    for verb in verbs[:6]:
        await verb()
    recorder.cancel()
    await registry.aclose()
    await bus.aclose()


@pytest.mark.parametrize("turns", range(10))
async def test_a_cancelled_caller_leaves_no_half_change(turns: int) -> None:
    """Wherever it is cancelled, the whole tree was, or none of it."""
    registry, bus = over(RemoteStore(turns))
    root = await running(registry)
    ids = [root, *[(await registry.spawn(a_request(parent_task_id=root))).id for _ in range(3)]]
    caller = asyncio.create_task(registry.cancel(root, "stop", who=ME))
    await settle(turns)
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    tasks = [await registry.get(task_id, who=ME) for task_id in ids]
    assert len({task.status is TaskStatus.CANCELLED for task in tasks}) == 1
    await registry.aclose()
    await bus.aclose()


async def test_a_change_that_always_comes_too_late_gives_up() -> None:
    """A task that moves whenever it was read is not asked for for ever; nothing was changed."""

    class Restless(RemoteStore):
        is_restless = False

        async def runs(self, query: RunQuery) -> Any:
            page = await super().runs(query)
            if self.is_restless and page.rows:
                other = {"running": "paused", "paused": "running"}
                rows = [replace(row, status=other[row.status]) for row in page.rows]
                return page._replace(rows=rows)
            return page

    store = Restless()
    registry, bus = over(store)
    task_id = await running(registry)
    store.is_restless = True
    with pytest.raises(StaleChangeError, match=task_id):
        await registry.mark_resumed(task_id, who=ME)
    store.is_restless = False
    assert (await registry.get(task_id, who=ME)).status is TaskStatus.RUNNING
    await registry.aclose()
    await bus.aclose()


async def test_the_registry_closes_nothing_it_was_given() -> None:
    """Bus and store are still open after the registry closed."""
    bus, store = MemoryEventBus(), MemoryStore()
    registry = InProcessTaskRegistry(bus=bus, store=store)
    await registry.aclose()
    bus.subscribe(Filter.of(SESSION)).cancel()
    assert (await store.runs(RunQuery())).rows == []


async def test_a_failing_redactor_fails_the_operation() -> None:
    """A task that cannot be redacted is not spawned, and one whose result cannot be is not completed."""
    registry = InProcessTaskRegistry(bus=MemoryEventBus(), redactor=FailingRedactor())
    with pytest.raises(RedactionFailedError):
        await registry.spawn(a_request(query="text"))
    assert await registry.read(SESSION) == []
    task_id = (await registry.spawn(a_request())).id
    await registry.mark_running(task_id, who=ME)
    with pytest.raises(RedactionFailedError):
        await registry.mark_complete(task_id, b"1", who=ME)
    with pytest.raises(RedactionFailedError):
        await registry.mark_failed(task_id, TaskFailure("code", "message"), who=ME)
    assert (await registry.get(task_id, who=ME)).status is TaskStatus.RUNNING


async def test_pending_tasks_come_out_by_priority() -> None:
    """What a host reads is ordered by urgency, and a new priority moves a task to the front."""
    clock = FakeClock()
    registry = InProcessTaskRegistry(bus=MemoryEventBus(), clock=clock)
    ids = []
    for priority in (0, 5, 0, -5):
        ids.append((await registry.spawn(a_request(priority=priority))).id)
        clock.advance(1)
    low, high, later, last = ids
    assert [task.id for task in pending_order(await registry.read(SESSION))] == [high, low, later, last]
    await registry.prioritize(last, 9, who=ME)
    await registry.mark_running(high, who=ME)
    assert [task.id for task in pending_order(await registry.read(SESSION))] == [last, low, later]


async def test_sessions_are_those_with_tasks() -> None:
    """A session that only asked for something it did not get is not listed."""
    registry = InProcessTaskRegistry(bus=MemoryEventBus())
    registry.register_retain_turn_waiter(Identity("t", "u", "idle")).cancel()
    await registry.spawn(a_request())
    assert await registry.sessions() == [SESSION]


async def test_a_change_may_follow_from_what_a_waiter_does() -> None:
    """A caller that is woken by a task's end can change the session at once."""
    registry = InProcessTaskRegistry(bus=MemoryEventBus())
    task_id = (await registry.spawn(a_request())).id

    async def follow() -> TaskHandle:
        await registry.wait_ended(task_id, who=ME)
        return await registry.spawn(a_request(parent_task_id=task_id))

    following = asyncio.create_task(follow())
    await settle()
    await registry.cancel(task_id, who=ME)
    handle = await following
    assert (await registry.get(handle.id, who=ME)).parent_task_id == task_id
