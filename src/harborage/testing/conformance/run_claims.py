"""Scenarios of the run suite: who carries which run, when a run is ready, and what is sent to it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from harborage.state.runs import (
    LeaseLostError,
    QueueFullError,
    RunFilter,
    RunRecordNotFoundError,
    Sent,
    Stand,
    Standing,
    Write,
)
from harborage.testing.conformance.checks import expect, expect_equal, expect_raises
from harborage.testing.conformance.storage_bench import StorageBench, a_record, begin, find, ids, living, take

if TYPE_CHECKING:
    from harborage.state.storage import Storage

__all__ = ["SCENARIOS"]

MANY = 100
PAST = datetime(2020, 1, 1, tzinfo=UTC)
FUTURE = datetime(2120, 1, 1, tzinfo=UTC)
PARKED = Standing(stand=Stand.PARKED)
# Long enough for a loaded machine; what is waited for comes within a fraction of a second.
PATIENCE_S = 20.0


async def park(storage: Storage, run_id: str, standing: Standing = PARKED, *, agent: str = "") -> None:
    """Make a run that nobody carries and that waits."""
    await storage.runs.create(a_record(run_id, agent=agent), Write(entries=(b"started",), standing=standing))


async def a_run_is_claimed_once(bench: StorageBench) -> None:
    """A claim gives the record as it now stands and a lease; nobody else gets the run meanwhile."""
    storage = bench.storage
    await begin(storage, "r")
    async with living(storage.queue, "one", "two"):
        (claim,) = await storage.queue.claim("one")
        expect_equal(claim.record, await find(storage, "r"), "the record of the claim")
        expect_equal((claim.record.owner, claim.record.fence), ("one", claim.lease.fence), "owner and fence")
        expect_equal((claim.lease.run_id, claim.lease.worker), ("r", "one"), "the lease")
        expect_equal(await storage.queue.claim("two"), [], "what another worker can claim")
        expect_equal(await storage.queue.claim("one"), [], "what the same worker can claim again")


async def concurrent_claims_share_the_runs(bench: StorageBench) -> None:
    """Fifty concurrent claims of two workers, each on a connection of its own, give every run to one of them."""
    one, two = bench.storage, await bench.another()
    names = [f"r{index:02}" for index in range(50)]
    for name in names:
        await begin(one, name)
    async with living(one.queue, "one"), living(two.queue, "two"):
        claimed = await asyncio.gather(
            *(
                queue.claim(worker, limit=2)
                for _ in range(25)
                for queue, worker in ((one.queue, "one"), (two.queue, "two"))
            )
        )
        expect_equal(sorted(name for claims in claimed for name in ids(claims)), names, "the runs that were claimed")
        for claims in claimed:
            for claim in claims:
                owner = one if claim.lease.worker == "one" else two
                await owner.runs.append(claim.lease, Write(entries=[b"mine"]))


async def fences_only_grow(bench: StorageBench) -> None:
    """Each claim of a run has a higher fence than all before, whoever claims it."""
    storage = bench.storage
    await begin(storage, "r")
    fences = []
    for worker in ("one", "two", "one"):
        lease = await take(storage, "r", worker)
        fences.append(lease.fence)
        await storage.queue.release(lease, Standing())
    expect(0 < fences[0] < fences[1] < fences[2], f"fences grow: {fences}")


async def the_oldest_come_first(bench: StorageBench) -> None:
    """A claim takes as many as its limit says, the oldest first; an ended one leaves no gap."""
    storage = bench.storage
    for name in ("c", "a", "d", "b"):
        await begin(storage, name)
    expect_equal(ids(await storage.queue.claim("worker", limit=3)), ["c", "a", "d"], "the first claim")
    expect_equal(ids(await storage.queue.claim("worker", limit=3)), ["b"], "the second claim")


async def an_agents_worker_claims_its_own(bench: StorageBench) -> None:
    """With an agent named, runs of other agents are left to others; runs of no agent are anybody's."""
    storage = bench.storage
    for name in ("ours", "theirs", ""):
        await storage.runs.create(a_record(f"run {name}", agent=name), Write())
    expect_equal(ids(await storage.queue.claim("one", agent="ours")), ["run ours", "run "], "what our agent carries")
    expect_equal(ids(await storage.queue.claim("two", agent="theirs")), ["run theirs"], "what theirs carries")


