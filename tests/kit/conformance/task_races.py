"""What holds when several processes change the same tasks at once; a part of the suite in `tasks`.

Of two changes that exclude each other one is made, and published once; the other is refused as if it had come later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias

from harborage.events import EventType
from harborage.tasks import (
    GroupInvalidTransitionError,
    GroupSealedError,
    GroupStatus,
    IdempotencyConflictError,
    InvalidTransitionError,
    MemberOutcome,
    TaskHandle,
    TaskLimitError,
    TaskLimits,
    TaskStatus,
)
from harborage.testing.conformance.checks import expect, expect_equal
from tests.kit.conformance.task_bench import ME, OTHERS, SESSION
from tests.kit.conformance.task_restarts import StoredBench

Scenario: TypeAlias = Callable[[StoredBench], Awaitable[None]]

ROUNDS = 5
GROUP_ENDS = (EventType.TASK_GROUP_RESOLVED, EventType.TASK_GROUP_CANCELLED)


async def of_two_steps_one_is_made(bench: StoredBench) -> None:
    """Two processes start one task: it starts once, and the other gets its status."""
    first, second = await bench.start(), await bench.start()
    for _ in range(ROUNDS):
        task_id = await first.spawn()
        before = await bench.count_published(EventType.TASK_STARTED)
        done = await _at_once(*(one.registry.mark_running(task_id, who=ME) for one in (first, second)))
        _expect_one(done, InvalidTransitionError, "starts")
        expect_equal(await bench.count_published(EventType.TASK_STARTED), before + 1, "starts that were published")


async def of_two_that_seal_one_does(bench: StoredBench) -> None:
    """The other finds the group sealed."""
    first, second = await bench.start(), await bench.start()
    for _ in range(ROUNDS):
        group, _ = await first.group_of(1)
        done = await _at_once(*(one.registry.seal_group(group.id, who=ME) for one in (first, second)))
        _expect_one(done, GroupInvalidTransitionError, "seals")
    expect_equal(await bench.count_published(EventType.TASK_GROUP_SEALED), ROUNDS, "seals that were published")


async def of_two_decisions_one_counts(bench: StoredBench) -> None:
    """One accepts what the other rejects; who comes second learns that it was decided the other way."""
    first, second = await bench.start(), await bench.start()
    for number in range(ROUNDS):
        patch = f"p{number}"
        await first.registry.create_pending_patch(SESSION, patch)
        done = await _at_once(
            first.registry.apply_patch(SESSION, patch, "accept"), second.registry.apply_patch(SESSION, patch, "reject")
        )
        _expect_one(done, GroupInvalidTransitionError, "decisions")
    published = await bench.count_published(EventType.TASK_PATCH_APPLIED, EventType.TASK_PATCH_REJECTED)
    expect_equal(published, ROUNDS, "decisions that were published")


async def a_group_ends_in_one_way(bench: StoredBench) -> None:
    """One cancels the group that another resolves and a third sees done: it ends once, and all see the same end."""
    first, second, third = [await bench.start() for _ in range(3)]
    for number in range(ROUNDS):
        group, [member] = await first.group_of(1)
        await first.registry.seal_group(group.id, who=ME)
        watches = [await one.registry.watch_group(SESSION, group.id) for one in (first, second, third)]
        await asyncio.gather(
            first.registry.cancel_group(group.id, "enough", who=ME),
            second.registry.apply_group(group.id, "resolve", who=ME),
            third.registry.mark_complete(member, b"1", who=ME),
            return_exceptions=True,
        )
        await bench.until(lambda watches=watches: all(one.is_closed for one in watches), "the group's end")  # type: ignore[misc]
        expect_equal(len({one.peek().final_status for one in watches}), 1, "ends that are seen")  # type: ignore[union-attr]
        expect_equal(await bench.count_published(*GROUP_ENDS), number + 1, "ends that were published")


async def a_member_that_joins_a_group_is_in_it(bench: StoredBench) -> None:
    """One joins while the other seals: it is a member of the sealed group, or was refused."""
    first, second = await bench.start(), await bench.start()
    for _ in range(ROUNDS):
        group = await first.group()
        joined, _ = await _at_once(
            first.registry.spawn(first.request(group_id=group.id)), second.registry.seal_group(group.id, who=ME)
        )
        members = (await second.registry.group(group.id, who=ME)).members
        if isinstance(joined, TaskHandle):
            expect_equal(members, (joined.id,), "the members")
        else:
            expect(isinstance(joined, GroupSealedError), f"the late one was refused: {joined!r}")
            expect_equal(members, (), "the members")


async def a_group_that_ended_early_stays_as_it_ended(bench: StoredBench) -> None:
    """Its completion says for ever how the members stood then, in every process, whatever they do afterwards."""
    first, second = await bench.start(), await bench.start()
    group, (done, live) = await first.group_of(2)
    await first.complete(done, b"1")
    await first.registry.cancel_group(group.id, "leave", propagate=False, who=ME)
    await second.complete(live, b"2")
    wanted = (MemberOutcome(done, TaskStatus.COMPLETE, b"1"), MemberOutcome(live, TaskStatus.RUNNING))
    for process in (first, second, await bench.start()):
        completion = (await process.registry.watch_group(SESSION, group.id)).peek()
        expect(completion is not None, "the completion is there")
        assert completion is not None
        expect_equal(completion.members, wanted, "the members")
        expect_equal((completion.final_status, completion.reason), (GroupStatus.CANCELLED, "leave"), "the end")
    expect_equal(await bench.count_published(*GROUP_ENDS), 1, "ends that were published")


async def no_more_children_than_allowed(bench: StoredBench) -> None:
    """However many processes spawn below one parent, or one root, at once."""
    limits = TaskLimits(max_children=3, max_tree=5)
    processes = [await bench.start(limits=limits) for _ in range(2)]
    root = await processes[0].running()
    first = await _at_once(*(one.registry.spawn(one.request(parent_task_id=root)) for one in processes * 3))
    children = [handle.id for handle in first if isinstance(handle, TaskHandle)]
    refused = [error for error in first if isinstance(error, TaskLimitError)]
    expect_equal((len(children), {error.limit for error in refused}), (3, {"max_children"}), "children")
    later = await _at_once(
        *(one.registry.spawn(one.request(parent_task_id=child)) for one in processes for child in children)
    )
    refused = [error for error in later if isinstance(error, TaskLimitError)]
    expect_equal((len(refused), {error.limit for error in refused}), (4, {"max_tree"}), "the tree")
    expect_equal(len(await processes[1].registry.list(SESSION)), 6, "tasks")


async def no_session_fills_the_tree_of_another(bench: StoredBench) -> None:
    """A foreign task as parent does not count, and its owner's tasks do not fill the limit."""
    process = await bench.start(limits=TaskLimits(max_children=1, max_tree=1))
    root = await process.spawn()
    strays = [await process.spawn(other.with_run(""), parent_task_id=root) for other in OTHERS * 2]
    child = await process.spawn(parent_task_id=root)
    strays += [await process.spawn(other.with_run(""), parent_task_id=child) for other in OTHERS]
    expect_equal(len(set(strays)), 9, "tasks of other sessions")


