"""What every task registry must do with tasks that exist; a part of the suite in `tasks`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import TypeAlias

from harborage.events import (
    EventType,
    TaskCancelledPayload,
    TaskFailedPayload,
    TaskPrioritisedPayload,
    TaskStartedPayload,
)
from harborage.identity import Identity, IdentityRequiredError, Quadruple, bound
from harborage.tasks import (
    AcknowledgePublishError,
    InvalidTransitionError,
    Propagate,
    RegistryClosedError,
    SpawnRequest,
    SpawnToolRequest,
    TaskFailure,
    TaskFilter,
    TaskKind,
    TaskNotFoundError,
    TaskStatus,
)
from harborage.testing.clock import settle
from harborage.testing.conformance.checks import expect, expect_equal, expect_raises
from tests.kit.conformance.task_bench import (
    ME,
    OTHERS,
    SESSION,
    Bench,
    PublishRefusedError,
)

Scenario: TypeAlias = Callable[[Bench], Awaitable[None]]

CALLERS = 128
FAILURE = TaskFailure("boom", "it broke")


async def the_way_through_a_life(bench: Bench) -> None:
    """Pending, running, paused, resumed, complete: each step is published with what it needs."""
    task_id = await bench.spawn()
    await bench.registry.mark_running(task_id, who=ME)
    await bench.registry.mark_paused(task_id, who=ME)
    await bench.registry.mark_resumed(task_id, who=ME)
    await bench.registry.mark_paused(task_id, who=ME)
    await bench.registry.mark_running(task_id, who=ME)
    task = await bench.registry.mark_complete(task_id, b"1", who=ME)
    expect_equal((task.status, task.result), (TaskStatus.COMPLETE, b"1"), "the ended task")
    wanted = ["spawned", "started", "paused", "resumed", "paused", "started", "completed"]
    expect_equal(bench.events.types, [f"task.{word}" for word in wanted], "events")
    started = [payload.prior_state for payload in bench.events.payloads(TaskStartedPayload)]
    expect_equal(started, ["pending", "paused"], "prior states")


async def steps_that_are_not_in_the_table_are_refused(bench: Bench) -> None:
    """From each status exactly the steps of the state machine are possible; the others change and publish nothing."""
    allowed = {
        "pending": {"mark_running", "cancel"},
        "running": {"mark_paused", "mark_complete", "mark_failed", "cancel"},
        "paused": {"mark_running", "mark_resumed", "cancel"},
        "complete": set(),
        "failed": set(),
        "cancelled": set(),
    }
    for status, possible in allowed.items():
        for name in ("mark_running", "mark_paused", "mark_resumed", "mark_complete", "mark_failed"):
            task_id = await _task_in(bench, status)
            step = _steps(bench, task_id)[name]
            before = len(bench.events.events)
            if name in possible:
                await step()
                expect_equal(len(bench.events.events), before + 1, f"events of {name} from {status}")
            else:
                await expect_raises(InvalidTransitionError, step(), f"{name} from {status}")
                expect_equal(await bench.status(task_id), status, "the status after a refused step")
                expect_equal(len(bench.events.events), before, f"events of a refused {name} from {status}")
        cancelled = await bench.registry.cancel(await _task_in(bench, status), "why", who=ME)
        expect_equal(cancelled, "cancel" in possible, f"cancel from {status}")


async def a_failure_has_its_code(bench: Bench) -> None:
    """task.failed carries the code."""
    task_id = await bench.running()
    await bench.fail(task_id, "no_path")
    expect_equal(bench.events.payloads(TaskFailedPayload), [TaskFailedPayload(task_id, "no_path")], "task.failed")


async def foreign_tasks_are_not_found(bench: Bench) -> None:
    """Every verb that takes an id finds only the caller's own session's tasks."""
    task_id = await bench.running()
    bench.events.clear()
    for other in OTHERS:
        for name, call in _verbs(bench, task_id, other):
            await expect_raises(TaskNotFoundError, call, f"{name} by {other}")
        expect_equal(await bench.registry.list(other), [], "a foreign list")
        expect_equal(await bench.registry.acknowledge_background(other, [task_id]), 0, "a foreign acknowledgement")
    for name, call in _verbs(bench, "no-such-task", SESSION):
        await expect_raises(TaskNotFoundError, call, f"{name} of an unknown task")
    expect_equal(await bench.status(task_id), TaskStatus.RUNNING, "the task")
    expect_equal(bench.events.types, [], "events")


async def verbs_need_an_identity(bench: Bench) -> None:
    """Without `who` and without an ambient identity a verb is refused; the ambient one is enough."""
    task_id = await bench.running()
    for name, call in _verbs(bench, task_id, None):
        await expect_raises(IdentityRequiredError, call, f"{name} by nobody")
    await expect_raises(IdentityRequiredError, bench.registry.list(Identity("t", "", "s")), "list for half an identity")
    with bound(SESSION):
        expect_equal((await bench.registry.get(task_id)).id, task_id, "an ambient get")
    with bound(OTHERS[0]):
        await expect_raises(TaskNotFoundError, bench.registry.get(task_id), "a foreign ambient get")


async def lists_are_filtered(bench: Bench) -> None:
    """A list holds short rows of the session's tasks that pass every given filter."""
    parent = await bench.running(priority=5)
    child = await bench.spawn(kind="foreground", parent_task_id=parent)
    await bench.spawn(OTHERS[0].with_run(""))
    for wish, wanted in (
        (TaskFilter(), {parent, child}),
        (TaskFilter(status=TaskStatus.RUNNING), {parent}),
        (TaskFilter(kind=TaskKind.FOREGROUND), {child}),
        (TaskFilter(parent=parent), {child}),
        (TaskFilter(parent=parent, status=TaskStatus.RUNNING), set()),
    ):
        rows = await bench.registry.list(SESSION, wish)
        expect_equal({row.id for row in rows}, wanted, f"the list for {wish}")
    [row] = await bench.registry.list(SESSION, TaskFilter(status=TaskStatus.RUNNING))
    expect_equal((row.priority, row.kind), (5, TaskKind.BACKGROUND), "a row")


