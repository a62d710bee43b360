"""Scenarios of the store suite: tasks that no worker executes, waits that others note, and groups until their end."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from harborage.store import (
    Change,
    ChangeGroup,
    Commit,
    GroupQuery,
    GroupRow,
    GroupStatus,
    Move,
    NewGroup,
    NewPause,
    NewRun,
    Orphan,
    PauseQuery,
    PauseStatus,
    RunQuery,
    SettlePause,
    Status,
    Store,
)
from harborage.store.errors import (
    CommitInvalidError,
    GroupClosedError,
    RowNotFoundError,
    RunCycleError,
    StatusConflictError,
)
from harborage.testing.conformance.checks import expect, expect_equal, expect_raises
from harborage.testing.conformance.store_bench import ME, OTHERS, StoreBench, claim, finish, row, send, start, step

MINE = GroupQuery(tenant=ME.tenant_id, user=ME.user_id, session=ME.session_id)


async def begin(store: Store, run_id: str, **more: Any) -> None:
    """Start a task that no worker executes."""
    await store.commit(Commit(starts=(NewRun(run_id=run_id, who=more.pop("who", ME), **more),)))


async def move(store: Store, run_id: str, **more: Any) -> None:
    """Change a live run as others than its worker do."""
    expected = (Status.PENDING, Status.RUNNING, Status.PAUSED)
    await store.commit(Commit(moves=(Move(run_id=run_id, expected=expected, **more),)))


async def change_group(store: Store, group_id: str, status: GroupStatus, **more: Any) -> GroupRow:
    """Change a group that has not ended; what it is now."""
    live = tuple(one for one in GroupStatus if not one.is_final)
    await store.commit(Commit(groups=(ChangeGroup(group_id=group_id, who=ME, expected=live, status=status, **more),)))
    return (await store.group(group_id, who=ME))[0]


async def nothing_makes_a_task_without_entries_claimable(bench: StoreBench) -> None:
    """Whatever is sent to it, answered or awaited, woken or unblocked: it is not ready, and not taken."""
    store = bench.store
    await store.join("one")
    await store.commit(Commit(groups=(NewGroup(group_id="g", who=ME),)))
    await begin(store, "task")
    await begin(store, "waits")
    await begin(store, "waits for a group")
    await begin(store, "member", group="g")
    await move(store, "waits", awaits="member")
    await move(store, "waits for a group", awaits="g")
    await store.commit(Commit(opens=(NewPause(token="t", run_id="task", who=ME, reason="await_input"),)))
    settle = SettlePause(token="t", status=PauseStatus.ANSWERED)
    expect_equal((await store.commit(Commit(settles=(settle,), take="one"))).taken, (), "what an answer takes")
    await send(store, "task", "event", take="one")
    await store.commit(Commit(wakes=("task",)))
    await move(store, "member", status=Status.COMPLETE)
    await change_group(store, "g", GroupStatus.COMPLETED)
    await store.unblock(["task"])
    await store.leave("one")
    await store.join("one")
    bench.later(100_000)
    await claim(store, "one")
    expect_equal(await store.next_due(), None, "when a task is due")
    for run_id in ("task", "waits", "waits for a group"):
        found = await row(store, run_id)
        expect_equal((found.is_woken, found.owner, found.position), (False, "", 0), f"the row of {run_id}")
    expect_equal(await store.orphans(), [], "tasks that no worker executes are no orphans")


async def what_was_asked_and_the_outcome_are_kept(bench: StoreBench) -> None:
    """Whole rows have both, and so have the members of a group; other rows are the same but for them."""
    store = bench.store
    await store.join("one")
    await store.commit(Commit(groups=(NewGroup(group_id="g", who=ME),)))
    odd, large = b"\x00\xff{}", b"large" * 10_000
    lease = await start(store, "run", worker="one", asked=odd, group="g")
    await begin(store, "task", asked=large, group="g")
    await begin(store, "bare", group="g")
    await store.commit(step(lease, 1, b"more", change=Change(tool_calls=1)))
    await move(store, "task", reason="waits")

    async def kept(query: RunQuery) -> dict[str, tuple[bytes, bytes]]:
        page = await store.runs(query)
        plain = {one.run_id: one for one in (await store.runs(replace(query, is_whole=False))).rows}
        for one in page.rows:
            shown = replace(plain[one.run_id], asked=one.asked, outcome=one.outcome)
            expect_equal(shown, one, f"the row of {one.run_id}, whole or not")
        return {one.run_id: (one.asked, one.outcome) for one in page.rows}

    whole = RunQuery(tenant=ME.tenant_id, user=ME.user_id, session=ME.session_id, is_whole=True)
    asked = {"run": (odd, b""), "task": (large, b""), "bare": (b"", b"")}
    expect_equal(await kept(whole), asked, "before they end")
    await store.commit(step(lease, 2, b"end", change=Change(status=Status.COMPLETE, outcome=large)))
    await move(store, "task", status=Status.FAILED, outcome=odd)
    ended = {"run": (odd, large), "task": (large, odd), "bare": (b"", b"")}
    expect_equal(await kept(whole), ended, "after their end")
    expect_equal(await kept(RunQuery(run_ids=("task",), is_whole=True)), {"task": ended["task"]}, "one of them")
    _, members = await store.group("g", who=ME)
    expect_equal({one.run_id: (one.asked, one.outcome) for one in members}, ended, "members")


async def others_note_what_a_run_waits_for(bench: StoreBench) -> None:
    """Only the run's worker may set it, and only at the expected position; the next claim, and "", remove it."""
    store = bench.store
    await store.join("one")
    held = await start(store, "held", worker="one")
    await start(store, "free")
    child = await start(store, "child", worker="one")
    for run_id in ("held", "free"):
        await move(store, run_id, awaits="child")
        expect_equal((await row(store, run_id)).awaits, "child", f"what {run_id} awaits")
    expect_equal((await row(store, "held")).owner, "one", "who holds it")
    wrong = Move(run_id="held", expected=(Status.PAUSED,), awaits="other")
    await expect_raises(StatusConflictError, store.commit(Commit(moves=(wrong,))), "a run that is elsewhere")
    await move(store, "held", awaits="")
    expect_equal((await row(store, "held")).awaits, "", "a wait that was taken away")
    await claim(store, "one", "free")
    expect_equal((await row(store, "free")).awaits, "child", "what a claimed run awaits")
    await move(store, "held", awaits="child")
    await store.commit(step(held, 1, change=Change(awaits="")))
    expect_equal((await row(store, "held")).awaits, "", "a wait that its worker took away")
    await finish(store, child)
    await store.commit(step(held, 1, b"p", change=Change(status=Status.PAUSED, release=True)))
    await claim(store, "one")