async def blocked_runs_wait_for_other_code(bench: StorageBench) -> None:
    """A blocked run is taken only by who asks for such; neither a control nor a wake makes it ready."""
    storage = bench.storage
    await begin(storage, "r", standing=Standing(stand=Stand.BLOCKED, reason="changed"))
    await storage.queue.send("r", "event", b"control")
    await storage.queue.wake("r")
    expect_equal(await storage.queue.claim("worker"), [], "a claim of what is ready")
    lease = await take(storage, "r", blocked=True)
    await storage.queue.release(lease, Standing(stand=Stand.BLOCKED))
    expect_equal(await storage.queue.claim("worker"), [], "a claim after it was given back")


async def every_blocked_run_has_its_turn(bench: StorageBench) -> None:
    """Asked for behind the last one, blocked runs come once each, oldest first, also where they are given back."""
    storage, names = bench.storage, [f"run {index}" for index in range(7)]
    for name in names:
        await begin(storage, name, standing=Standing(stand=Stand.BLOCKED, reason="changed"))
    seen: list[str] = []
    while claims := await storage.queue.claim("worker", limit=3, blocked=True, behind=seen[-1] if seen else ""):
        for record, lease in claims:
            seen.append(record.run_id)
            await storage.queue.release(lease, record.standing)
    expect_equal(seen, names, "the blocked runs")
    await begin(storage, "ready")
    expect_equal(ids(await storage.queue.claim("worker", blocked=True, behind=names[-1])), ["ready"], "what is ready")


async def an_ended_run_never_moves_again(bench: StorageBench) -> None:
    """A final standing gives the lease back; the run is never claimed and takes no control any more."""
    storage = bench.storage
    for stand in (Stand.FINISHED, Stand.FAILED):
        await begin(storage, stand)
        lease = await take(storage, stand)
        await storage.runs.append(lease, Write(entries=[b"ended"], standing=Standing(stand=stand)))
        expect_equal((await find(storage, stand)).owner, "", "the owner of an ended run")
        await expect_raises(LeaseLostError, storage.runs.append(lease, Write(entries=[b"x"])), "a write after the end")
        await storage.queue.wake(stand)
        expect_equal(await storage.queue.claim("worker", blocked=True), [], "a claim of an ended run")
        await expect_raises(RunRecordNotFoundError, storage.queue.send(stand, "event", b""), "a control")


async def a_parked_run_waits(bench: StorageBench) -> None:
    """A parked run is left alone while nothing happens, and what happens to others does not wake it."""
    storage = bench.storage
    await park(storage, "r", Standing(stand=Stand.PARKED, wake_at=FUTURE, waits_for="other"))
    await park(storage, "s")
    await begin(storage, "t")
    await storage.queue.send("s", "event", b"")
    expect_equal(ids(await storage.queue.claim("worker")), ["s", "t"], "what is ready")


async def a_control_wakes_a_parked_run(bench: StorageBench) -> None:
    """A control makes a parked run ready, once; given back with the control left, it is ready again at once."""
    storage = bench.storage
    await park(storage, "r")
    await storage.queue.send("r", "event", b"")
    lease = await take(storage, "r")
    (sent,) = await storage.queue.arrived("worker")
    await storage.queue.release(lease, PARKED)
    lease = await take(storage, "r")
    await storage.runs.append(lease, Write(taken=sent.number))
    await storage.queue.release(lease, PARKED)
    expect_equal(await storage.queue.claim("worker"), [], "a claim once the control was taken")


async def a_control_that_comes_meanwhile_is_not_lost(bench: StorageBench) -> None:
    """A control sent while its run is carried makes it ready when it is given back parked without it."""
    storage = bench.storage
    await begin(storage, "r")
    lease = await take(storage, "r")
    await storage.queue.send("r", "event", b"")
    await storage.queue.release(lease, PARKED)
    await take(storage, "r")


async def a_wake_makes_a_parked_run_ready(bench: StorageBench) -> None:
    """A wake counts for a parked run, once, and for one that is carried when it is given back parked."""
    storage = bench.storage
    await park(storage, "r")
    await storage.queue.wake("r")
    lease = await take(storage, "r")
    await storage.queue.release(lease, PARKED)
    expect_equal(await storage.queue.claim("worker"), [], "a claim after the wake was spent")
    await storage.queue.wake("r")
    lease = await take(storage, "r")
    await storage.queue.wake("r")
    await storage.queue.release(lease, PARKED)
    lease = await take(storage, "r")
    await storage.queue.wake("unknown")
    await storage.queue.release(lease, PARKED)
    expect_equal(await storage.queue.claim("worker"), [], "a claim after all wakes were spent")


