"""What every task registry must do with waits and deadlines; a part of the suite in `tasks`.

`SCENARIOS` need one registry, `STORED_SCENARIOS` several over one store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeAlias

from harborage.tasks import GroupRequest, WaitCycleError
from harborage.testing.conformance.checks import expect, expect_equal, expect_raises
from tests.kit.conformance.task_bench import ME, SESSION, Bench
from tests.kit.conformance.task_restarts import StoredBench

Scenario: TypeAlias = Callable[[Bench], Awaitable[None]]
StoredScenario: TypeAlias = Callable[[StoredBench], Awaitable[None]]


async def no_wait_is_a_circle(bench: Bench) -> None:
    """A wait for what waits for the waiter, through others even, is refused, and leaves the waiter free."""
    one, two, three = [await bench.running() for _ in range(3)]
    registry = bench.registry
    await expect_raises(WaitCycleError, registry.begin_wait(one, one, who=ME), "a wait for itself")
    await registry.begin_wait(one, two, who=ME)
    await registry.begin_wait(two, three, who=ME)
    try:
        await registry.begin_wait(three, one, who=ME)
    except WaitCycleError as error:
        expect_equal(error.path, (three, one, two, three), "the circle")
    else:
        raise AssertionError("a circle of three was let through")
    await registry.begin_wait(await bench.running(), three, who=ME)


async def no_wait_for_a_group_is_a_circle(bench: Bench) -> None:
    """A member cannot wait for its group, nor for a run that does."""
    group, (one, two) = await bench.group_of(2)
    owner = await bench.running()
    registry = bench.registry
    await expect_raises(WaitCycleError, registry.begin_wait(one, group.id, who=ME), "a member")
    await registry.begin_wait(owner, group.id, who=ME)
    await registry.begin_wait(two, one, who=ME)
    await expect_raises(WaitCycleError, registry.begin_wait(one, owner, who=ME), "a member for who waits for it")
    await bench.spawn(group_id=group.id)


async def a_wait_that_is_over_is_none(bench: Bench) -> None:
    """A waiter that left, or what it waited for having ended, closes no circle any more."""
    one, two, three = [await bench.running() for _ in range(3)]
    registry = bench.registry
    await registry.begin_wait(one, two, who=ME)
    await registry.end_wait(one, who=ME)
    await registry.begin_wait(two, one, who=ME)
    await registry.begin_wait(three, two, who=ME)
    await bench.complete(two)
    await registry.begin_wait(one, three, who=ME)


async def a_child_has_no_later_deadline_than_its_parent(bench: Bench) -> None:
    """All the way down; an earlier one stays, and a root may have any."""
    now = bench.clock.now()
    soon, later = now + timedelta(minutes=1), now + timedelta(minutes=2)
    root = await bench.running(deadline=soon)
    child = await bench.running(parent_task_id=root)
    ids = [
        await bench.spawn(parent_task_id=child, deadline=later),
        await bench.spawn(parent_task_id=child, deadline=now),
        await bench.spawn(deadline=later),
        await bench.spawn(),
    ]
    found = [await bench.registry.get(task_id, who=ME) for task_id in ids]
    expect_equal([task.deadline for task in found], [soon, now, later, None], "the deadlines")
    expect_equal([task.root_task_id for task in found], [root, root, "", ""], "the roots")


async def a_group_is_shown_as_it_stands(bench: Bench) -> None:
    """With its members while it is open, sealed and ended."""
    group, members = await bench.group_of(2)
    for task_id in members:
        found = await bench.registry.group(group.id, who=ME)
        expect_equal(list(found.members), members, "the members")
        await bench.complete(task_id)
    await bench.registry.seal_group(group.id, who=ME)
    found = await bench.registry.group(group.id, who=ME)
    expect(found.status.is_terminal, "the group has ended")
    expect_equal(list(found.members), members, "the members of the ended group")


async def waits_are_known_to_every_process(bench: StoredBench) -> None:
    """A circle is refused in whatever process it would be closed, and after all of them ended."""
    first, second = await bench.start(), await bench.start()
    one, two = await first.running(), await first.running()
    group = await first.registry.resolve_or_create_group(GroupRequest(session=SESSION), who=ME)
    three = await first.running(group_id=group.id)
    await first.registry.begin_wait(one, two, who=ME)
    await second.registry.begin_wait(two, group.id, who=ME)
    third = await bench.start()
    await expect_raises(WaitCycleError, third.registry.begin_wait(three, one, who=ME), "a circle over processes")
    await third.registry.end_wait(two, who=ME)
    await first.registry.begin_wait(three, one, who=ME)


async def of_two_that_close_a_circle_at_once_one_is_refused(bench: StoredBench) -> None:
    """They look after they have said what they wait for."""
    first, second = await bench.start(), await bench.start()
    one, two = await first.running(), await first.running()
    done = await asyncio.gather(
        first.registry.begin_wait(one, two, who=ME),
        second.registry.begin_wait(two, one, who=ME),
        return_exceptions=True,
    )
    expect(any(isinstance(result, WaitCycleError) for result in done), f"one was refused: {done}")


SCENARIOS: tuple[Scenario, ...] = (
    no_wait_is_a_circle,
    no_wait_for_a_group_is_a_circle,
    a_wait_that_is_over_is_none,
    a_child_has_no_later_deadline_than_its_parent,
    a_group_is_shown_as_it_stands,
)
STORED_SCENARIOS: tuple[StoredScenario, ...] = (
    waits_are_known_to_every_process,
    of_two_that_close_a_circle_at_once_one_is_refused,
)
