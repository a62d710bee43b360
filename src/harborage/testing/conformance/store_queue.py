"""Scenarios of the store suite: which worker executes which run, and when a run is ready."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from harborage.store import Change, Commit, Lease, NewPause, PauseStatus, SettlePause, Status
from harborage.store.errors import LeaseLostError, WorkerKnownError
from harborage.store.port import MAX_ATTEMPTS
from harborage.testing.conformance.checks import expect, expect_equal, expect_raises
from harborage.testing.conformance.store_bench import ME, StoreBench, claim, finish, row, send, start, step

if TYPE_CHECKING:
    from harborage.store import Store


async def a_claim_returns_row_journal_and_controls(bench: StoreBench) -> None:
    """Row, journal and unread controls come with the claim; the run is running under a new fence."""
    store = bench.store
    await store.join("one")
    await start(store, "r")
    await send(store, "r", "c")
    (claimed,) = await claim(store, "one", "r")
    expect_equal(claimed.entries, [b"started"], "the journal")
    expect_equal([control.event_id for control in claimed.controls], ["c"], "the controls")
    expect_equal(claimed.row, await row(store, "r"), "the row")
    expect_equal((claimed.row.owner, claimed.row.fence, claimed.row.status), ("one", 1, Status.RUNNING), "the row")
    await claim(store, "one")


async def every_run_is_claimed_by_one_worker(bench: StoreBench) -> None:
    """Workers that claim at the same moment share the runs without overlap."""
    one, two = bench.store, await bench.another()
    await one.join("one")
    await two.join("two")
    for number in range(40):
        await start(one, f"r{number:02}")
    rounds = await asyncio.gather(
        *(store.claim(worker, limit=3) for _ in range(14) for store, worker in ((one, "one"), (two, "two")))
    )
    got = sorted(claimed.row.run_id for claims in rounds for claimed in claims)
    expect_equal(got, [f"r{number:02}" for number in range(40)], "the runs that were claimed")


async def priority_comes_first_then_age(bench: StoreBench) -> None:
    """Among ready runs the highest priority is claimed first, and of equals the oldest."""
    store = bench.store
    await store.join("one")
    for run_id, priority in (("low", -1), ("first", 0), ("second", 0), ("high", 9)):
        await start(store, run_id, priority=priority)
    (high,) = await store.claim("one", limit=1)
    expect_equal(high.row.run_id, "high", "the first claim")
    await claim(store, "one", "first", "second", "low")


async def an_agent_claims_its_own_runs(bench: StoreBench) -> None:
    """With agents only their runs are claimed, and those that name none."""
    store = bench.store
    await store.join("one")
    for run_id, agent in (("mine", "a"), ("other", "b"), ("third", 'c"'), ("any", "")):
        await start(store, run_id, agent=agent)
    got = {claimed.row.run_id for claimed in await store.claim("one", agents=["a", 'c"', "unknown"])}
    expect_equal(got, {"mine", "third", "any"}, "what a worker of the agents a and c claims")
    await claim(store, "one", "other")


async def a_time_makes_a_run_ready(bench: StoreBench) -> None:
    """A run that waits for a time is ready once it has come, and not before."""
    store = bench.store
    await store.join("one")
    lease = await start(store, "r", worker="one")
    now = (await row(store, "r")).created_at
    wait = Change(status=Status.PAUSED, release=True, wake_at=now + 10_000_000)
    await store.commit(step(lease, 1, b"w", change=wait))
    await claim(store, "one")
    expect_equal(await store.next_due(), now + 10_000_000, "when the next run is due")
    await start(store, "ready", agent="a")
    expect_equal(await store.next_due(), 0, "when the next run is ready beside one that is ready now")
    expect_equal(await store.next_due(agents=["b"]), now + 10_000_000, "when the next run of another agent is ready")
    await claim(store, "one", "ready")
    bench.later(11)
    (claimed,) = await claim(store, "one", "r")
    expect_equal((claimed.row.wake_at, await store.next_due()), (None, None), "what is due after the claim")


async def a_run_falls_due_for_the_workers_of_its_agent(bench: StoreBench) -> None:
    """A claim for another agent, made when the time has come, leaves the run due: its own worker asks for that time."""
    store = bench.store
    await store.join("one")
    await store.join("two")
    lease = await start(store, "r", worker="one", agent="a")
    due = (await row(store, "r")).created_at + 10_000_000
    await store.commit(step(lease, 1, b"w", change=Change(status=Status.PAUSED, release=True, wake_at=due)))
    bench.later(11)
    expect_equal(await store.claim("two", agents=["b", "c"]), [], "what agents b and c claim")
    expect_equal(await store.next_due(agents=["b", "a"]), due, "when the next run of agent a is due")
    (claimed,) = await store.claim("one", agents=["a"])
    expect_equal((claimed.row.run_id, await store.next_due(agents=["a"])), ("r", None), "what agent a claims")


async def a_new_claim_ends_the_old_lease(bench: StoreBench) -> None:
    """What a worker gave back and another claimed cannot be written under the old lease."""
    store = bench.store
    await store.join("one")
    await store.join("two")
    old = await start(store, "r", worker="one")
    await store.commit(step(old, 1, change=Change(release=True, is_ready=True)))
    (claimed,) = await claim(store, "two", "r")
    await expect_raises(LeaseLostError, store.commit(step(old, 1, b"late")), "a step under the old lease")
    opens = (NewPause(token="t", run_id="r", who=ME, reason="await_input"),)
    await expect_raises(LeaseLostError, store.commit(step(old, 1, opens=opens)), "a pause under the old lease")
    await store.commit(step(claimed.row.lease, 1, b"new"))


async def a_worker_that_leaves_frees_its_runs(bench: StoreBench) -> None:
    """Running runs of a worker that left are ready for another one."""
    store = bench.store
    await store.join("one")
    await store.join("two")
    await start(store, "a", worker="one")
    await store.leave("one")
    (claimed,) = await claim(store, "two", "a")
    expect_equal(claimed.row.fence, 2, "the fence")


async def a_name_is_one_workers(bench: StoreBench) -> None:
    """A second worker cannot have the name of a live one, and the refusal changes nothing for the first."""
    one, two = bench.store, await bench.another()
    await one.join("one")
    await start(one, "r", worker="one")
    for store, whose in ((two, "a second worker"), (one, "a second worker of the same process")):
        await expect_raises(WorkerKnownError, store.join("one"), f"{whose} of that name")
    if two is not one:
        await two.leave("one")
    await one.beat("one")
    await two.join("two")
    await two.look("two")
    await claim(two, "two")
    await one.leave("one")
    await one.join("one")
    await claim(one, "one", "r")


async def a_run_without_progress_is_blocked(bench: StoreBench) -> None:
    """A run that is claimed again and again without progress is not claimed for ever; it can be unblocked. Listeners
    are notified that it is blocked."""
    store = bench.store
    notified = asyncio.Event()
    store.on_change(notified.set)
    await store.join("one")
    await start(store, "r")
    for _ in range(MAX_ATTEMPTS):
        (claimed,) = await claim(store, "one", "r")
        await store.commit(step(claimed.row.lease, 1, change=Change(release=True, is_ready=True)))
    await row(store, "r")  # earlier notices have arrived by now
    notified.clear()
    await claim(store, "one")
    async with asyncio.timeout(20):
        await notified.wait()
    expect("progress" in (await row(store, "r")).blocked, "a blocked run says why")
    expect_equal(await store.unblock(["r", "unknown"]), 1, "how many were blocked")
    (claimed,) = await claim(store, "one", "r")
    progress = Change(progress=True, release=True, is_ready=True)
    await store.commit(step(claimed.row.lease, 1, b"more", change=progress))
    expect_equal((await row(store, "r")).attempts, 0, "attempts after progress")


async def a_blocked_run_is_left_alone(bench: StoreBench) -> None:
    """A run that its worker blocked keeps its controls and is not claimed until it is unblocked."""
    store = bench.store
    await store.join("one")
    lease = await start(store, "r", worker="one")
    await store.commit(step(lease, 1, change=Change(blocked="other code", release=True)))
    await send(store, "r", "c")
    await claim(store, "one")
    await store.unblock(["r"])
    (claimed,) = await claim(store, "one", "r")
    expect_equal(([one.event_id for one in claimed.controls], claimed.row.blocked), (["c"], ""), "the claimed run")


async def an_unblocked_run_is_ready(bench: StoreBench) -> None:
    """An unblocked run is taken by the next claim."""
    store = bench.store
    await store.join("one")
    lease = await start(store, "r", worker="one")
    await store.commit(step(lease, 1, change=Change(blocked="other code", release=True)))
    await claim(store, "one")
    await store.unblock(["r"])
    await claim(store, "one", "r")


async def listeners_are_called_after_commits(bench: StoreBench) -> None:
    """A listener is called after a commit of this process, until it is removed."""
    store = bench.store
    called = asyncio.Event()
    stop = store.on_change(called.set)
    await store.commit(Commit(wakes=("unknown",)))
    async with asyncio.timeout(20):
        await called.wait()
    stop()
    called.clear()
    await start(store, "r")
    await asyncio.sleep(0)
    expect(not called.is_set(), "a removed listener is not called")


async def a_worker_gets_its_runs_with_controls(bench: StoreBench) -> None:
    """The store names the runs of a worker that have unconsumed controls, each with its last one."""
    store = bench.store
    await store.join("one")
    for run_id in ("a", "b", "quiet"):
        await start(store, run_id)
    claimed = {one.row.run_id: one for one in await store.claim("one")}
    expect_equal(await store.unread("one"), {}, "runs with mail before there is any")
    for run_id, event_id in (("a", "1"), ("b", "2"), ("a", "3")):
        await send(store, run_id, event_id)
    mail = {run_id: await store.controls(run_id) for run_id in ("a", "b")}
    expect_equal([control.event_id for control in mail["a"]], ["1", "3"], "the controls of a")
    expect_equal(await store.controls("a", after=mail["a"][0].number), mail["a"][1:], "those behind the first")
    both = sorted((*mail["a"], *mail["b"]), key=lambda control: control.number)
    after = {"a": 0, "b": 0, "quiet": 0, "unknown": 0}
    expect_equal(await store.controls_of(after), both, "those of many runs, in the order they came")
    after["a"] = mail["a"][0].number
    expect_equal(await store.controls_of(after), both[1:], "those behind the first of a")
    expect_equal(await store.controls_of({"a": 0, "b": 0}, limit=1), both[:2], "the first of each")
    expect_equal(await store.controls_of({}), [], "those of none")
    expect_equal(await store.unread("one"), {run_id: found[-1].number for run_id, found in mail.items()}, "the mail")
    expect_equal(await store.unread("two"), {}, "the mail of another worker")
    numbers = tuple(control.number for control in mail["a"])
    await store.commit(step(claimed["a"].row.lease, 1, b"read", consumed=numbers))
    expect_equal(list(await store.unread("one")), ["b"], "what is left")


async def what_a_worker_has_seen_wakes_no_run(bench: StoreBench) -> None:
    """Controls that a worker had seen stay unread in a released run, which the next one makes ready; they come in the
    order in which they were sent."""
    store = bench.store
    await store.join("one")
    lease = await start(store, "r", worker="one")
    await _mail(store, "r", "a", "b")
    last = (await store.controls("r"))[-1].number
    await store.commit(step(lease, 1, b"waits", change=_waits(last)))
    await claim(store, "one")
    found = await row(store, "r")
    expect_equal((found.unread, found.seen_control, found.is_woken, found.owner), (2, last, False, ""), "the row")
    await send(store, "r", "b")
    await claim(store, "one")
    await send(store, "r", "c")
    (claimed,) = await claim(store, "one", "r")
    expect_equal([control.event_id for control in claimed.controls], ["a", "b", "c"], "the controls")
    every = tuple(control.number for control in claimed.controls)
    await store.commit(step(claimed.row.lease, 2, b"reads", consumed=every, change=_waits(every[0])))
    await claim(store, "one")
    await send(store, "r", "d")
    await claim(store, "one", "r")


async def what_a_worker_has_not_seen_makes_its_run_ready(bench: StoreBench) -> None:
    """Also a control that came between the worker's last look and its release, unless that release consumes it."""
    store = bench.store
    await store.join("one")
    for run_id, seen, taken in (("some", 0, ()), ("none", None, ()), ("all", 1, ()), ("took", 0, (1,))):
        lease = await start(store, run_id, worker="one")
        await _mail(store, run_id, "a", "b")
        numbers = [control.number for control in await store.controls(run_id)]
        change = _waits(0 if seen is None else numbers[seen])
        await store.commit(step(lease, 1, b"waits", consumed=tuple(numbers[at] for at in taken), change=change))
    await claim(store, "one", "some", "none")


