"""A group ends in the commit that ends its last member, where events are stored with the change."""

from __future__ import annotations

from typing import Any

import pytest

from harborage.events import DurableEventBus, MemoryEventBus
from harborage.identity import Identity
from harborage.store import ChangeGroup, Commit
from harborage.store.memory import MemoryStore
from harborage.tasks import GroupRequest, InProcessTaskRegistry, SpawnRequest, TaskFailure
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

SESSION = Identity("t", "u", "s")
ME = SESSION.with_run("")


class Dying(MemoryStore):
    """A store whose process dies with the first commit that ends the task `last`: nothing is taken after it."""

    def __init__(self) -> None:
        super().__init__()
        self.last = ""
        self.is_dead = False
        self.taken: list[Commit] = []

    def commit_now(self, commit: Commit, accepted: Any = None) -> Any:
        if self.is_dead:
            raise RuntimeError("its process is dead")
        done = super().commit_now(commit, accepted)
        self.taken.append(commit)
        self.is_dead = any(move.run_id == self.last and move.status is not None for move in commit.moves)
        return done


@each_row(
    "fail_fast, fails, ends",
    [
        (False, False, ("completed", "")),
        (False, True, ("completed", "")),
        (True, False, ("completed", "")),
        (True, True, ("cancelled", "fail-fast:boom")),
    ],
)
async def test_no_process_dies_between_a_last_member_and_its_group(
    fail_fast: bool, fails: bool, ends: tuple[str, str]
) -> None:
    """Whatever becomes of it next, the next process finds the group ended as its members say."""
    store = Dying()
    bus = DurableEventBus(store)
    registry = InProcessTaskRegistry(bus=bus, store=store)
    group = await registry.resolve_or_create_group(GroupRequest(session=SESSION, fail_fast=fail_fast), who=ME)
    request = SpawnRequest(identity=ME, kind="background", group_id=group.id)
    tasks = [(await registry.spawn(request)).id for _ in range(2)]
    for task_id in tasks:
        await registry.mark_running(task_id, who=ME)
    await registry.seal_group(group.id, who=ME)
    watch = await registry.watch_group(SESSION, group.id)
    await registry.mark_complete(tasks[0], who=ME)
    store.last = tasks[1]
    if fails:
        await registry.mark_failed(tasks[1], TaskFailure("boom"), who=ME)
    else:
        await registry.mark_complete(tasks[1], b"1", who=ME)
    assert store.is_dead
    ended = (await registry.group(group.id, who=ME)).status, (await registry.group(group.id, who=ME)).reason
    assert ended == ends
    assert await store.orphans() == []
    completion = watch.peek()
    assert completion is not None
    assert [member.status for member in completion.members] == ["complete", "failed" if fails else "complete"]
    await registry.aclose()
    await bus.aclose()


async def test_on_another_bus_the_group_ends_after_its_member() -> None:
    """An event that cannot be published there would take the member's end with it."""
    store = Dying()
    registry = InProcessTaskRegistry(bus=MemoryEventBus(), store=store)
    group = await registry.resolve_or_create_group(GroupRequest(session=SESSION), who=ME)
    task = (await registry.spawn(SpawnRequest(identity=ME, kind="background", group_id=group.id))).id
    await registry.mark_running(task, who=ME)
    await registry.seal_group(group.id, who=ME)
    await registry.mark_complete(task, who=ME)
    of_group = [commit for commit in store.taken if any(isinstance(one, ChangeGroup) for one in commit.groups)]
    assert [bool(commit.moves) for commit in of_group] == [False, False]
    assert (await registry.group(group.id, who=ME)).status == "completed"
    await registry.aclose()