async def a_noted_wait_ends_with_what_it_waits_for(bench: StoreBench) -> None:
    """The end wakes a parked run; a wait that is noted after that end wakes no run, and neither does one given up."""
    store = bench.store
    await store.join("one")
    park = Change(status=Status.PAUSED, release=True)
    for run_id in ("waits", "late", "fickle"):
        await store.commit(step(await start(store, run_id, worker="one"), 1, b"p", change=park))
    child = await start(store, "child", worker="one")
    await move(store, "waits", awaits="child")
    await move(store, "fickle", awaits="child")
    await move(store, "fickle", awaits="nothing")
    await finish(store, child)
    await move(store, "late", awaits="child")
    await claim(store, "one", "waits")


async def the_end_of_a_group_wakes_its_own_session(bench: StoreBench) -> None:
    """A group is known by its id in its session alone: who awaits one of that id elsewhere is not woken by its end."""
    store = bench.store
    await store.join("one")
    for number, who in enumerate((ME, OTHERS[2])):
        await store.commit(Commit(groups=(NewGroup(group_id="g", who=who),)))
        lease = await start(store, f"r{number}", worker="one", who=who)
        waits = Change(status=Status.PAUSED, release=True, awaits="g")
        await store.commit(step(lease, 1, b"w", change=waits))
    await change_group(store, "g", GroupStatus.ENDING)
    await claim(store, "one")
    await change_group(store, "g", GroupStatus.CANCELLED)
    await claim(store, "one", "r0")