async def cancelling_takes_the_tree_along(bench: Bench) -> None:
    """A cascading cancel goes breadth first over all descendants, whatever their own policy, and names the root."""
    root = await bench.running()
    a, b = [await bench.running(parent_task_id=root, propagate_on_cancel=Propagate.ISOLATE) for _ in range(2)]
    deep = await bench.spawn(parent_task_id=a)
    expect_equal(await bench.registry.cancel(root, "stop", who=ME), True, "cancel")
    published = [(one.task_id, one.reason, one.cascaded) for one in bench.events.payloads(TaskCancelledPayload)]
    wanted = [(root, "stop", False), (a, "stop", True), (b, "stop", True), (deep, "stop", True)]
    expect_equal(published, wanted, "task.cancelled")
    expect_equal(await bench.registry.cancel(root, "again", who=ME), False, "a second cancel")
    expect_equal(bench.count(EventType.TASK_CANCELLED), 4, "task.cancelled events")


async def a_cascade_is_published_before_the_groups_it_ends(bench: Bench) -> None:
    """When the cancelled task was its group's last, its descendants' events still come before the group's."""
    group = await bench.group()
    root = await bench.running(group_id=group.id)
    await bench.running(parent_task_id=root)
    await bench.registry.seal_group(group.id, who=ME)
    bench.events.clear()
    await bench.registry.cancel(root, who=ME)
    cancelled = EventType.TASK_CANCELLED
    expect_equal(bench.events.types, [cancelled, cancelled, EventType.TASK_GROUP_RESOLVED], "events")


async def an_isolated_task_is_cancelled_alone(bench: Bench) -> None:
    """A parent whose policy is to isolate leaves its children running."""
    parent = await bench.running(propagate_on_cancel="isolate")
    child = await bench.running(parent_task_id=parent)
    await bench.registry.cancel(parent, who=ME)
    expect_equal(await bench.status(child), TaskStatus.RUNNING, "the child")


async def an_ended_descendant_ends_the_walk(bench: Bench) -> None:
    """What lives below a descendant that had ended is not touched."""
    root = await bench.running()
    middle = await bench.running(parent_task_id=root)
    leaf = await bench.running(parent_task_id=middle)
    await bench.complete(middle)
    await bench.registry.cancel(root, who=ME)
    statuses = [await bench.status(task_id) for task_id in (root, middle, leaf)]
    expect_equal(statuses, [TaskStatus.CANCELLED, TaskStatus.COMPLETE, TaskStatus.RUNNING], "the chain")


async def a_child_in_another_session_is_not_reached(bench: Bench) -> None:
    """A foreign task as parent gets no child."""
    root = await bench.running()
    strays = [await bench.spawn(other.with_run(""), parent_task_id=root) for other in OTHERS]
    await bench.registry.cancel(root, who=ME)
    for stray, other in zip(strays, OTHERS, strict=True):
        expect_equal((await bench.registry.get(stray, who=other)).status, TaskStatus.PENDING, "a stray child")


