"""What a task registry over a store must keep: everything outlives its process, and several processes agree.

Part of the suite in `tasks`. A "process" here is a registry of its own on a bus of its own; one that is left alone
has crashed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from harborage.events import EventType
from harborage.identity import Identity, Quadruple
from harborage.store import EventQuery
from harborage.tasks import (
    GroupInvalidTransitionError,
    GroupNotFoundError,
    GroupRequest,
    GroupSealedError,
    GroupStatus,
    IdempotencyConflictError,
    InvalidTransitionError,
    TaskFilter,
    TaskNotFoundError,
    TaskStatus,
)
from harborage.testing.clock import FakeClock, settle
from harborage.testing.conformance.checks import ConformanceError, expect, expect_equal, expect_raises
from tests.kit.conformance.task_bench import ME, OTHERS, SESSION, Bench, Place, open_bench

PATIENCE = 1_000
"""How often a process looks for what others did before it is said to miss it."""

ENDS = (EventType.TASK_COMPLETED, EventType.TASK_FAILED, EventType.TASK_CANCELLED)


class StoredBench:
    """A place, and the processes that were started over it."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.clock = FakeClock()
        self._started: list[Bench] = []

    async def start(self, **options: Any) -> Bench:
        """Another process over the place."""
        bench = await open_bench(self._place, clock=self.clock, **options)
        self._started.append(bench)
        return bench

    async def count_published(self, *types: EventType) -> int:
        """How many events of these types all processes published together."""
        if not self._place.is_recorded:
            return sum(bench.count(*types) for bench in self._started)
        await settle()
        kept = await self._started[0].store.events(EventQuery(types=tuple(types), limit=1_000))
        return len(kept)

    async def until(self, has_come: Callable[[], bool], what: str) -> None:
        """Let every process notice what the others did, again and again, until it `has_come`."""
        for _ in range(PATIENCE):
            for bench in self._started:
                await bench.store.look("worker")
            await settle()
            if has_come():
                return
            await asyncio.sleep(0)
        raise ConformanceError(f"nobody noticed: {what}")

    async def aclose(self) -> None:
        """End every process."""
        for bench in self._started:
            await bench.registry.aclose()
        for bench in self._started:
            await bench.aclose()


Scenario: TypeAlias = Callable[[StoredBench], Awaitable[None]]


async def a_task_comes_back_as_it_was(bench: StoredBench) -> None:
    """In every status, field for field; and to no caller of another session."""
    first = await bench.start()
    ids = [await first.spawn(query=f"q{n}", priority=n, description="d", idempotency_key=f"k{n}") for n in range(6)]
    registry = first.registry
    for task_id in ids[1:]:
        await registry.mark_running(task_id, who=ME)
    await registry.mark_paused(ids[2], who=ME)
    await registry.mark_complete(ids[3], b'{"a":1}', who=ME)
    await first.fail(ids[4], "boom", "it broke")
    await registry.cancel(ids[5], "enough", who=ME)
    wanted = [await registry.get(task_id, who=ME) for task_id in ids]
    second = await bench.start()
    expect_equal([await second.registry.get(task_id, who=ME) for task_id in ids], wanted, "the tasks")
    for other in OTHERS:
        await expect_raises(TaskNotFoundError, second.registry.get(ids[0], who=other), "a foreign get")
        expect_equal(await second.registry.list(other), [], "a foreign list")


async def a_session_lists_its_earlier_tasks(bench: StoredBench) -> None:
    """All of them, those of other processes too, and those below one parent."""
    first = await bench.start()
    parent = await first.running()
    ids = [parent] + [await first.spawn(parent_task_id=parent if n % 3 == 0 else None) for n in range(150)]
    second = await bench.start()
    ids += [await second.spawn(parent_task_id=parent) for _ in range(3)]
    third = await bench.start()
    for process in (second, third):
        listed = await process.registry.list(SESSION)
        expect_equal(sorted(summary.id for summary in listed), sorted(ids), "the session's tasks")
        below = await process.registry.list(SESSION, TaskFilter(parent=parent))
        expect_equal(len(below), 53, "those below the parent")
        running = await process.registry.list(SESSION, TaskFilter(status=TaskStatus.RUNNING))
        expect_equal([summary.id for summary in running], [parent], "those that run")