async def no_noted_wait_is_a_circle(bench: StoreBench) -> None:
    """A wait that others note, and one that the worker parks with, is refused where it leads back, through whatever
    is between; what has ended, and a group of another session, lead nowhere."""
    store = bench.store
    await store.join("one")
    elsewhere = OTHERS[2]
    groups = [NewGroup(group_id=name, who=who) for name, who in (("g", ME), ("ended", ME), ("g", elsewhere))]
    await store.commit(Commit(groups=tuple(groups)))
    for run_id, more in (
        ("a", {}),
        ("b", {}),
        ("c", {}),
        ("m", {"group": "g"}),
        ("e", {"group": "ended"}),
        ("f", {"who": elsewhere}),
        ("gone", {}),
    ):
        await begin(store, run_id, **more)
    lease = await start(store, "held", worker="one")
    await change_group(store, "ended", GroupStatus.CANCELLED)

    async def is_circle(run_id: str, target: str) -> None:
        await expect_raises(RunCycleError, move(store, run_id, awaits=target), f"{run_id} for {target}")
        expect_equal((await row(store, run_id)).awaits, "", f"what {run_id} awaits")

    await is_circle("a", "a")
    await move(store, "a", awaits="b")
    await is_circle("b", "a")
    await move(store, "b", awaits="g")
    await is_circle("m", "a")
    await is_circle("m", "g")
    await move(store, "e", awaits="ended")
    await move(store, "f", awaits="g")
    await move(store, "gone", awaits="held")
    await move(store, "gone", status=Status.CANCELLED)
    await move(store, "m", awaits="gone")
    await move(store, "c", awaits="held")
    park = Change(status=Status.PAUSED, release=True, awaits="c")
    await expect_raises(RunCycleError, store.commit(step(lease, 1, change=park)), "a worker that parks")
    await move(store, "c", awaits="")
    await store.commit(step(lease, 1, change=park))


async def a_move_ends_a_run_as_its_worker_does(bench: StoreBench) -> None:
    """Its open pauses are cancelled, its group counts it out, those that await it or its group wake; unread controls
    are no hindrance, and go with the run. What a worker holds is not ended by others."""
    store = bench.store
    await store.join("one")
    await store.commit(Commit(groups=(NewGroup(group_id="g", who=ME),)))
    await begin(store, "r", group="g")
    await start(store, "stays", group="g", worker="one")
    waits = {"for the run": "r", "for its group": "g"}
    for run_id, target in waits.items():
        park = Change(status=Status.PAUSED, release=True, awaits=target)
        await store.commit(step(await start(store, run_id, worker="one"), 1, b"w", change=park))
    await store.commit(Commit(opens=(NewPause(token="t", run_id="r", who=ME, reason="await_input"),)))
    await move(store, "r", awaits="stays")
    await send(store, "r", "unread")
    await move(store, "r", status=Status.CANCELLED, reason="user")
    found = await row(store, "r")
    expect_equal((found.status, found.reason, found.owner), (Status.CANCELLED, "user", ""), "the row")
    expect_equal((found.awaits, found.wake_at, found.is_woken), ("", None, False), "what it waits for")
    (pause,) = (await store.pauses(PauseQuery(tokens=("t",)))).rows
    expect_equal(pause.status, PauseStatus.CANCELLED, "its pause")
    group, _ = await store.group("g", who=ME)
    expect_equal((group.members, group.open_members), (2, 1), "its group")
    await claim(store, "one", *waits)
    await expect_raises(StatusConflictError, move(store, "stays", status=Status.CANCELLED), "a run that is held")
    expect_equal(await store.delete(["r"]), 1, "how many were deleted")
    expect_equal(await store.controls("r"), [], "the controls of the deleted run")


async def a_run_ends_in_any_final_status(bench: StoreBench) -> None:
    """Cancelled by its own worker it has ended as one that completed or failed has."""
    store = bench.store
    await store.join("one")
    for status in (Status.COMPLETE, Status.FAILED, Status.CANCELLED):
        name = status.value
        await store.commit(Commit(groups=(NewGroup(group_id=name, who=ME),)))
        lease = await start(store, name, worker="one", group=name)
        await store.commit(step(lease, 1, opens=(NewPause(token=name, run_id=name, who=ME, reason="await_input"),)))
        await store.commit(step(lease, 1, b"ended", change=Change(status=status, reason="code")))
        found = await row(store, name)
        expect_equal((found.status, found.reason, found.owner), (status, "code", ""), "the row")
        (pause,) = (await store.pauses(PauseQuery(tokens=(name,)))).rows
        group, _ = await store.group(name, who=ME)
        expect_equal((pause.status, group.open_members), (PauseStatus.CANCELLED, 0), "what belongs to it")
    counts = (await store.count_runs(RunQuery(tenant=ME.tenant_id))).by_status
    expect_equal((counts[Status.CANCELLED], counts[Status.COMPLETE]), (1, 1), "counts by status")