async def one_key_is_one_request(bench: StoredBench) -> None:
    """Two processes ask for different tasks under one key: one gets it, the other gets the conflict."""
    first, second = await bench.start(), await bench.start()
    for number in range(ROUNDS):
        done = await _at_once(
            *(one.registry.spawn(one.request(idempotency_key=f"k{number}", query=query))
              for one, query in ((first, "this"), (second, "that")))
        )  # fmt: skip
        _expect_one(done, IdempotencyConflictError, "spawns")
    expect_equal(await bench.count_published(EventType.TASK_SPAWNED), ROUNDS, "spawns that were published")


async def one_group_for_all_who_create_it(bench: StoredBench) -> None:
    """Two processes ask for a group of one id: both get the same one."""
    first, second = await bench.start(), await bench.start()
    made = await asyncio.gather(first.group(id="g", description="one"), second.group(id="g", description="two"))
    expect_equal(made[0], made[1], "the group")


async def a_tree_is_cancelled_once(bench: StoredBench) -> None:
    """By the first caller, while its tasks continue: each is cancelled once, and none is left."""
    first, second = await bench.start(), await bench.start()
    for number in range(ROUNDS):
        root = await first.running()
        children = [await first.spawn(parent_task_id=root) for _ in range(3)]
        leaves = [await first.spawn(parent_task_id=child) for child in children]
        done = await _at_once(
            first.registry.cancel(root, "stop", who=ME),
            second.registry.cancel(root, "stop", who=ME),
            *(second.registry.mark_running(child, who=ME) for child in children),
        )
        expect_equal(sorted(map(bool, done[:2])), [False, True], f"who cancelled it: {done}")
        statuses = {await second.status(task_id) for task_id in (root, *children, *leaves)}
        expect_equal(statuses, {TaskStatus.CANCELLED}, "the tree")
        published = await bench.count_published(EventType.TASK_CANCELLED)
        expect_equal(published, 7 * (number + 1), "ends that were published")


async def _at_once(*work: Coroutine[Any, Any, object]) -> list[Any]:
    return list(await asyncio.gather(*work, return_exceptions=True))


def _expect_one(done: list[Any], refusal: type[Exception], what: str) -> None:
    expect_equal(sum(isinstance(one, refusal) for one in done), len(done) - 1, f"refused {what}, of {done}")
    expect_equal(sum(not isinstance(one, Exception) for one in done), 1, f"{what} that were made, of {done}")


SCENARIOS: tuple[Scenario, ...] = (
    of_two_steps_one_is_made,
    of_two_that_seal_one_does,
    of_two_decisions_one_counts,
    a_group_ends_in_one_way,
    a_member_that_joins_a_group_is_in_it,
    a_group_that_ended_early_stays_as_it_ended,
    no_more_children_than_allowed,
    no_session_fills_the_tree_of_another,
    one_key_is_one_request,
    one_group_for_all_who_create_it,
    a_tree_is_cancelled_once,
)
