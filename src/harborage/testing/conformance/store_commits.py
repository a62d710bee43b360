"""Scenarios of the store suite: what a commit changes, when it is refused, and that it is applied whole or not."""

from __future__ import annotations

import hashlib
from typing import Any

from harborage.store import (
    EVENT_STEP,
    Change,
    ChangeGroup,
    Commit,
    ControlRow,
    DecidePatch,
    EventQuery,
    GroupStatus,
    Lease,
    Move,
    NewEvent,
    NewGroup,
    NewPause,
    NewRun,
    PauseQuery,
    PauseStatus,
    RunQuery,
    SendControl,
    SettlePause,
    Status,
)
from harborage.store.errors import (
    CommitInvalidError,
    ControlLimitError,
    ControlsLeftError,
    EntryDamagedError,
    GroupClosedError,
    LeaseLostError,
    RowNotFoundError,
    RunCycleError,
    RunKnownError,
    RunLimitError,
    RunOverError,
    StatusConflictError,
)
from harborage.testing.conformance.checks import expect, expect_equal, expect_raises
from harborage.testing.conformance.store_bench import ME, OTHERS, StoreBench, claim, finish, row, send, start, step


async def a_run_is_its_row_and_its_journal(bench: StoreBench) -> None:
    """The values that a run was started with can be read; the row has a long goal cut short."""
    store = bench.store
    new = NewRun(run_id="r", who=ME, entries=(b"one", b"two"), goal="g" * 500, kind="foreground", priority=3)
    await store.commit(Commit(starts=(new,)))
    found = await row(store, "r")
    expect_equal((found.who, found.kind, found.priority, found.position), (ME, "foreground", 3, 2), "the row")
    expect_equal((len(found.about), found.status, found.is_woken), (200, Status.PENDING, True), "the row")
    expect_equal(await store.entries("r"), [b"one", b"two"], "the journal")
    expect_equal(await store.entries("r", after=1), [b"two"], "the journal behind the first entry")
    expect_equal(await store.entries("unknown"), [], "the journal of an unknown run")


async def a_run_can_be_claimed_by_the_commit_that_starts_it(bench: StoreBench) -> None:
    """A run that is started with a worker is that worker's, and no other claims it."""
    store = bench.store
    await store.join("one")
    lease = await start(store, "r", worker="one")
    await claim(store, "one")
    await store.commit(step(lease, 1, b"more"))
    expect_equal(await store.entries("r"), [b"started", b"more"], "the journal")


async def a_step_is_guarded_by_fence_and_position(bench: StoreBench) -> None:
    """A commit of another worker, an older fence or a wrong position writes nothing at all."""
    store = bench.store
    await store.join("one")
    lease = await start(store, "r", worker="one")
    wrong = (
        step(Lease("r", "two", 1), 1, b"x"),
        step(Lease("r", "one", 2), 1, b"x"),
        step(lease, 0, b"x"),
        step(lease, 2, b"x"),
        step(Lease("unknown", "one", 1), 1, b"x"),
    )
    for commit in wrong:
        new = NewRun(run_id="child", who=ME)
        full = Commit(
            guard=commit.guard,
            entries=commit.entries,
            starts=(new,),
            opens=(NewPause(token="t", run_id="r", who=ME, reason="approval_required"),),
            who=ME,
            events=(NewEvent(type="e", data=b"{}"),),
        )
        await expect_raises(LeaseLostError, store.commit(full), f"a commit under {commit.guard}")
    expect_equal(await store.entries("r"), [b"started"], "the journal")
    expect_equal((await store.runs(RunQuery(run_ids=("child",)))).rows, [], "the child of a refused commit")
    expect_equal((await store.pauses(PauseQuery(tokens=("t",)))).rows, [], "the pause of a refused commit")
    expect_equal(await store.events(EventQuery()), [], "the events of a refused commit")


async def a_commit_sent_again_changes_nothing(bench: StoreBench) -> None:
    """A step that was applied, and is sent once more because its answer was lost, is known again."""
    store = bench.store
    await store.join("one")
    lease = await start(store, "r", worker="one")
    commit = step(lease, 1, b"a", b"b", who=ME, events=(NewEvent(type="e", data=b"{}"),))
    first, again = await store.commit(commit), await store.commit(commit)
    expect_equal((first.is_again, again.is_again), (False, True), "is_again")
    expect_equal(await store.entries("r"), [b"started", b"a", b"b"], "the journal")
    expect_equal(len(await store.events(EventQuery())), 1, "events")
    await expect_raises(LeaseLostError, store.commit(step(lease, 1, b"a", b"other")), "another step at that position")