async def time_makes_a_parked_run_ready(bench: StorageBench) -> None:
    """A parked run whose time has come is ready, again and again until it is parked for another."""
    storage = bench.storage
    await park(storage, "later", Standing(stand=Stand.PARKED, wake_at=FUTURE))
    await park(storage, "due", Standing(stand=Stand.PARKED, wake_at=PAST))
    lease = await take(storage, "due")
    await storage.queue.release(lease, Standing(stand=Stand.PARKED, wake_at=PAST + timedelta(days=1)))
    lease = await take(storage, "due")
    await storage.queue.release(lease, Standing(stand=Stand.PARKED, wake_at=FUTURE))
    expect_equal(await storage.queue.claim("worker"), [], "a claim before the time")


async def the_next_wake_is_the_earliest(bench: StorageBench) -> None:
    """The next wake is that of the parked run, carried by nobody, whose time comes first; None without any."""
    storage = bench.storage
    expect_equal(await storage.queue.next_wake(), None, "the next wake of nothing")
    await park(storage, "none")
    await begin(storage, "ready", standing=Standing(wake_at=PAST))
    expect_equal(await storage.queue.next_wake(), None, "the next wake without a time")
    days = [FUTURE + timedelta(days=index, microseconds=7) for index in range(3)]
    for index in (2, 0, 1):
        await park(storage, f"r{index}", Standing(stand=Stand.PARKED, wake_at=days[index]))
    expect_equal(await storage.queue.next_wake(), days[0], "the earliest")
    await storage.queue.wake("r0")
    claims = await storage.queue.claim("worker")
    expect_equal(ids(claims), ["ready", "r0"], "what is ready")
    expect_equal(await storage.queue.next_wake(), days[1], "the earliest that nobody carries")
    await storage.runs.forget("r1")
    expect_equal(await storage.queue.next_wake(), days[2], "the earliest that is left")
    await storage.queue.release(claims[1].lease, Standing(stand=Stand.PARKED, wake_at=days[0]))
    expect_equal(await storage.queue.next_wake(), days[0], "the earliest, given back")


async def the_next_wake_is_of_the_agent(bench: StorageBench) -> None:
    """With an agent, overdue runs of others wake nobody: only its own runs count, and those of no agent."""
    storage = bench.storage
    await park(storage, "other", Standing(stand=Stand.PARKED, wake_at=PAST), agent="other")
    expect_equal(await storage.queue.next_wake(agent="mine"), None, "the next wake without runs of the agent")
    await park(storage, "mine", Standing(stand=Stand.PARKED, wake_at=FUTURE + timedelta(days=1)), agent="mine")
    expect_equal(await storage.queue.next_wake(agent="mine"), FUTURE + timedelta(days=1), "that of its own run")
    await park(storage, "nobody's", Standing(stand=Stand.PARKED, wake_at=FUTURE))
    expect_equal(await storage.queue.next_wake(agent="mine"), FUTURE, "that of a run of no agent")
    expect_equal(await storage.queue.next_wake(), PAST, "that of any run")


async def an_end_wakes_who_waits_for_it(bench: StorageBench) -> None:
    """A run that waits for another is ready when that one ends, was forgotten, or had ended before."""
    storage = bench.storage
    for_child = Standing(stand=Stand.PARKED, waits_for="child")
    await park(storage, "parent", for_child)
    await park(storage, "stranger", Standing(stand=Stand.PARKED, waits_for="other child"))
    await begin(storage, "child")
    child = await take(storage, "child")
    await storage.runs.append(child, Write(standing=Standing(stand=Stand.PARKED, waits_for="?")))
    expect_equal(await storage.queue.claim("worker"), [], "a claim before the end")
    await storage.runs.append(child, Write(standing=Standing(stand=Stand.FAILED)))
    parent = await take(storage, "parent")
    await storage.queue.release(parent, for_child)
    await take(storage, "parent")
    await begin(storage, "other child")
    await storage.runs.forget("other child")
    await take(storage, "stranger")