async def a_task_goes_on_where_it_was(bench: StoredBench) -> None:
    """Each step in another process; a step that is not possible from there is refused; each is published once."""
    task_id = await (await bench.start()).spawn()
    second = await bench.start()
    await expect_raises(InvalidTransitionError, second.registry.mark_complete(task_id, who=ME), "pending → complete")
    await second.registry.mark_running(task_id, who=ME)
    third = await bench.start()
    await third.registry.mark_paused(task_id, who=ME)
    await (await bench.start()).registry.mark_resumed(task_id, who=ME)
    await third.registry.prioritize(task_id, 7, who=ME)
    last = await bench.start()
    done = await last.registry.mark_complete(task_id, b"1", who=ME)
    expect_equal((done.status, done.priority, done.result), (TaskStatus.COMPLETE, 7, b"1"), "the task in the end")
    for process in (second, third, last):
        await expect_raises(InvalidTransitionError, process.registry.mark_running(task_id, who=ME), "after the end")
        expect_equal(await process.registry.cancel(task_id, who=ME), False, "a cancellation after the end")
    expect_equal(await bench.count_published(*ENDS), 1, "last events")


async def a_key_stands_for_its_request_for_ever(bench: StoredBench) -> None:
    """The same request finds its task in every later process, another one under the same key is refused."""
    first = await bench.start()
    task_id = await first.spawn(idempotency_key="k", query="q")
    second = await bench.start()
    handle = await second.registry.spawn(second.request(idempotency_key="k", query="q"))
    expect_equal((handle.id, handle.reused), (task_id, True), "the handle")
    other = second.registry.spawn(second.request(idempotency_key="k", query="other"))
    await expect_raises(IdempotencyConflictError, other, "another request")
    expect_equal(await bench.count_published(EventType.TASK_SPAWNED), 1, "spawns that were published")


async def one_key_is_one_task_for_all_processes(bench: StoredBench) -> None:
    """Two processes spawn under one key at the same time."""
    processes = [await bench.start(), await bench.start()]
    handles = await asyncio.gather(
        *(one.registry.spawn(one.request(idempotency_key="k", query="q")) for one in processes * 3)
    )
    expect_equal(len({handle.id for handle in handles}), 1, "tasks")
    expect_equal(sum(not handle.reused for handle in handles), 1, "handles of a new task")
    expect_equal(await bench.count_published(EventType.TASK_SPAWNED), 1, "spawns that were published")
    expect_equal(len(await processes[0].registry.list(SESSION)), 1, "listed tasks")


async def a_group_goes_through_processes(bench: StoredBench) -> None:
    """Created, joined, sealed and ended in four of them; its end is published once and can be had for ever."""
    first = await bench.start()
    group = await first.group(id="g", description="d")
    a = await first.running(group_id="g")
    second = await bench.start()
    b = await second.running(group_id="g")
    third = await bench.start()
    expect_equal((await third.group(id="g")).members, (a, b), "the members")
    sealed = await third.registry.seal_group("g", who=ME)
    expect_equal((sealed.status, sealed.members), (GroupStatus.SEALED, (a, b)), "the sealed group")
    late = second.registry.spawn(second.request(group_id="g"))
    await expect_raises(GroupSealedError, late, "a late member")
    await second.complete(a, b"1")
    last = await bench.start()
    await last.fail(b, "boom")
    expect_equal(await bench.count_published(EventType.TASK_GROUP_RESOLVED), 1, "ends that were published")
    for process in (first, last, await bench.start()):
        completion = (await process.registry.watch_group(SESSION, group.id)).peek()
        expect(completion is not None, "an ended group has its completion")
        assert completion is not None
        got = [(one.task_id, one.status, one.result) for one in completion.members]
        expect_equal(got, [(a, TaskStatus.COMPLETE, b"1"), (b, TaskStatus.FAILED, None)], "the outcomes")
        expect_equal(completion.final_status, GroupStatus.COMPLETED, "the final status")
        again = process.registry.seal_group("g", who=ME)
        await expect_raises(GroupInvalidTransitionError, again, "sealing an ended group")


async def a_failure_after_a_restart_ends_a_fail_fast_group(bench: StoredBench) -> None:
    """Its live members are cancelled, in all processes."""
    first = await bench.start()
    group, (bad, *rest) = await first.group_of(3, fail_fast=True)
    second = await bench.start()
    await second.fail(bad, "boom")
    for task_id in rest:
        expect_equal(await first.status(task_id), TaskStatus.CANCELLED, "a living member")
    completion = (await first.registry.watch_group(SESSION, group.id)).peek()
    expect(completion is not None and completion.reason == "fail-fast:boom", "the completion says why")