async def events_are_numbered_without_gaps_and_in_growing_sequence(bench: StoreBench) -> None:
    """Places count the events of a session; sequences grow over all of them, in steps."""
    store = bench.store
    for number in range(3):
        for who in (ME, OTHERS[0]):
            events = (NewEvent(type="a", data=b"1", run_id="r"), NewEvent(type="b", data=b"2"))
            done = await store.commit(Commit(who=who, events=events))
            expect_equal(done.place, 1 + 2 * number, "the place of the first event")
    every = await store.events(EventQuery())
    expect_equal([event.sequence for event in every], [EVENT_STEP * at for at in range(1, 13)], "sequences")
    mine = await store.events(EventQuery(tenant=ME.tenant_id, user=ME.user_id, session=ME.session_id))
    expect_equal([event.place for event in mine], [1, 2, 3, 4, 5, 6], "places")
    expect_equal({event.who for event in mine}, {ME}, "whose they are")
    expect_equal(
        [(event.type, event.data, event.run_id) for event in mine[:2]], [("a", b"1", "r"), ("b", b"2", "")], ""
    )
    behind = await store.events(EventQuery(after=every[9].sequence, limit=1))
    expect_equal([event.sequence for event in behind], [every[10].sequence], "the page behind a cursor")
    newest = await store.events(EventQuery(newest_first=True, limit=2))
    expect_equal([event.sequence for event in newest], [every[11].sequence, every[10].sequence], "the newest")


async def controls_reach_a_run_once_and_in_order(bench: StoreBench) -> None:
    """A control is read until it is consumed; its event id stays known afterwards."""
    store = bench.store
    await store.join("one")
    lease = await start(store, "r", worker="one")
    expect_equal([await send(store, "r", name) for name in ("a", "b", "a", "c")], [True, True, False, True], "new ones")
    controls = await store.controls("r")
    expect_equal([control.event_id for control in controls], ["a", "b", "c"], "unread controls")
    expect_equal((await row(store, "r")).unread, 3, "how many are unread")
    await store.commit(step(lease, 1, b"arrived", consumed=tuple(control.number for control in controls[:2])))
    expect_equal([control.event_id for control in await store.controls("r")], ["c"], "unread controls")
    expect_equal((await send(store, "r", "a"), (await row(store, "r")).unread), (False, 1), "one that was consumed")
    expect_equal(await store.controls("r", after=controls[2].number), [], "behind the last")
    known = [await store.was_sent(run_id, name) for run_id, name in (("r", "a"), ("r", "c"), ("r", "x"), ("x", "a"))]
    expect_equal(known, [True, True, False, False], "which were sent")


async def an_inbox_has_a_limit(bench: StoreBench) -> None:
    """A control above the limit is refused by name; one that was sent before is still known."""
    store = bench.store
    await start(store, "r")
    for number in range(3):
        await send(store, "r", f"c{number}", limit=3)
    await expect_raises(ControlLimitError, send(store, "r", "c3", limit=3), "the fourth of three")
    expect_equal(await send(store, "r", "c0", limit=3), False, "one that was sent before")
    expect_equal(await send(store, "r", "c3"), True, "one without a limit")


async def a_run_does_not_end_before_it_answered_its_controls(bench: StoreBench) -> None:
    """An end that leaves a control unread is refused and names it; with the control consumed the run ends."""
    store = bench.store
    await store.join("one")
    lease = await start(store, "r", worker="one")
    await send(store, "r", "late")
    end = Change(status=Status.COMPLETE)
    left: tuple[ControlRow, ...] = ()
    try:
        await store.commit(step(lease, 1, b"ended", change=end))
    except ControlsLeftError as error:
        left = error.controls
    expect_equal([control.event_id for control in left], ["late"], "the controls that are left")
    await send(store, "r", "later")
    twice = (left[0].number, left[0].number)
    ending = step(lease, 1, b"ended", change=end, consumed=twice)
    await expect_raises(ControlsLeftError, store.commit(ending), "an end that names one control twice, of two")
    every = tuple(one.number for one in await store.controls("r", after=0, limit=10))
    await store.commit(step(lease, 1, b"ended", change=end, consumed=every))
    found = await row(store, "r")
    expect_equal((found.status, found.owner, found.unread), (Status.COMPLETE, "", 0), "the row")
    await expect_raises(RunOverError, send(store, "r", "too late"), "a control after the end")
    await expect_raises(LeaseLostError, store.commit(step(lease, 2, b"more")), "a step after the end")