async def what_a_worker_has_seen_keeps_no_other_cause_from_its_run(bench: StoreBench) -> None:
    """A wake, an answered pause, an end, a time and the death of a worker make a run ready, whatever it had seen."""
    store = bench.store
    await store.join("one")
    await store.join("two")
    pause = NewPause(token="t", run_id="asks", who=ME, reason="await_input")
    ended, ends = await start(store, "ended", worker="one"), await start(store, "ends", worker="one")
    await finish(store, ended)
    last = await _waiting(store, "woken", "woken before", "asks", "dies")
    await store.commit(Commit(wakes=("woken before",)))
    await _park(store, "woken", "woken before", change=_waits(last))
    await _park(store, "asks", change=_waits(last), opens=(pause,))
    await store.commit(Commit(wakes=("woken",), settles=(SettlePause(token="t", status=PauseStatus.ANSWERED),)))
    last = await _waiting(store, "joins", "joined", "due")
    now = (await row(store, "due")).created_at
    await _park(store, "joins", change=_waits(last, awaits="ends"))
    await _park(store, "joined", change=_waits(last, awaits="ended"))
    await _park(store, "due", change=_waits(last, wake_at=now + 10_000_000))
    await claim(store, "two", "woken", "woken before", "asks", "joined")
    await finish(store, ends)
    await claim(store, "two", "joins")
    bench.later(11)
    await claim(store, "two", "due")
    await store.leave("one")
    await claim(store, "two", "dies")