async def who_ends_loses_its_runs(bench: StorageBench) -> None:
    """When a worker's sign of life ends, others may claim its runs at once, parked ones too; it cannot write."""
    storage = bench.storage
    await begin(storage, "ready")
    await begin(storage, "parked")
    async with living(storage.queue, "next"):
        async with living(storage.queue, "gone"):
            claims = await storage.queue.claim("gone")
            await storage.runs.append(claims[1].lease, Write(standing=PARKED))
            expect_equal(await storage.queue.claim("next"), [], "a claim while the owner lives")
        expect_equal(ids(await storage.queue.claim("next")), ["ready", "parked"], "a claim after the owner's end")
        for claim in claims:
            await expect_raises(LeaseLostError, storage.runs.append(claim.lease, Write(entries=[b"x"])), "a write")


async def a_worker_may_come_back(bench: StorageBench) -> None:
    """A worker whose sign of life ended begins anew with the same name and without its runs."""
    storage = bench.storage
    await begin(storage, "r")
    async with living(storage.queue, "worker"):
        before = await take(storage, "r")
    async with living(storage.queue, "worker"):
        expect_equal(await storage.queue.arrived("worker"), [], "controls for a worker without runs")
        after = await take(storage, "r")
        expect(after.fence > before.fence, "the new lease ends the old one")
        await storage.runs.append(after, Write(entries=[b"x"]))


async def controls_come_in_order(bench: StorageBench) -> None:
    """Controls arrive in the order they were sent, with growing numbers, for the worker that carries their runs."""
    storage = bench.storage
    await begin(storage, "a")
    await begin(storage, "b")
    await begin(storage, "c")
    claims = await storage.queue.claim("mine", limit=2)
    expect_equal(ids(await storage.queue.claim("theirs")), ["c"], "the run of the other worker")
    for index, run_id in enumerate(("b", "a", "c", "b")):
        expect(await storage.queue.send(run_id, f"event {index}", b"%d\x00" % index), "the control is new")
    arrived = await storage.queue.arrived("mine")
    got = [(sent.run_id, sent.event_id, sent.data) for sent in arrived]
    wanted = [("b", "event 0", b"0\x00"), ("a", "event 1", b"1\x00"), ("b", "event 3", b"3\x00")]
    expect_equal(got, wanted, "the controls of one worker")
    expect(all(isinstance(sent, Sent) for sent in arrived), "controls come as Sent")
    numbers = [sent.number for sent in arrived]
    expect(0 < numbers[0] < numbers[1] < numbers[2], f"numbers grow: {numbers}")
    expect_equal(await storage.queue.arrived("mine", after=numbers[0]), arrived[1:], "the controls behind the first")
    await storage.runs.append(claims[1].lease, Write(taken=numbers[2]))
    expect_equal(await storage.queue.arrived("mine"), [arrived[1]], "what b's taking leaves to a")
    (theirs,) = await storage.queue.arrived("theirs")
    expect_equal((theirs.run_id, theirs.event_id), ("c", "event 2"), "the control of the other worker")
    expect_equal(await storage.queue.arrived("nobody"), [], "controls for a worker without runs")


async def controls_wait_for_who_carries_on(bench: StorageBench) -> None:
    """What was sent and not taken arrives at the next worker of the run, whatever it has seen of others."""
    storage = bench.storage
    await begin(storage, "r")
    async with living(storage.queue, "first"):
        await take(storage, "r", "first")
        await storage.queue.send("r", "event", b"control")
        expect_equal(len(await storage.queue.arrived("first")), 1, "controls at the first worker")
    await take(storage, "r", "second")
    (sent,) = await storage.queue.arrived("second")
    expect_equal((sent.run_id, sent.event_id, sent.data), ("r", "event", b"control"), "the control")


async def a_control_counts_once(bench: StorageBench) -> None:
    """An event id is taken by a run once, even after its control was dealt with; another run may use the same id."""
    storage = bench.storage
    await begin(storage, "r")
    await begin(storage, "s")
    sent = await asyncio.gather(*(storage.queue.send("r", "event", b"%d" % index) for index in range(MANY)))
    expect_equal(sum(sent), 1, "sends that counted")
    leases = [claim.lease for claim in await storage.queue.claim("worker")]
    (arrived,) = await storage.queue.arrived("worker")
    expect_equal(arrived.data, b"%d" % sent.index(True), "the control that counted")
    await storage.runs.append(leases[0], Write(taken=arrived.number))
    expect_equal(await storage.queue.send("r", "event", b"again"), False, "the same event id after it was taken")
    expect_equal(await storage.queue.send("s", "event", b"other"), True, "the same event id for another run")
    (arrived,) = await storage.queue.arrived("worker")
    expect_equal((arrived.run_id, arrived.data), ("s", b"other"), "the control that is left")