async def a_release_checks_for_controls_and_wakes(bench: StoreBench) -> None:
    """A run that is released while a control waits that its worker has not seen, or after it was woken, is ready at
    once."""
    store = bench.store
    await store.join("one")
    park = Change(status=Status.PAUSED, release=True)
    quiet = await start(store, "quiet", worker="one")
    await store.commit(step(quiet, 1, b"p", change=park))
    sent = await start(store, "sent", worker="one")
    await send(store, "sent", "c")
    await store.commit(step(sent, 1, b"p", change=park))
    woken = await start(store, "woken", worker="one")
    await store.commit(Commit(wakes=("woken",)))
    await store.commit(step(woken, 1, b"p", change=park))
    given_back = await start(store, "given back", worker="one")
    await store.commit(step(given_back, 1, change=Change(release=True, is_ready=True)))
    claimed = await claim(store, "one", "sent", "woken", "given back")
    expect_equal([control.event_id for control in claimed[0].controls], ["c"], "the controls of a claimed run")


async def the_end_of_a_run_wakes_its_waiters(bench: StoreBench) -> None:
    """A run that awaits another is ready when that ends, also when it had ended before."""
    store = bench.store
    await store.join("one")
    child = await start(store, "child", worker="one")
    waits = Change(status=Status.PAUSED, release=True, awaits="child")
    await store.commit(step(await start(store, "before", worker="one"), 1, b"w", change=waits))
    await claim(store, "one")
    await finish(store, child)
    await claim(store, "one", "before")
    await store.commit(step(await start(store, "after", worker="one"), 1, b"w", change=waits))
    await claim(store, "one", "after")


async def a_wait_for_a_missing_run_is_over(bench: StoreBench) -> None:
    """A run that awaits one that was deleted, or was never there, is ready at once."""
    store = bench.store
    await store.join("one")
    await finish(store, await start(store, "child", worker="one"))
    await store.delete(["child"])
    waits = Change(status=Status.PAUSED, release=True, awaits="child")
    await store.commit(step(await start(store, "parent", worker="one"), 1, b"w", change=waits))
    await claim(store, "one", "parent")


async def waits_form_no_cycle(bench: StoreBench) -> None:
    """A wait that leads back to the run is refused, through other runs and through groups; nothing is written."""
    store = bench.store
    await store.join("one")
    a, b = await start(store, "a", worker="one"), await start(store, "b", worker="one")
    await store.commit(Commit(groups=(NewGroup(group_id="g", who=ME),)))
    member = await start(store, "m", worker="one", group="g")

    def waits(target: str) -> Change:
        return Change(status=Status.PAUSED, release=True, awaits=target)

    await expect_raises(RunCycleError, store.commit(step(a, 1, b"w", change=waits("a"))), "a run for itself")
    await store.commit(step(a, 1, b"w", change=waits("b")))
    await expect_raises(RunCycleError, store.commit(step(b, 1, b"w", change=waits("a"))), "two for each other")
    await store.commit(step(b, 1, b"w", change=waits("g")))
    await expect_raises(RunCycleError, store.commit(step(member, 1, b"w", change=waits("a"))), "through a group")
    expect_equal(await store.entries("m"), [b"started"], "the journal of the refused one")


async def an_end_ends_what_belongs_to_the_run(bench: StoreBench) -> None:
    """The open pauses of a run that ends are cancelled, and its group counts it out."""
    store = bench.store
    await store.join("one")
    await store.commit(Commit(groups=(NewGroup(group_id="g", who=ME, owner="parent"),)))
    lease = await start(store, "r", worker="one", group="g")
    await store.commit(step(lease, 1, opens=(NewPause(token="t", run_id="r", who=ME, reason="await_input"),)))
    group, members = await store.group("g", who=ME)
    expect_equal((group.members, group.open_members, [one.run_id for one in members]), (1, 1, ["r"]), "the group")
    await finish(store, lease)
    group, _ = await store.group("g", who=ME)
    expect_equal((group.members, group.open_members), (1, 0), "the group after the end")
    (pause,) = (await store.pauses(PauseQuery(tokens=("t",)))).rows
    expect_equal(pause.status, PauseStatus.CANCELLED, "the pause after the end")


