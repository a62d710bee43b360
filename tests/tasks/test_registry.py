"""The registry in this process keeps the port's contract and what is its own."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from harborage.events import Filter, MemoryEventBus, RedactionFailedError
from harborage.identity import Identity
from harborage.state import MemoryStateStore, StateRecord
from harborage.tasks import (
    GroupRequest,
    GroupStatus,
    InProcessTaskRegistry,
    PatchStatus,
    RegistryClosedError,
    RegistryParts,
    SpawnRequest,
    TaskFailure,
    TaskHandle,
    TaskRegistry,
    TasksConfig,
    TaskStatus,
    open_tasks,
    pending_order,
)
from harborage.tasks.records import (
    ENDED_KIND,
    GROUP_ENDED_KIND,
    PATCH_KIND,
    TASK_KIND,
    decode_group,
    decode_patch,
    decode_task,
)
from harborage.testing.clock import FakeClock, settle
from harborage.testing.events import FailingRedactor
from tests.kit.conformance.tasks import SCENARIOS, Scenario, check, run_conformance

pytestmark = pytest.mark.anyio

SESSION = Identity("tenant", "user", "session")
ME = SESSION.with_run("")


def a_request(**fields: Any) -> SpawnRequest:
    """A request for a background task of the usual session."""
    return SpawnRequest(**{"identity": ME, "kind": "background", **fields})


async def open_inprocess(parts: RegistryParts) -> TaskRegistry:
    """An empty registry through the driver table."""
    return await open_tasks(TasksConfig(), parts)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_it_keeps_the_contract(scenario: Scenario) -> None:
    """Every scenario of the port's suite holds."""
    await check(scenario, open_inprocess)


async def test_the_whole_suite_runs_in_one_call() -> None:
    """A driver's author can run everything without pytest."""
    await run_conformance(open_inprocess)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_it_keeps_the_contract_with_a_store(scenario: Scenario) -> None:
    """Writing through to a store changes nothing that a caller can see."""

    async def open_durable(parts: RegistryParts) -> TaskRegistry:
        return await open_inprocess(msgspec.structs.replace(parts, store=MemoryStateStore()))

    await check(scenario, open_durable)


class SlowStore(MemoryStateStore):
    """A store whose saves wait for the test."""

    def __init__(self) -> None:
        super().__init__()
        self.may_save = asyncio.Event()
        self.may_save.set()

    async def save(self, record: StateRecord) -> None:
        await self.may_save.wait()
        await super().save(record)


async def test_every_change_is_written_through() -> None:
    """Each task, group and patch has its own record, which follows it through its life."""
    store = MemoryStateStore()
    registry = InProcessTaskRegistry(bus=MemoryEventBus(), store=store)
    group = await registry.resolve_or_create_group(GroupRequest(session=SESSION, id="g"), who=ME)
    ids = [(await registry.spawn(a_request(group_id="g", idempotency_key=f"k{n}"))).id for n in range(2)]
    for task_id in ids:
        await registry.mark_running(task_id, who=ME)
    await registry.increment_tool_count(ids[0], who=ME)
    await registry.mark_complete(ids[0], b"1", who=ME)
    await registry.seal_group(group.id, who=ME)
    await registry.cancel(ids[1], who=ME)
    await registry.create_pending_patch(SESSION, "p")
    await registry.apply_patch(SESSION, "p", "accept")
    for task_id in ids:
        kept = decode_task((await store.load(SESSION.with_run(task_id), ENDED_KIND)).data)
        assert kept.task == await registry.get(task_id, who=ME)
        assert len(kept.fingerprint) == 64
    stored = decode_group((await store.load(SESSION.with_run("g"), GROUP_ENDED_KIND)).data)
    assert stored.group.status is GroupStatus.COMPLETED
    assert [status for _, status in stored.outcomes] == [TaskStatus.COMPLETE, TaskStatus.CANCELLED]
    patch = decode_patch((await store.load(SESSION.with_run("p"), PATCH_KIND)).data)
    assert patch.status is PatchStatus.APPLIED


async def test_a_cancelled_caller_leaves_no_half_change() -> None:
    """With a store a caller that is cancelled in the middle is cancelled when the whole change is done and told."""
    store, bus = SlowStore(), MemoryEventBus()
    registry = InProcessTaskRegistry(bus=bus, store=store)
    root = (await registry.spawn(a_request())).id
    child = (await registry.spawn(a_request(parent_task_id=root))).id
    store.may_save.clear()
    caller = asyncio.create_task(registry.cancel(root, "stop", who=ME))
    await settle()
    caller.cancel()
    await settle()
    assert (await registry.get(root, who=ME)).status is TaskStatus.PENDING
    store.may_save.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    statuses = [(await registry.get(task_id, who=ME)).status for task_id in (root, child)]
    assert statuses == [TaskStatus.CANCELLED, TaskStatus.CANCELLED]


async def test_readers_do_not_wait_for_writers() -> None:
    """While a change is being saved the task can be read as it was, and another session goes on."""
    store = SlowStore()
    registry = InProcessTaskRegistry(bus=MemoryEventBus(), store=store)
    task_id = (await registry.spawn(a_request())).id
    store.may_save.clear()
    caller = asyncio.create_task(registry.mark_running(task_id, who=ME))
    await settle()
    assert (await registry.get(task_id, who=ME)).status is TaskStatus.PENDING
    assert len(await registry.list(SESSION)) == 1
    assert await registry.increment_tool_count(task_id, who=ME) == 1
    store.may_save.set()
    task = await caller
    assert (task.status, task.tool_count) == (TaskStatus.RUNNING, 1)
    assert task == await registry.get(task_id, who=ME)


async def test_closing_waits_for_the_change_under_way() -> None:
    """A change that has begun is finished before close returns; one that waits for its turn is refused."""
    store = SlowStore()
    registry = InProcessTaskRegistry(bus=MemoryEventBus(), store=store)
    store.may_save.clear()
    first, second = (asyncio.create_task(registry.spawn(a_request())) for _ in range(2))
    await settle()
    closing = asyncio.create_task(registry.aclose())
    await settle()
    assert not closing.done()
    store.may_save.set()
    await closing
    handle = await first
    with pytest.raises(RegistryClosedError):
        await second
    record = await store.load(SESSION.with_run(handle.id), TASK_KIND)
    assert decode_task(record.data).task.id == handle.id


async def test_the_registry_closes_nothing_it_was_given() -> None:
    """Bus and store are still open after the registry closed."""
    bus, store = MemoryEventBus(), MemoryStateStore()
    registry = InProcessTaskRegistry(bus=bus, store=store)
    await registry.aclose()
    bus.subscribe(Filter.of(SESSION)).cancel()
    await store.delete(ME, TASK_KIND)


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
    """Whoever is woken by a task's end can change the session at once."""
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
