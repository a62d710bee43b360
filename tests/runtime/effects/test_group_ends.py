"""The end of a group is part of the commit that ends its last member: no process dies between the two."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from harborage.events import EventType, InvalidEventError
from harborage.identity import Identity
from harborage.planner import CallTool, Decision, Finish, FinishReason, RunContext, SpawnSpec, SpawnTask
from harborage.runtime.host import Runtime
from harborage.state.storage import Storage, open_storage
from harborage.store import ChangeGroup, Commit, GroupQuery, GroupStatus
from harborage.store.memory import MemoryStore
from harborage.testing.clock import settle
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")
ENDED = (GroupStatus.COMPLETED, GroupStatus.CANCELLED)


class Parent:
    """A run that spawns its `children`, and waits; each ends as its query says."""

    def __init__(self, *children: SpawnTask) -> None:
        self.children = children

    async def next(self, run: RunContext) -> Decision:
        if run.query == "parent":
            steps = len(run.trajectory.steps)
            return self.children[steps] if steps < len(self.children) else CallTool("wait")
        if run.query == "fails":
            raise RuntimeError("broken")
        if run.query == "waits":
            return CallTool("wait")
        return Finish(FinishReason.GOAL, run.query)


async def wait() -> None:
    """Wait to be cut short."""
    await asyncio.get_running_loop().create_future()


class Noting(MemoryStore):
    """A store that keeps the commits it has taken, but for those that bring nothing but entries."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[Commit] = []

    def commit_now(self, commit: Commit, accepted: Any = None) -> Any:
        done = super().commit_now(commit, accepted)
        if not done.is_again:
            self.taken.append(commit)
        return done

    def ends(self) -> list[tuple[bool, GroupStatus]]:
        """Of each commit that ended a group: whether it ended a run as well, and how it ended the group."""
        return [
            (commit.change is not None and commit.change.status is not None, change.status)
            for commit in self.taken
            for change in commit.groups
            if isinstance(change, ChangeGroup) and change.status in ENDED
        ]


@asynccontextmanager
async def hosting(*children: SpawnTask) -> AsyncIterator[tuple[Runtime, Noting]]:
    """A runtime with such a run, whose children have been spawned, and have ended if they do by themselves."""
    async with await open_storage("memory:") as opened:
        store = Noting()
        async with Runtime(
            planner=Parent(*children), tools=[wait], storage=Storage(state=opened.state, store=store)
        ) as runtime:
            await runtime.start("parent", who=ME)
            await settle(500)
            yield runtime, store


def child(query: str, *, group: str = "", **more: Any) -> SpawnTask:
    return SpawnTask(spec=SpawnSpec(query=query, **more), group_id=group)


@each_row(
    "children, ends",
    [
        ([child("done")], GroupStatus.COMPLETED),
        ([child("fails")], GroupStatus.COMPLETED),
        ([child("fails", fail_fast=True)], GroupStatus.CANCELLED),
    ],
)
async def test_a_group_of_one_ends_with_its_member(children: list[SpawnTask], ends: GroupStatus) -> None:
    """In one commit with the run, with the event of how it ended; no upkeep is needed later."""
    async with hosting(*children) as (runtime, store):
        assert store.ends() == [(True, ends)]
        (group,) = (await store.groups(GroupQuery())).rows
        assert (group.status, group.reason[:9]) == (ends, "fail-fast" if ends is GroupStatus.CANCELLED else "")
        ended = [commit for commit in store.taken if commit.groups][-1]
        kinds = {
            GroupStatus.COMPLETED: EventType.TASK_GROUP_RESOLVED,
            GroupStatus.CANCELLED: EventType.TASK_GROUP_CANCELLED,
        }
        assert ended.events[-1].type == kinds[ends]
        assert await store.orphans() == []
        assert len(await runtime.tasks.list(ME)) == 2


async def test_a_shared_group_ends_with_the_last_of_its_members() -> None:
    """However many it has; the others end without it."""
    async with hosting(child("waits", group="g"), child("waits", group="g"), child("done", group="g")) as (rt, store):
        (group,) = (await store.groups(GroupQuery())).rows
        await rt.tasks.seal_group(group.group_id, who=ME)
        _, members = await store.group(group.group_id, who=ME)
        for member in members[:2]:
            assert store.ends() == []
            await rt.tasks.cancel(member.run_id, who=ME)
            await settle(200)
        assert store.ends() == [(True, GroupStatus.COMPLETED)]
        assert (await rt.tasks.group(group.group_id, who=ME)).status == "completed"


async def test_a_group_that_is_cancelled_ends_with_its_last_member() -> None:
    """Its member takes it for one that completes; the store refuses that, and it ends with its own reason."""
    async with hosting(child("waits")) as (runtime, store):
        (group,) = (await store.groups(GroupQuery())).rows
        watch = await runtime.tasks.watch_group(ME, group.group_id)
        assert await runtime.tasks.cancel_group(group.group_id, "enough", who=ME)
        await settle(500)
        assert store.ends() == [(True, GroupStatus.CANCELLED)]
        completion = watch.peek()
        assert completion is not None
        assert (completion.final_status, completion.reason) == ("cancelled", "enough")
        assert [member.status for member in completion.members] == ["cancelled"]


async def test_a_run_ends_although_the_end_of_its_group_cannot_be_published(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group is ended after it, by the next worker that reads it."""
    async with hosting(child("waits")) as (runtime, store):
        (group,) = (await store.groups(GroupQuery())).rows
        _, (member,) = await store.group(group.group_id, who=ME)
        bus: Any = runtime.bus
        prepare = bus.prepare

        def refuse(event: Any) -> Any:
            if event.type is EventType.TASK_GROUP_RESOLVED:
                raise InvalidEventError
            return prepare(event)

        monkeypatch.setattr(bus, "prepare", refuse)
        await runtime.tasks.cancel(member.run_id, who=ME)
        await settle(500)
        assert ((await runtime.tasks.get(member.run_id, who=ME)).status, store.ends()) == ("cancelled", [])
        monkeypatch.undo()
        watch = await runtime.tasks.watch_group(ME, group.group_id)
        assert watch.peek() is not None
        assert store.ends() == [(False, GroupStatus.COMPLETED)]