async def priorities_change_and_are_published(bench: Bench) -> None:
    """A new priority is published with the old one, also for an ended task; the same one changes nothing."""
    task_id = await bench.running(priority=1)
    await bench.complete(task_id)
    changed = [await bench.registry.prioritize(task_id, n, who=ME) for n in (1, 9, 9)]
    expect_equal(changed, [False, True, False], "prioritize")
    payloads = bench.events.payloads(TaskPrioritisedPayload)
    expect_equal(payloads, [TaskPrioritisedPayload(task_id, 1, 9)], "task.prioritised")
    expect_equal((await bench.registry.get(task_id, who=ME)).priority, 9, "the priority")


async def tool_calls_are_counted_silently(bench: Bench) -> None:
    """The tool count goes up in any state, survives the task's changes, and is not published."""
    task_id = await bench.spawn()
    before = len(bench.events.events)
    counts = [await bench.registry.increment_tool_count(task_id, who=ME)]
    expect_equal(len(bench.events.events), before, "events of counting")
    await bench.complete(task_id)
    counts.append(await bench.registry.increment_tool_count(task_id, who=ME))
    expect_equal(counts, [1, 2], "the counts")
    expect_equal((await bench.registry.get(task_id, who=ME)).tool_count, 2, "the task's count")


async def waiting_wakes_by_the_end(bench: Bench) -> None:
    """All who wait for a task get it as it ended; for an ended one the wait is over at once."""
    task_id = await bench.running()
    async with asyncio.TaskGroup() as crew:
        waiting = [crew.create_task(bench.registry.wait_ended(task_id, who=ME)) for _ in range(3)]
        await settle()
        expect(not any(task.done() for task in waiting), "nobody is woken early")
        waiting.pop().cancel()
        await bench.complete(task_id, b"1")
    expect_equal({task.result().result for task in waiting}, {b"1"}, "what the waiters got")
    expect_equal((await bench.registry.wait_ended(task_id, who=ME)).status, TaskStatus.COMPLETE, "a late wait")


async def listeners_get_every_end_once(bench: Bench) -> None:
    """A listener gets each ended task once, after its event, however it ended.

    A listener that fails loses nothing for the others.
    """
    received: list[tuple[Quadruple, int]] = []
    ends = (EventType.TASK_COMPLETED, EventType.TASK_FAILED, EventType.TASK_CANCELLED)
    bench.registry.on_ended(_fails)
    unlisten = bench.registry.on_ended(lambda who: received.append((who, bench.count(*ends))))
    done, bad, root = [await bench.running() for _ in range(3)]
    child = await bench.running(parent_task_id=root)
    group, [member] = await bench.group_of(1)
    expect_equal(received, [], "what was heard while all lived")
    await bench.complete(done)
    await bench.registry.prioritize(done, 7, who=ME)
    await bench.fail(bad)
    await bench.registry.cancel(root, who=ME)
    await bench.registry.cancel_group(group.id, who=ME)
    wanted = [
        (SESSION.with_run(task_id), published) for task_id, published in ((done, 1), (bad, 2), (root, 4), (child, 4))
    ]
    expect_equal(received, [*wanted, (SESSION.with_run(member), 5)], "what was heard")
    unlisten()
    await bench.complete(await bench.spawn())
    expect_equal(len(received), 5, "what was heard after un-listening")


async def background_tasks_are_acknowledged_once(bench: Bench) -> None:
    """Only ended background tasks of the session that were not acknowledged yet count; one event each."""
    done, live, front = await bench.running(), await bench.running(), await bench.running(kind="foreground")
    for task_id in (done, front):
        await bench.complete(task_id)
    asked = [done, done, live, front, "unknown"]
    counts = [await bench.registry.acknowledge_background(SESSION, asked) for _ in range(2)]
    expect_equal(counts, [1, 0], "acknowledged")
    expect_equal(bench.count(EventType.TASK_BACKGROUND_ACKNOWLEDGED), 1, "events")
    expect((await bench.registry.get(done, who=ME)).background_acknowledged, "the task is marked")