async def a_group_ends_in_steps(bench: StoreBench) -> None:
    """One that is ending takes no members and has not ended; a change without a reason keeps the one that was given,
    and nothing happens by itself once the last member has ended."""
    store = bench.store
    await store.commit(Commit(groups=(NewGroup(group_id="g", who=ME), NewGroup(group_id="h", who=ME))))
    await begin(store, "r", group="g")
    group = await change_group(store, "g", GroupStatus.SEALED)
    expect_equal((group.status, group.ended_at), (GroupStatus.SEALED, None), "a sealed group")
    sealed_at = group.sealed_at
    bench.later(1)
    group = await change_group(store, "g", GroupStatus.ENDING, reason="deadline")
    expect_equal((group.reason, group.sealed_at, group.ended_at), ("deadline", sealed_at, None), "an ending group")
    await expect_raises(GroupClosedError, begin(store, "late", group="g"), "a member of an ending group")
    await move(store, "r", status=Status.CANCELLED)
    group, _ = await store.group("g", who=ME)
    expect_equal((group.status, group.open_members), (GroupStatus.ENDING, 0), "a group whose members have ended")
    group = await change_group(store, "g", GroupStatus.CANCELLED)
    expect_equal((group.status, group.reason), (GroupStatus.CANCELLED, "deadline"), "the group that has ended")
    expect(group.ended_at is not None, "a group that has ended says when")
    group = await change_group(store, "h", GroupStatus.COMPLETED, reason="done")
    expect_equal((group.reason, group.sealed_at), ("done", None), "a group that was never sealed")
    expect(group.ended_at is not None, "a group that has ended says when")


async def groups_are_found_by_whose_and_how_they_are(bench: StoreBench) -> None:
    """By identity, id and status, newest first and page by page; and those whose members have all ended."""
    store = bench.store
    for number, who in enumerate((ME, *OTHERS, ME, ME)):
        group = NewGroup(group_id=f"g{number}", who=who, owner="o", description="what for", deadline=7, fails_fast=True)
        await store.commit(Commit(groups=(group, NewGroup(group_id="same", who=who))))
        bench.later(1)
    await begin(store, "ended", group="g0")
    await begin(store, "live", group="g4")
    await begin(store, "other", group="g1", who=OTHERS[0])
    for run_id in ("ended", "other"):
        await move(store, run_id, status=Status.COMPLETE)
    await change_group(store, "g0", GroupStatus.SEALED)
    await change_group(store, "g5", GroupStatus.CANCELLED)
    live = (GroupStatus.OPEN, GroupStatus.SEALED, GroupStatus.ENDING)
    user = GroupQuery(tenant=ME.tenant_id, user=ME.user_id)
    for query, wanted in (
        (MINE, ["g5", "g4", "same", "g0"]),
        (user, ["g5", "g4", "same", "g3", "same", "g0"]),
        (replace(user, user=""), ["g5", "g4", "same", "g3", "same", "g2", "same", "g0"]),
        (GroupQuery(), ["g5", "g4", "same", "g3", "same", "g2", "same", "g1", "same", "g0"]),
        (GroupQuery(group_ids=("g1", "g4", "nobody")), ["g4", "g1"]),
        (replace(MINE, group_ids=("g1", "g4", "same")), ["g4", "same"]),
        (replace(MINE, statuses=(GroupStatus.SEALED, GroupStatus.CANCELLED)), ["g5", "g0"]),
        (replace(MINE, statuses=live, only_empty=True), ["g0"]),
        (GroupQuery(statuses=live, only_empty=True), ["g1", "g0"]),
        (replace(MINE, session="nobody"), []),
    ):
        rows = (await store.groups(query)).rows
        expect_equal([one.group_id for one in sorted(rows, key=order, reverse=True)], wanted, f"{query}")
        expect_equal(rows, sorted(rows, key=order, reverse=True), f"the order of {query}")
    (found,) = (await store.groups(replace(MINE, group_ids=("g4",)))).rows
    expect_equal((found.owner, found.description, found.deadline, found.members), ("o", "what for", 7, 1), "a group")
    expect_equal(found, (await store.group("g4", who=ME))[0], "a group of a list, and one by its id")
    await pages_go_through_the_groups_once(store)


def order(group: GroupRow) -> tuple[int, int]:
    """The order of groups in a list, from the oldest on."""
    return group.created_at, group.number


async def pages_go_through_the_groups_once(store: Store) -> None:
    """Page by page the list is the same as in one piece."""
    whole = (await store.groups(GroupQuery())).rows
    query, seen = GroupQuery(limit=3), list[GroupRow]()
    while True:
        page = await store.groups(query)
        seen += page.rows
        if page.cursor is None:
            break
        query = replace(query, after=page.cursor)
    expect_equal(seen, whole, "the pages of all groups")