async def cancelling_takes_along_what_earlier_processes_spawned(bench: StoredBench) -> None:
    """Living descendants of every process, breadth first; the walk ends at what had ended."""
    first = await bench.start()
    root = await first.running()
    ended = await first.running(parent_task_id=root)
    below_ended = await first.spawn(parent_task_id=ended)
    await first.complete(ended)
    second = await bench.start()
    child = await second.spawn(parent_task_id=root, propagate_on_cancel="isolate")
    grandchild = await second.spawn(parent_task_id=child)
    third = await bench.start()
    expect_equal(await third.registry.cancel(root, "stop", who=ME), True, "the cancellation")
    count_published = [event.payload.task_id for event in third.published(EventType.TASK_CANCELLED)]  # type: ignore[union-attr]
    expect_equal(count_published, [root, child, grandchild], "who was cancelled, in order")
    expect_equal(await first.status(below_ended), TaskStatus.PENDING, "below one that had ended")


async def processes_see_what_others_did(bench: StoredBench) -> None:
    """A task that another process carries is shown as it is, not as it was when this one last touched it."""
    first = await bench.start()
    task_id = await first.running()
    second = await bench.start()
    await second.registry.mark_paused(task_id, who=ME)
    expect_equal(await first.status(task_id), TaskStatus.PAUSED, "seen by the first")
    await second.registry.mark_resumed(task_id, who=ME)
    await second.registry.mark_complete(task_id, b"2", who=ME)
    expect_equal((await first.registry.get(task_id, who=ME)).result, b"2", "the result")
    expect_equal([one.status for one in await first.registry.list(SESSION)], [TaskStatus.COMPLETE], "the list")


async def a_waiting_caller_learns_what_another_process_ended(bench: StoredBench) -> None:
    """A waiter for a task, a watch on a group and a waiter for the turn, as soon as their process takes a look.

    Whoever listens for ends hears of those of the own process alone.
    """
    first, second = await bench.start(), await bench.start()
    group, (task_id,) = await first.group_of(1, retain_turn=True)
    await first.registry.seal_group(group.id, who=ME)
    received: list[Quadruple] = []
    first.registry.on_ended(received.append)
    watch = await first.registry.watch_group(SESSION, group.id)
    turn = first.registry.register_retain_turn_waiter(SESSION)
    async with asyncio.TaskGroup() as waiters:
        waiting = waiters.create_task(first.registry.wait_ended(task_id, who=ME))
        await settle()
        await second.complete(task_id, b"3")
        await bench.until(lambda: waiting.done() and watch.is_closed and turn.is_closed, "the ends")
    completion = watch.peek()
    expect_equal(waiting.result().result, b"3", "what the waiter got")
    expect_equal(turn.peek(), group.id, "what ended the wait for the turn")
    expect(completion is not None and completion.final_status is GroupStatus.COMPLETED, "the watch has the completion")
    expect_equal(received, [], "what the listener heard")


async def of_two_ends_one_counts(bench: StoredBench) -> None:
    """One process cancels what another completes, at the same time: one end, published once, seen by all."""
    first, second = await bench.start(), await bench.start()
    for _ in range(10):
        task_id = await first.running()
        before = await bench.count_published(*ENDS)
        await asyncio.gather(
            first.registry.cancel(task_id, who=ME),
            second.registry.mark_complete(task_id, b"1", who=ME),
            return_exceptions=True,
        )
        expect_equal(await bench.count_published(*ENDS), before + 1, "ends that were published")
        statuses = {await process.status(task_id) for process in (first, second, await bench.start())}
        expect_equal(len(statuses), 1, "statuses that are seen")


async def a_group_ends_once_whichever_process_ends_its_members(bench: StoredBench) -> None:
    """Two processes end the last two members at the same time: the group ends, and only once."""
    first, second = await bench.start(), await bench.start()
    for _ in range(10):
        group, (a, b) = await first.group_of(2)
        await first.registry.seal_group(group.id, who=ME)
        await asyncio.gather(first.complete(a), second.complete(b))
        expect_equal(await second.group_status(group.id), GroupStatus.COMPLETED, "the group")
    expect_equal(await bench.count_published(EventType.TASK_GROUP_RESOLVED), 10, "ends that were published")


