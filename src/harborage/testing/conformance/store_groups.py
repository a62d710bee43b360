"""Scenarios of the store suite: what a commit that ends a member makes of its group."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from harborage.store import (
    LIVE,
    Change,
    ChangeGroup,
    Commit,
    GroupLeft,
    GroupStatus,
    Guard,
    Lease,
    Move,
    NewGroup,
    NewRun,
    RunQuery,
    Status,
    Store,
)
from harborage.store.errors import (
    GroupClosedError,
    LeaseLostError,
    RowNotFoundError,
    RunKnownError,
    RunLimitError,
    StatusConflictError,
)
from harborage.testing.conformance.checks import expect, expect_equal, expect_raises
from harborage.testing.conformance.store_bench import ME, OTHERS, StoreBench, claim, row, start, step
from harborage.testing.conformance.store_tasks import begin, change_group


async def an_end_tells_how_the_group_stands(bench: StoreBench) -> None:
    """The commit that ends a member returns how many members its group has left, from its worker or another caller."""
    store = bench.store
    await store.join("one")
    mine = NewGroup(group_id="g", who=ME, fails_fast=True, retains_turn=True)
    await store.commit(Commit(groups=(mine, NewGroup(group_id="g", who=OTHERS[2]))))
    lease = await start(store, "held", worker="one", group="g")
    await begin(store, "task", group="g")
    await begin(store, "another", group="g")
    await begin(store, "alone")

    def end(*run_ids: str) -> Commit:
        return Commit(moves=tuple(Move(run_id=one, expected=LIVE, status=Status.COMPLETE) for one in run_ids))

    def as_left(run_id: str, live: int, status: GroupStatus = GroupStatus.OPEN) -> GroupLeft:
        return GroupLeft(run_id, "g", status, 3, live, fails_fast=True, retains_turn=True)

    expect_equal((await store.commit(end("alone"))).left, (), "what a run without a group has left")
    done = await store.commit(step(lease, 1, b"more", moves=(Move(run_id="task", expected=LIVE, tool_calls=1),)))
    expect_equal(done.left, (), "what those have left that have not ended")
    done = await store.commit(end("task"))
    expect_equal(done.left, (as_left("task", 2),), "the group after a move")
    seal = ChangeGroup(group_id="g", who=ME, expected=(GroupStatus.OPEN,), status=GroupStatus.SEALED)
    last = replace(end("another"), guard=Guard(lease=lease, position=2), entries=(b"ended",), groups=(seal,))
    done = await store.commit(replace(last, change=Change(status=Status.COMPLETE)))
    both = (as_left("another", 1, GroupStatus.SEALED), as_left("held", 0, GroupStatus.SEALED))
    expect_equal(done.left, both, "the group that the commit has changed, after each")
    again = Move(run_id="task", expected=(Status.COMPLETE,), status=Status.COMPLETE)
    expect_equal((await store.commit(Commit(moves=(again,)))).left, (), "what one has left that had ended before")


async def a_group_ends_with_its_last_member(bench: StoreBench) -> None:
    """The commit that ends the last member may end the group, by its worker or by others; who waits for it wakes. With
    members left it is refused whole, and so it is where others joined or own it."""
    store = bench.store
    await store.join("one")
    for group_id in ("run", "task", "two"):
        await store.commit(Commit(groups=(NewGroup(group_id=group_id, who=ME, owner="parent"),)))
    leases = {name: await start(store, name, worker="one", group=name) for name in ("run", "two")}
    await begin(store, "task", group="task")
    await begin(store, "also", group="two")
    await begin(store, "elsewhere")
    for group_id in ("run", "task", "two"):
        await change_group(store, group_id, GroupStatus.SEALED)
    waits = Change(status=Status.PAUSED, release=True, awaits="run")
    await store.commit(step(await start(store, "waits", worker="one"), 1, b"w", change=waits))

    def resolved(group_id: str, **more: Any) -> ChangeGroup:
        sealed = (GroupStatus.SEALED,)
        return ChangeGroup(
            group_id=group_id, who=ME, expected=sealed, status=GroupStatus.COMPLETED, is_empty=True, **more
        )

    def ended(name: str, **more: Any) -> Commit:
        return step(leases[name], 1, b"ended", change=Change(status=Status.COMPLETE), groups=(resolved(name, **more),))

    def moved(name: str, group_id: str) -> Commit:
        move = Move(run_id=name, expected=LIVE, status=Status.COMPLETE)
        return Commit(moves=(move,), groups=(resolved(group_id),))

    for refused, what in (
        (ended("two"), "a group with a member left"),
        (ended("run", members=2), "a group that others were to join"),
        (ended("run", owner="nobody"), "a group of another owner"),
        (replace(ended("run"), change=Change(reason="goes on")), "the end of a group whose member goes on"),
        (moved("elsewhere", "task"), "a group that the ended one is no member of"),
    ):
        await expect_raises(StatusConflictError, store.commit(refused), what)
    for run_id in ("run", "two", "task", "elsewhere"):
        found = await row(store, run_id)
        expect_equal(
            (found.status.is_final, found.position), (False, 1 if run_id in leases else 0), f"the row of {run_id}"
        )
    first = await store.commit(ended("run", members=1, owner="parent"))
    expect_equal([(one.status, one.open_members) for one in first.left], [(GroupStatus.COMPLETED, 0)], "what is left")
    again = await store.commit(ended("run", members=1, owner="parent"))
    expect(again.is_again, "the same commit once more changes nothing")
    lost = replace(ended("run"), guard=Guard(lease=replaced(leases["run"]), position=1))
    await expect_raises(LeaseLostError, store.commit(lost), "the same of a worker that lost the run")
    await store.commit(moved("task", "task"))
    both = (Move(run_id="also", expected=LIVE, status=Status.FAILED),)
    await store.commit(replace(ended("two", members=2), moves=both))
    for group_id, members in (("run", 1), ("task", 1), ("two", 2)):
        group, _ = await store.group(group_id, who=ME)
        kept = (group.status, group.members, group.open_members, group.ended_at is not None)
        expect_equal(kept, (GroupStatus.COMPLETED, members, 0, True), f"group {group_id}")
    await claim(store, "one", "waits")
    expect_equal(await store.orphans(), [], "groups that no member would end")


async def a_group_is_sealed_with_its_first_members(bench: StoreBench) -> None:
    """It takes the runs of the commit that opens it, and none later; one that may wait for it does from then on. Where
    there is one of this id, or a run is refused, nothing has changed."""
    store = bench.store
    await store.join("one")
    await start(store, "parent", worker="one", max_children=0)

    def spawned(group_id: str, *run_ids: str, **more: Any) -> Commit:
        group = NewGroup(group_id=group_id, who=ME, owner="parent", is_sealed=True)
        starts = tuple(NewRun(run_id=one, who=ME, parent="parent", group=group_id, **more) for one in run_ids)
        waits = Move(run_id="parent", expected=LIVE, awaits=group_id)
        return Commit(groups=(group,), starts=starts, moves=(waits,))

    await store.commit(spawned("g", "a", "b"))
    group, members = await store.group("g", who=ME)
    kept = (group.status, group.members, group.open_members, group.sealed_at is not None, group.owner)
    expect_equal(kept, (GroupStatus.SEALED, 2, 2, True, "parent"), "the group")
    expect_equal([member.run_id for member in members], ["a", "b"], "its members")
    parent = await row(store, "parent")
    expect_equal((parent.awaits, parent.children, parent.owner), ("g", 2, "one"), "the run that waits")
    await expect_raises(GroupClosedError, start(store, "late", group="g"), "a run that comes later")
    await expect_raises(RunKnownError, store.commit(spawned("g", "a")), "the same once more")
    await expect_raises(GroupClosedError, store.commit(spawned("g", "c")), "another run of the group")
    await expect_raises(StatusConflictError, store.commit(spawned("g")), "the group alone")
    await store.commit(Commit(groups=(NewGroup(group_id="open", who=ME),)))
    await expect_raises(StatusConflictError, store.commit(spawned("open", "c")), "a group that is open")
    await expect_raises(RunLimitError, store.commit(spawned("h", "c", max_children=2)), "one child too many")
    await expect_raises(RowNotFoundError, store.group("h", who=ME), "a group that was refused with its run")
    await expect_raises(RowNotFoundError, row_of(store, "c"), "a run that was refused")
    open_group, _ = await store.group("open", who=ME)
    expect_equal((open_group.status, open_group.members), (GroupStatus.OPEN, 0), "the group that is open")
    other = replace(spawned("g", "of another").groups[0], who=OTHERS[2])
    await store.commit(Commit(groups=(other,)))
    expect_equal((await store.group("g", who=OTHERS[2]))[0].status, GroupStatus.SEALED, "the one of another session")


async def row_of(store: Store, run_id: str) -> None:
    """Look for a run.

    Raises:
        RowNotFoundError: there is none.
    """
    if not (await store.runs(RunQuery(run_ids=(run_id,)))).rows:
        raise RowNotFoundError(run_id)


def replaced(lease: Lease) -> Lease:
    """The lease of a worker that claims the run next."""
    return lease._replace(fence=lease.fence + 1)


SCENARIOS = (
    an_end_tells_how_the_group_stands,
    a_group_ends_with_its_last_member,
    a_group_is_sealed_with_its_first_members,
)