async def only_so_many_controls_wait(bench: StorageBench) -> None:
    """A new control beyond the limit is refused whole; one that came before, and one for another run, are not."""
    storage = bench.storage
    await begin(storage, "r")
    await begin(storage, "s")
    for index in range(3):
        expect(await storage.queue.send("r", f"event {index}", b"", limit=3), "the control is within the limit")
    await expect_raises(QueueFullError, storage.queue.send("r", "event 3", b"", limit=3), "a fourth control")
    expect_equal(await storage.queue.send("r", "event 1", b"", limit=3), False, "an event id that came before")
    expect(await storage.queue.send("s", "event 3", b"", limit=3), "another run has a limit of its own")
    expect(await storage.queue.send("r", "cancel", b"", limit=0), "without a limit it is taken")
    claims = {claim.record.run_id: claim.lease for claim in await storage.queue.claim("worker")}
    arrived = [sent for sent in await storage.queue.arrived("worker") if sent.run_id == "r"]
    expect_equal([sent.event_id for sent in arrived], ["event 0", "event 1", "event 2", "cancel"], "what waits")
    await storage.runs.append(claims["r"], Write(taken=arrived[1].number))
    expect(await storage.queue.send("r", "event 3", b"", limit=3), "there is room again, and its event id is free")


async def a_control_needs_a_run(bench: StorageBench) -> None:
    """A control for no run is refused and kept nowhere."""
    storage = bench.storage
    await expect_raises(RunRecordNotFoundError, storage.queue.send("r", "event", b""), "a control for no run")
    await begin(storage, "r")
    expect_equal(await storage.queue.send("r", "event", b""), True, "the same control once the run is there")


async def changes_are_told(bench: StorageBench) -> None:
    """A listener hears of new runs, controls, wakes, runs given back and ends, until it is called off."""
    storage = bench.storage
    heard = asyncio.Event()

    async def hears(what: Awaitable[object]) -> None:
        heard.clear()
        await what
        async with asyncio.timeout(PATIENCE_S):
            await heard.wait()

    unlisten = storage.queue.on_change(heard.set)
    async with living(storage.queue, "worker"):
        await hears(begin(storage, "r"))
        lease = await take(storage, "r")
        await hears(storage.queue.send("r", "event", b""))
        await hears(storage.queue.release(lease, PARKED))
        lease = await take(storage, "r")
        await hears(storage.runs.append(lease, Write(standing=Standing(stand=Stand.FINISHED))))
        await hears(park(storage, "s"))
        await hears(storage.queue.wake("s"))
    unlisten()
    unlisten()
    heard.clear()
    await begin(storage, "t")
    await storage.runs.list(RunFilter())
    expect(not heard.is_set(), "a listener that was called off hears nothing")


async def other_connections_are_heard(bench: StorageBench) -> None:
    """A worker that is kept alive hears of what another connection does, and finds it."""
    mine, theirs = bench.storage, await bench.another()
    heard = asyncio.Event()
    unlisten = mine.queue.on_change(heard.set)

    async def hears() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await heard.wait()

    async with living(mine.queue, "worker"):
        await begin(theirs, "r")
        await hears()
        await take(mine, "r")
        heard.clear()
        await theirs.queue.send("r", "event", b"control")
        await hears()
        (sent,) = await mine.queue.arrived("worker")
        expect_equal(sent.data, b"control", "the control that the other connection sent")
    unlisten()


SCENARIOS = (
    a_run_is_claimed_once,
    concurrent_claims_share_the_runs,
    fences_only_grow,
    the_oldest_come_first,
    an_agents_worker_claims_its_own,
    blocked_runs_wait_for_other_code,
    every_blocked_run_has_its_turn,
    an_ended_run_never_moves_again,
    a_parked_run_waits,
    a_control_wakes_a_parked_run,
    a_control_that_comes_meanwhile_is_not_lost,
    a_wake_makes_a_parked_run_ready,
    time_makes_a_parked_run_ready,
    the_next_wake_is_the_earliest,
    the_next_wake_is_of_the_agent,
    an_end_wakes_who_waits_for_it,
    who_ends_loses_its_runs,
    a_worker_may_come_back,
    controls_come_in_order,
    controls_wait_for_who_carries_on,
    a_control_counts_once,
    only_so_many_controls_wait,
    a_control_needs_a_run,
    changes_are_told,
    other_connections_are_heard,
)