async def an_unpublished_acknowledgement_stands(bench: Bench) -> None:
    """When events of an acknowledgement cannot be published the errors are joined and raised; the count stays."""
    ids = [await bench.running() for _ in range(2)]
    for task_id in ids:
        await bench.complete(task_id)
    bench.bus.refuse()
    try:
        await bench.registry.acknowledge_background(SESSION, ids)
    except AcknowledgePublishError as error:
        expect_equal((error.count, len(error.errors)), (2, 2), "count and errors")
    else:
        expect(False, "the failure is raised")
    bench.bus.accept()
    expect_equal(await bench.registry.acknowledge_background(SESSION, ids), 0, "a second acknowledgement")


async def a_refused_event_changes_nothing(bench: Bench) -> None:
    """When its event cannot be published a verb fails, and what it asked for has not happened: it can be repeated."""
    task_id = await bench.running()
    received: list[Quadruple] = []
    bench.registry.on_ended(received.append)
    task = await bench.registry.get(task_id, who=ME)
    spawn = partial(bench.registry.spawn, bench.request(idempotency_key="k"))
    bench.bus.refuse()
    changes: dict[str, Callable[[], Awaitable[object]]] = {**_steps(bench, task_id), "spawn": spawn}
    for name in ("mark_paused", "mark_complete", "mark_failed", "cancel", "prioritize", "spawn"):
        await expect_raises(PublishRefusedError, changes[name](), f"{name} on a bus that refuses")
    expect_equal(await bench.registry.get(task_id, who=ME), task, "the task")
    expect_equal(len(await bench.registry.list(SESSION)), 1, "tasks")
    expect_equal(received, [], "what listeners heard")
    bench.bus.accept()
    handle = await bench.registry.spawn(bench.request(idempotency_key="k"))
    expect_equal(handle.reused, False, "the repeated spawn")
    await bench.complete(task_id)


async def a_cascade_happens_whole_or_not_at_all(bench: Bench) -> None:
    """When one event of a tree that is cancelled cannot be published no task is cancelled; the call can be repeated."""
    root = await bench.running()
    children = [await bench.running(parent_task_id=root) for _ in range(3)]
    bench.bus.refuse_after(2)
    await expect_raises(PublishRefusedError, bench.registry.cancel(root, "stop", who=ME), "a refused cascade")
    statuses = {await bench.status(task_id) for task_id in (root, *children)}
    expect_equal(statuses, {TaskStatus.RUNNING}, "the tree after it was refused")
    bench.bus.accept()
    bench.events.clear()
    expect_equal(await bench.registry.cancel(root, "stop", who=ME), True, "the cancel repeated")
    published = [one.task_id for one in bench.events.payloads(TaskCancelledPayload)]
    expect_equal(published, [root, *children], "task.cancelled")
    expect_equal({await bench.status(task_id) for task_id in published}, {TaskStatus.CANCELLED}, "the tree in the end")


async def one_terminal_event_a_task(bench: Bench) -> None:
    """When many callers end one task at once, one of them does, and one terminal event goes out."""
    task_id = await bench.running()
    steps = _steps(bench, task_id)
    ends = [steps[name]() for name in ("mark_complete", "mark_failed", "cancel") * 3]
    results = await asyncio.gather(*ends, return_exceptions=True)
    ended = [one for one in results if one is not False and not isinstance(one, InvalidTransitionError)]
    expect_equal(len(ended), 1, f"callers who ended the task, of {results}")
    ends_told = bench.count(EventType.TASK_COMPLETED, EventType.TASK_FAILED, EventType.TASK_CANCELLED)
    expect_equal(ends_told, 1, "terminal events")


async def many_sessions_at_once_do_not_meet(bench: Bench) -> None:
    """Callers of many sessions work at once on one registry, each with its own tasks only."""

    async def work(index: int) -> None:
        who = Identity("tenant", f"user-{index % 8}", f"session-{index}")
        ids = [await bench.spawn(who.with_run(""), query=f"q-{index}") for _ in range(3)]
        for task_id in ids:
            await bench.registry.mark_running(task_id, who=who)
            await bench.registry.mark_complete(task_id, str(index).encode(), who=who)
        got = [await bench.registry.get(task_id, who=who) for task_id in ids]
        expect_equal({(task.query, task.result) for task in got}, {(f"q-{index}", str(index).encode())}, "own tasks")
        expect_equal({row.id for row in await bench.registry.list(who)}, set(ids), "own list")

    async with asyncio.TaskGroup() as crew:
        for index in range(CALLERS):
            crew.create_task(work(index))