async def a_group_that_has_ended_goes_with_the_last_of_its_members(bench: StoreBench) -> None:
    """As long as one member is kept so is the group; one that has not ended stays without any."""
    store = bench.store
    for who in (ME, OTHERS[2]):
        await store.commit(Commit(groups=tuple(NewGroup(group_id=name, who=who) for name in ("ended", "open"))))
    for run_id, name in (("a", "ended"), ("b", "ended"), ("c", "open")):
        await begin(store, run_id, group=name)
    await begin(store, "theirs", group="ended", who=OTHERS[2])
    for run_id in ("a", "b", "c"):
        await move(store, run_id, status=Status.COMPLETE)
    await change_group(store, "ended", GroupStatus.COMPLETED)
    await store.delete(["a", "c"])
    group, members = await store.group("ended", who=ME)
    expect_equal((group.members, [one.run_id for one in members]), (2, ["b"]), "a group that lost a member")
    await store.delete(["b"])
    await expect_raises(RowNotFoundError, store.group("ended", who=ME), "the group without members")
    expect_equal([one.group_id for one in (await store.groups(MINE)).rows], ["open"], "the groups of the session")
    await store.group("ended", who=OTHERS[2])


async def orphaned_tasks_and_groups_are_found(bench: StoreBench) -> None:
    """A task of a parent that has ended, and a group that takes no members more and has no live one, are found."""
    store = bench.store
    await store.join("one")
    names = ("sealed", "ending", "open", "busy", "unused", "ended")
    await store.commit(Commit(groups=tuple(NewGroup(group_id=name, who=ME, owner="parent") for name in names)))
    parent = await start(store, "parent", worker="one")
    for name in set(names) - {"unused"}:
        await begin(store, f"in {name}", group=name)
    await begin(store, "cascades", parent="parent", root="parent")
    await begin(store, "stays", parent="parent", root="parent", is_cascading=False)
    await begin(store, "paused", status=Status.PAUSED)
    for name in set(names) - {"open"}:
        await change_group(store, name, GroupStatus.ENDING if name == "ending" else GroupStatus.SEALED)
    for name in ("sealed", "ending", "open", "ended"):
        await move(store, f"in {name}", status=Status.COMPLETE)
    await change_group(store, "ended", GroupStatus.COMPLETED)
    groups = [Orphan(kind="group_not_ended", subject=name, run_id="parent") for name in ("ending", "sealed")]
    expect_equal(sorted(await store.orphans(), key=lambda one: one.subject), groups, "while the parent lives")
    await finish(store, parent)
    task = Orphan(kind="parent_ended", subject="cascades", run_id="cascades")
    expect_equal(sorted(await store.orphans(), key=lambda one: one.subject), [task, *groups], "after its end")


async def tasks_and_waits_without_a_meaning_are_refused(bench: StoreBench) -> None:
    """A worker for a task that no worker executes, a wait of what has ended, and two waits that cannot be compared."""
    store = bench.store
    for run_id in ("a", "b", "c"):
        await begin(store, run_id)
    live = (Status.PENDING,)
    for commit in (
        Commit(starts=(NewRun(run_id="r", who=ME, worker="one"),)),
        Commit(moves=(Move(run_id="a", expected=tuple(Status), awaits="b"),)),
        Commit(moves=(Move(run_id="a", expected=live, status=Status.COMPLETE, awaits="b"),)),
        Commit(moves=(Move(run_id="a", expected=live, awaits="b"), Move(run_id="b", expected=live, awaits="c"))),
    ):
        await expect_raises(CommitInvalidError, store.commit(commit), f"{commit}")


SCENARIOS = (
    nothing_makes_a_task_without_entries_claimable,
    what_was_asked_and_the_outcome_are_kept,
    others_note_what_a_run_waits_for,
    a_noted_wait_ends_with_what_it_waits_for,
    the_end_of_a_group_wakes_its_own_session,
    no_noted_wait_is_a_circle,
    a_move_ends_a_run_as_its_worker_does,
    a_run_ends_in_any_final_status,
    a_group_ends_in_steps,
    groups_are_found_by_whose_and_how_they_are,
    a_group_that_has_ended_goes_with_the_last_of_its_members,
    orphaned_tasks_and_groups_are_found,
    tasks_and_waits_without_a_meaning_are_refused,
)