async def groups_change_only_from_an_allowed_status(bench: StoreBench) -> None:
    """A sealed group takes no members, a busy one does not resolve, one that has ended does not change."""
    store = bench.store
    await store.join("one")
    await store.commit(Commit(groups=(NewGroup(group_id="g", who=ME),)))
    lease = await start(store, "r", worker="one", group="g")
    seal = ChangeGroup(group_id="g", who=ME, expected=(GroupStatus.OPEN,), status=GroupStatus.SEALED)
    resolve = ChangeGroup(
        group_id="g", who=ME, expected=(GroupStatus.SEALED,), status=GroupStatus.COMPLETED, is_empty=True
    )
    await expect_raises(StatusConflictError, store.commit(Commit(groups=(resolve,))), "an open group")
    await store.commit(Commit(groups=(seal,)))
    await expect_raises(StatusConflictError, store.commit(Commit(groups=(seal,))), "one that is sealed")
    await expect_raises(GroupClosedError, start(store, "late", group="g"), "a member of a sealed group")
    await expect_raises(StatusConflictError, store.commit(Commit(groups=(resolve,))), "a busy group")
    await finish(store, lease)
    await store.commit(Commit(groups=(resolve,)))
    group, _ = await store.group("g", who=ME)
    expect_equal(group.status, GroupStatus.COMPLETED, "the group")
    expect(group.sealed_at is not None and group.ended_at is not None, "a group has its times")
    for who in OTHERS:
        await expect_raises(RowNotFoundError, store.group("g", who=who), f"the group of {who}")
    await expect_raises(RowNotFoundError, start(store, "lost", group="unknown"), "a group that is not there")


async def a_key_names_one_run_of_its_session(bench: StoreBench) -> None:
    """A second start with the same key finds the first run; another session has keys of its own."""
    store = bench.store
    await start(store, "first", key="k", fingerprint="f")
    for run_id, key in (("second", "k"), ("first", "")):
        try:
            await start(store, run_id, key=key, fingerprint="f")
        except RunKnownError as error:
            expect_equal((error.row.run_id, error.row.fingerprint), ("first", "f"), "the run that is known")
        else:
            expect(False, f"{run_id} with key {key!r} was started")
    for number, who in enumerate(OTHERS):
        await start(store, f"other{number}", who=who, key="k")


async def a_tree_has_limits(bench: StoreBench) -> None:
    """A parent has at most so many children, and a root so many runs below it."""
    store = bench.store
    await start(store, "root")
    more: dict[str, Any] = {"root": "root", "max_children": 2, "max_tree": 3}
    await start(store, "a", parent="root", **more)
    await start(store, "b", parent="root", **more)
    await expect_raises(RunLimitError, start(store, "c", parent="root", **more), "a third child")
    await start(store, "d", parent="a", **more)
    await expect_raises(RunLimitError, start(store, "e", parent="b", **more), "a fourth run below the root")
    expect_equal(((await row(store, "root")).children, (await row(store, "root")).tree), (2, 3), "the counts")


async def unleased_runs_are_moved_under_a_condition(bench: StoreBench) -> None:
    """A move is made from an expected status alone, and never of a run that a worker holds."""
    store = bench.store
    await start(store, "r")
    run = Move(run_id="r", expected=(Status.PENDING, Status.PAUSED), status=Status.RUNNING, tool_calls=2)
    await store.commit(Commit(moves=(run,)))
    await expect_raises(StatusConflictError, store.commit(Commit(moves=(run,))), "a move from elsewhere")
    await expect_raises(
        RowNotFoundError, store.commit(Commit(moves=(Move(run_id="x", expected=()),))), "an unknown run"
    )
    end = Move(run_id="r", expected=(Status.RUNNING,), status=Status.FAILED, reason="broken", entries=(b"ended",))
    await store.commit(Commit(moves=(end,)))
    found = await row(store, "r")
    expect_equal((found.status, found.reason, found.tool_count), (Status.FAILED, "broken", 2), "the row")
    expect_equal(await store.entries("r"), [b"started", b"ended"], "the journal")
    await store.join("one")
    await start(store, "held", worker="one")
    held = Move(run_id="held", expected=(Status.PENDING,), status=Status.CANCELLED)
    await expect_raises(StatusConflictError, store.commit(Commit(moves=(held,))), "a run that a worker holds")


