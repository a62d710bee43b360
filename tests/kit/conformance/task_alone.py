"""What every task registry must do when a task is spawned with a group of its own; a part of the suite in `tasks`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from harborage.events import EventType, TaskGroupCreatedPayload, TaskGroupSealedPayload, unix_ns
from harborage.store import GroupQuery, RunQuery
from harborage.tasks import (
    GroupNotFoundError,
    GroupRequest,
    GroupSealedError,
    GroupStatus,
    IdempotencyConflictError,
    InvalidRequestError,
    TaskHandle,
)
from harborage.testing.conformance.checks import expect_equal, expect_raises
from tests.kit.conformance.task_bench import ME, OTHERS, SESSION, Bench, PublishRefusedError

Scenario: TypeAlias = Callable[[Bench], Awaitable[None]]

PUBLISHED = (EventType.TASK_GROUP_CREATED, EventType.TASK_SPAWNED, EventType.TASK_GROUP_SEALED)
CALLERS = 16


async def alone(bench: Bench, group_id: str = "own", *, is_awaited: bool = False, **fields: Any) -> TaskHandle:
    """Spawn a task with a group of its own."""
    parent = fields.get("parent_task_id") or ""
    group = GroupRequest(session=SESSION, id=group_id, owner_task_id=parent, retain_turn=True, description="Bearer abc")
    return await bench.registry.spawn_alone(bench.request(group_id=group_id, **fields), group, is_awaited=is_awaited)


async def a_task_and_its_group_are_one_change(bench: Bench) -> None:
    """The group is sealed with that task, its parent waits for it, and the events say so in their order."""
    parent = await bench.running()
    before = len(bench.published(*PUBLISHED))
    handle = await alone(bench, is_awaited=True, parent_task_id=parent)
    group = await bench.registry.group("own", who=ME)
    expect_equal((group.status, group.members), (GroupStatus.SEALED, (handle.id,)), "the group")
    expect_equal((group.owner_task_id, group.retain_turn, group.description), (parent, True, "Bearer ***"), "as asked")
    expect_equal(group.sealed_at, bench.clock.now(), "when it was sealed")
    events = bench.published(*PUBLISHED)[before:]
    expect_equal([event.type for event in events], [*PUBLISHED], "what is published")
    expect_equal(events[0].payload, TaskGroupCreatedPayload("own", parent, True, False, "Bearer ***"), "the group's")
    sealed = TaskGroupSealedPayload("own", (handle.id,), unix_ns(bench.clock.now()))
    expect_equal(events[2].payload, sealed, "the seal's")
    expect_equal([event.identity for event in events], [ME] * 3, "who they are about")
    rows = (await bench.store.runs(RunQuery(run_ids=(parent,)))).rows
    expect_equal([row.awaits for row in rows], ["own"], "what its parent waits for")
    await expect_raises(GroupSealedError, bench.spawn(group_id="own"), "a second member")
    await bench.complete(handle.id)
    expect_equal(await bench.group_status("own"), GroupStatus.COMPLETED, "the group of a task that has ended")


async def the_same_request_finds_its_task_and_group(bench: Bench) -> None:
    """Again, or many at once: one task, one group, each published once; another request under the key is a conflict."""
    calls = (alone(bench, idempotency_key="k", query="q") for _ in range(CALLERS))
    handles = await asyncio.gather(*calls)
    expect_equal(len({handle.id for handle in handles}), 1, "tasks")
    expect_equal(sorted(handle.reused for handle in handles), [False] + [True] * (CALLERS - 1), "those that found it")
    group = await bench.registry.group("own", who=ME)
    expect_equal((group.status, len(group.members)), (GroupStatus.SEALED, 1), "the group")
    expect_equal([bench.count(one) for one in PUBLISHED], [1, 1, 1], "events")
    other = alone(bench, idempotency_key="k", query="another")
    await expect_raises(IdempotencyConflictError, other, "another request")
    await bench.complete(handles[0].id)
    again = await alone(bench, idempotency_key="k", query="q")
    expect_equal(again, TaskHandle(handles[0].id, True), "the task that has ended by now")
    expect_equal(await bench.group_status("own"), GroupStatus.COMPLETED, "its group")


async def a_group_that_was_opened_before_is_sealed_with_its_task(bench: Bench) -> None:
    """As an earlier version, which made one after the other, may have left it: with the task, or without it."""
    for number, has_task in enumerate((False, True)):
        group = await bench.group(id=f"g{number}")
        key = f"k{number}"
        known = await bench.spawn(group_id=group.id, idempotency_key=key) if has_task else ""
        handle = await alone(bench, group.id, idempotency_key=key)
        expect_equal(handle, TaskHandle(known or handle.id, has_task), "the task")
        found = await bench.registry.group(group.id, who=ME)
        expect_equal((found.status, found.members), (GroupStatus.SEALED, (handle.id,)), "its group")
    expect_equal([bench.count(one) for one in PUBLISHED], [2, 2, 2], "events")
    await expect_raises(GroupSealedError, alone(bench, "g1"), "another task of that group")


async def what_is_refused_leaves_nothing(bench: Bench) -> None:
    """Neither a task nor a group, nor a wait: for a wrong request, or a bus that refuses one of the events."""
    parent = await bench.running()
    foreign = GroupRequest(session=OTHERS[0], id="own")
    wrong = bench.registry.spawn_alone(bench.request(group_id="own"), foreign)
    await expect_raises(InvalidRequestError, wrong, "a group of another session")
    unnamed = bench.registry.spawn_alone(bench.request(), GroupRequest(session=SESSION, id="own"))
    await expect_raises(InvalidRequestError, unnamed, "a group that the request does not name")
    await expect_raises(InvalidRequestError, alone(bench, kind="odd"), "a kind that nobody knows")
    for one in PUBLISHED:
        bench.bus.refuse(one)
        call = alone(bench, is_awaited=True, parent_task_id=parent)
        await expect_raises(PublishRefusedError, call, f"with a bus that refuses {one}")
        bench.bus.accept()
    await expect_raises(GroupNotFoundError, bench.registry.group("own", who=ME), "the group")
    expect_equal((await bench.store.groups(GroupQuery())).rows, [], "groups")
    expect_equal([task.id for task in await bench.registry.list(SESSION)], [parent], "tasks")
    rows = (await bench.store.runs(RunQuery(run_ids=(parent,)))).rows
    expect_equal([row.awaits for row in rows], [""], "what the parent waits for")


async def a_parent_that_has_ended_waits_for_nothing(bench: Bench) -> None:
    """Nor one that is no task; the child is spawned all the same."""
    ended = await bench.running()
    await bench.complete(ended)
    for number, parent in enumerate((ended, "no-task")):
        handle = await alone(bench, f"g{number}", is_awaited=True, parent_task_id=parent)
        expect_equal((await bench.registry.get(handle.id, who=ME)).parent_task_id, parent, "its parent")
        expect_equal(await bench.group_status(f"g{number}"), GroupStatus.SEALED, "its group")
    rows = (await bench.store.runs(RunQuery(run_ids=(ended,)))).rows
    expect_equal([row.awaits for row in rows], [""], "what the parent waits for")


SCENARIOS: tuple[Scenario, ...] = (
    a_task_and_its_group_are_one_change,
    the_same_request_finds_its_task_and_group,
    a_group_that_was_opened_before_is_sealed_with_its_task,
    what_is_refused_leaves_nothing,
    a_parent_that_has_ended_waits_for_nothing,
)