async def a_group_id_stays_its_sessions(bench: StoredBench) -> None:
    """Another session does not get the id, in no later process."""
    await (await bench.start()).group(id="g")
    second = await bench.start()
    for other in OTHERS:
        request = GroupRequest(session=other, id="g")
        taken = second.registry.resolve_or_create_group(request, who=other)
        await expect_raises(GroupNotFoundError, taken, "a foreign id")
        await expect_raises(GroupNotFoundError, second.registry.watch_group(other, "g"), "a foreign watch")
    expect_equal((await second.group(id="g")).status, GroupStatus.OPEN, "the group")


async def a_patch_is_decided_once(bench: StoredBench) -> None:
    """A decision of one process holds in the others."""
    first = await bench.start()
    await first.registry.create_pending_patch(SESSION, "p")
    second = await bench.start()
    expect_equal((await second.registry.create_pending_patch(SESSION, "p")).status, "pending", "the patch")
    expect_equal(await second.registry.apply_patch(SESSION, "p", "accept"), True, "the decision")
    third = await bench.start()
    expect_equal(await third.registry.apply_patch(SESSION, "p", "accept"), False, "the same again")
    opposite = first.registry.apply_patch(SESSION, "p", "reject")
    await expect_raises(GroupInvalidTransitionError, opposite, "the opposite")


async def an_acknowledgement_is_kept(bench: StoredBench) -> None:
    """Background tasks that ended in an earlier process are acknowledged once."""
    first = await bench.start()
    ids = [await first.running() for _ in range(3)]
    for task_id in ids[:2]:
        await first.complete(task_id)
    second = await bench.start()
    expect_equal(await second.registry.acknowledge_background(SESSION, [*ids, "none"]), 2, "acknowledged")
    expect_equal(await first.registry.acknowledge_background(SESSION, ids), 0, "acknowledged again")
    expect_equal(await bench.count_published(EventType.TASK_BACKGROUND_ACKNOWLEDGED), 2, "published events")


async def tool_calls_are_kept(bench: StoredBench) -> None:
    """A process that ends well loses no count; the next one goes on counting."""
    first = await bench.start()
    task_id = await first.running()
    for _ in range(5):
        await first.registry.increment_tool_count(task_id, who=ME)
    await first.registry.aclose()
    second = await bench.start()
    expect_equal(await second.registry.increment_tool_count(task_id, who=ME), 6, "the count")
    done = await second.registry.mark_complete(task_id, who=ME)
    expect_equal(done.tool_count, 6, "the count of the ended task")
    expect_equal((await (await bench.start()).registry.get(task_id, who=ME)).tool_count, 6, "the kept count")


async def owners_never_meet(bench: StoredBench) -> None:
    """Sessions whose names look alike keep their own tasks, keys and children."""
    alike = [Identity("a", "b/c", "d"), Identity("a/b", "c", "d"), Identity("a", "b", "c/d"), SESSION]
    first = await bench.start()
    ids = {who: await first.spawn(who.with_run(""), idempotency_key="k", query=repr(who)) for who in alike}
    second = await bench.start()
    for who, task_id in ids.items():
        expect_equal([one.id for one in await second.registry.list(who)], [task_id], f"the tasks of {who}")
        handle = await second.registry.spawn(
            second.request(identity=who.with_run(""), idempotency_key="k", query=repr(who))
        )
        expect_equal(handle.id, task_id, f"the key of {who}")


SCENARIOS: tuple[Scenario, ...] = (
    a_task_comes_back_as_it_was,
    a_session_lists_its_earlier_tasks,
    a_task_goes_on_where_it_was,
    a_key_stands_for_its_request_for_ever,
    one_key_is_one_task_for_all_processes,
    a_group_goes_through_processes,
    a_failure_after_a_restart_ends_a_fail_fast_group,
    cancelling_takes_along_what_earlier_processes_spawned,
    processes_see_what_others_did,
    a_waiting_caller_learns_what_another_process_ended,
    of_two_ends_one_counts,
    a_group_ends_once_whichever_process_ends_its_members,
    a_group_id_stays_its_sessions,
    a_patch_is_decided_once,
    an_acknowledgement_is_kept,
    tool_calls_are_kept,
    owners_never_meet,
)