async def ids_are_in_the_order_of_spawning_in_time(bench: Bench) -> None:
    """The times of tasks spawned one after the other go up with the clock."""
    times = []
    for _ in range(3):
        task = await bench.registry.get(await bench.spawn(), who=ME)
        times.append(task.created_at)
        bench.clock.advance(1)
    expect_equal([b - a for a, b in pairwise(times)], [1_000_000_000] * 2, "distances in nanoseconds")


async def a_closed_registry_says_so(bench: Bench) -> None:
    """After close every verb is refused before anything else is checked, and closing again is fine."""
    task_id = await bench.running()
    async with asyncio.TaskGroup() as crew:
        wait = bench.registry.wait_ended(task_id, who=ME)
        crew.create_task(expect_raises(RegistryClosedError, wait, "a wait when the registry closes"))
        await settle()
        await bench.registry.aclose()
        await bench.registry.aclose()
    for name, call in _verbs(bench, task_id, None):
        await expect_raises(RegistryClosedError, call, f"{name} after close")
    nobody = Identity("", "", "")
    later: dict[str, Awaitable[object]] = {
        "spawn": bench.registry.spawn(SpawnRequest(identity=Quadruple())),
        "spawn_tool": bench.registry.spawn_tool(SpawnToolRequest(identity=Quadruple())),
        "list": bench.registry.list(nobody),
        "acknowledge_background": bench.registry.acknowledge_background(nobody, []),
    }
    for name, call in later.items():
        await expect_raises(RegistryClosedError, call, f"{name} after close")


def _fails(who: Quadruple) -> None:
    raise RuntimeError(f"a listener that cannot cope with {who.run_id}")


def _steps(bench: Bench, task_id: str) -> dict[str, Callable[[], Awaitable[object]]]:
    registry = bench.registry
    return {
        "mark_running": lambda: registry.mark_running(task_id, who=ME),
        "mark_paused": lambda: registry.mark_paused(task_id, who=ME),
        "mark_resumed": lambda: registry.mark_resumed(task_id, who=ME),
        "mark_complete": lambda: registry.mark_complete(task_id, b"1", who=ME),
        "mark_failed": lambda: registry.mark_failed(task_id, FAILURE, who=ME),
        "cancel": lambda: registry.cancel(task_id, "why", who=ME),
        "prioritize": lambda: registry.prioritize(task_id, 99, who=ME),
    }


def _verbs(bench: Bench, task_id: str, who: Identity | None) -> Iterator[tuple[str, Awaitable[object]]]:
    registry = bench.registry
    yield "get", registry.get(task_id, who=who)
    yield "cancel", registry.cancel(task_id, "why", who=who)
    yield "prioritize", registry.prioritize(task_id, 99, who=who)
    yield "increment_tool_count", registry.increment_tool_count(task_id, who=who)
    yield "mark_running", registry.mark_running(task_id, who=who)
    yield "mark_paused", registry.mark_paused(task_id, who=who)
    yield "mark_resumed", registry.mark_resumed(task_id, who=who)
    yield "mark_complete", registry.mark_complete(task_id, who=who)
    yield "mark_failed", registry.mark_failed(task_id, FAILURE, who=who)
    yield "wait_ended", registry.wait_ended(task_id, who=who)


async def _task_in(bench: Bench, status: str) -> str:
    task_id = await bench.spawn()
    if status == "pending":
        return task_id
    steps = _steps(bench, task_id)
    await steps["mark_running"]()
    last = {"paused": "mark_paused", "complete": "mark_complete", "failed": "mark_failed", "cancelled": "cancel"}
    if status in last:
        await steps[last[status]]()
    return task_id


SCENARIOS: tuple[Scenario, ...] = (
    the_way_through_a_life,
    steps_that_are_not_in_the_table_are_refused,
    a_failure_has_its_code,
    foreign_tasks_are_not_found,
    verbs_need_an_identity,
    lists_are_filtered,
    cancelling_takes_the_tree_along,
    a_cascade_is_published_before_the_groups_it_ends,
    an_isolated_task_is_cancelled_alone,
    an_ended_descendant_ends_the_walk,
    a_child_in_another_session_is_not_reached,
    priorities_change_and_are_published,
    tool_calls_are_counted_silently,
    waiting_wakes_by_the_end,
    listeners_get_every_end_once,
    background_tasks_are_acknowledged_once,
    an_unpublished_acknowledgement_stands,
    a_refused_event_changes_nothing,
    a_cascade_happens_whole_or_not_at_all,
    one_terminal_event_a_task,
    many_sessions_at_once_do_not_meet,
    ids_are_in_the_order_of_spawning_in_time,
    a_closed_registry_says_so,
)