async def no_control_is_missed_by_a_release(bench: StoreBench) -> None:
    """Controls are sent by others at the very moment of the release: a run is ready exactly if one came that its worker
    had not seen, and it gets all of them in order."""
    one, two = bench.store, await bench.another()
    await one.join("one")
    names = [f"r{number:02}" for number in range(30)]
    for run_id in names:
        lease = await start(one, run_id, worker="one")
        await _mail(one, run_id, "a")
        seen = (await one.controls(run_id))[-1].number
        await asyncio.gather(
            _mail(two, run_id, "b", "c"), one.commit(step(lease, 1, b"waits", change=_waits(seen))), _mail(one, run_id)
        )
        (claimed,) = await claim(one, "one", run_id)
        expect_equal([control.event_id for control in claimed.controls], ["a", "b", "c"], "the controls")
        seen = claimed.controls[-1].number
        await asyncio.gather(
            one.commit(step(claimed.row.lease, 2, b"waits", change=_waits(seen))), send(two, run_id, "c")
        )
        await claim(one, "one")


def _waits(seen: int, **more: Any) -> Change:
    return Change(status=Status.PAUSED, release=True, seen_control=seen, **more)


async def _mail(store: Store, run_id: str, *event_ids: str) -> None:
    for event_id in event_ids:
        await send(store, run_id, event_id)