async def a_patch_is_decided_once(bench: StoreBench) -> None:
    """A patch is opened once, decided once, and known in its session alone."""
    store = bench.store
    await store.commit(Commit(patches=(DecidePatch(patch_id="p", who=ME),)))
    accept = Commit(patches=(DecidePatch(patch_id="p", who=ME, decision="applied"),))
    await store.commit(accept)
    await expect_raises(StatusConflictError, store.commit(accept), "a second decision")
    patch = await store.patch("p", who=ME)
    expect(patch is not None and patch.decision == "applied" and patch.decided_at is not None, "the patch")
    for who in OTHERS:
        expect_equal(await store.patch("p", who=who), None, f"the patch of {who}")
        foreign = Commit(patches=(DecidePatch(patch_id="p", who=who, decision="applied"),))
        await expect_raises(RowNotFoundError, store.commit(foreign), "a foreign patch")


async def bodies_belong_to_the_runs_that_name_them(bench: StoreBench) -> None:
    """A body is stored once, read by the runs that name it, and deleted with the last of them."""
    store = bench.store
    await store.join("one")
    data = b"large" * 1000
    digest = hashlib.sha256(data).hexdigest()
    leases = {run_id: await start(store, run_id, worker="one") for run_id in ("a", "b", "c")}
    for run_id in ("a", "b"):
        await store.commit(step(leases[run_id], 1, b"named", bodies={digest: data}))
        expect_equal(await store.body(run_id, digest), data, "the body")
        await finish(store, leases[run_id], 2)
    await expect_raises(EntryDamagedError, store.body("c", digest), "a run that does not name it")
    expect_equal(await store.delete(["a", "c", "unknown"]), 1, "only what has ended is deleted")
    expect_equal(await store.body("b", digest), data, "the body of the other run")
    expect_equal((await store.entries("a"), (await store.runs(RunQuery(run_ids=("a",)))).rows), ([], []), "the deleted")


async def a_commit_without_a_meaning_is_refused(bench: StoreBench) -> None:
    """A commit that no store accepts is refused by name before anything is read."""
    store = bench.store
    lease = Lease("r", "one", 1)
    wrong = (
        Commit(entries=(b"x",)),
        Commit(change=Change()),
        Commit(events=(NewEvent(type="e", data=b"{}"),)),
        Commit(starts=(NewRun(run_id="", who=ME),)),
        Commit(starts=(NewRun(run_id="r", who=ME, status=Status.FAILED),)),
        Commit(settles=(SettlePause(token="t", status=PauseStatus.OPEN),)),
        Commit(take="one"),
        step(lease, 1, change=Change(wake_at=1)),
        step(lease, 1, change=Change(status=Status.COMPLETE, release=True)),
        step(lease, 1, change=Change(is_ready=True)),
        step(lease, 1, change=Change(seen_control=1)),
    )
    for commit in wrong:
        await expect_raises(CommitInvalidError, store.commit(commit), f"{commit}")
    await expect_raises(
        RowNotFoundError,
        store.commit(Commit(sends=(SendControl(run_id="x", event_id="e", type="PAUSE", data=b""),))),
        "a control for an unknown run",
    )


SCENARIOS = (
    a_run_is_its_row_and_its_journal,
    a_run_can_be_claimed_by_the_commit_that_starts_it,
    a_step_is_guarded_by_fence_and_position,
    a_commit_sent_again_changes_nothing,
    events_are_numbered_without_gaps_and_in_growing_sequence,
    controls_reach_a_run_once_and_in_order,
    an_inbox_has_a_limit,
    a_run_does_not_end_before_it_answered_its_controls,
    a_release_checks_for_controls_and_wakes,
    the_end_of_a_run_wakes_its_waiters,
    a_wait_for_a_missing_run_is_over,
    waits_form_no_cycle,
    an_end_ends_what_belongs_to_the_run,
    groups_change_only_from_an_allowed_status,
    a_key_names_one_run_of_its_session,
    a_tree_has_limits,
    unleased_runs_are_moved_under_a_condition,
    a_patch_is_decided_once,
    bodies_belong_to_the_runs_that_name_them,
    a_commit_without_a_meaning_is_refused,
)