async def _waiting(store: Store, *run_ids: str) -> int:
    """Start runs of worker one, each with a control; the number of the last one."""
    for run_id in run_ids:
        await start(store, run_id, worker="one")
        await send(store, run_id, "a")
    return (await store.controls(run_ids[-1]))[-1].number


async def _park(store: Store, *run_ids: str, **more: Any) -> None:
    for run_id in run_ids:
        await store.commit(step(Lease(run_id, "one", 1), 1, b"waits", **more))


async def only_relevant_commits_call_listeners(bench: StoreBench) -> None:
    """A step that no run or worker waits for calls no listener."""
    store = bench.store
    await store.join("one")
    lease = await start(store, "r", worker="one")
    called, calls = asyncio.Event(), list[None]()

    def listen() -> None:
        calls.append(None)
        called.set()

    store.on_change(listen)
    for position in range(1, 20):
        await store.commit(step(lease, position, b"step"))
    await store.commit(step(lease, 20, change=Change(release=True, is_ready=True)))
    async with asyncio.timeout(20):
        await called.wait()
    expect(len(calls) < 5, f"steps wake no listener; it was called {len(calls)} times")


SCENARIOS = (
    a_worker_gets_its_runs_with_controls,
    what_a_worker_has_seen_wakes_no_run,
    what_a_worker_has_not_seen_makes_its_run_ready,
    what_a_worker_has_seen_keeps_no_other_cause_from_its_run,
    no_control_is_missed_by_a_release,
    only_relevant_commits_call_listeners,
    a_claim_returns_row_journal_and_controls,
    every_run_is_claimed_by_one_worker,
    priority_comes_first_then_age,
    an_agent_claims_its_own_runs,
    a_time_makes_a_run_ready,
    a_run_falls_due_for_the_workers_of_its_agent,
    a_new_claim_ends_the_old_lease,
    a_worker_that_leaves_frees_its_runs,
    a_name_is_one_workers,
    a_run_without_progress_is_blocked,
    a_blocked_run_is_left_alone,
    an_unblocked_run_is_ready,
    listeners_are_called_after_commits,
)
