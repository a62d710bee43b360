"""Scenarios of the run suite: what a run's record keeps, who sees it, and what damage to it looks like."""

from __future__ import annotations

import asyncio

from harborage.identity import Quadruple
from harborage.state.runs import (
    BodyMismatchError,
    EntryMissingError,
    Lease,
    LeaseLostError,
    RunFilter,
    RunRecordNotFoundError,
    Stand,
    Standing,
    Write,
)
from harborage.testing.conformance.checks import expect, expect_equal, expect_raises
from harborage.testing.conformance.storage_bench import StorageBench, a_record, begin, digest, find, ids, living, take

__all__ = ["SCENARIOS"]

MANY = 100
LARGE = 1024 * 1024


async def a_created_run_is_kept(bench: StorageBench) -> None:
    """A new run comes back as it was asked for, with its entries, its standing, and carried by nobody."""
    runs = bench.storage.runs
    asked = a_record("r", agent="app.py:agent", goal="écrire\x00\u2028")
    parked = Standing(stand=Stand.PARKED, reason="waits", waits_for="other")
    expect(await runs.create(asked, Write(entries=[b"one", b"two"], standing=parked)), "the run is new")
    kept = await find(bench.storage, "r")
    got = (kept.run_id, kept.who, kept.goal, kept.agent, kept.standing, kept.created_at)
    expect_equal(got, ("r", asked.who, asked.goal, asked.agent, parked, asked.created_at), "the kept run")
    expect_equal((kept.owner, kept.fence, kept.entries), ("", 0, 2), "owner, fence and entries of a new run")
    expect(kept.updated_at.tzinfo is not None, "the time of the last change has a time zone")
    expect_equal(await runs.read("r"), [b"one", b"two"], "the entries")


async def creating_again_does_nothing(bench: StorageBench) -> None:
    """An id that is kept is not made again, whatever else is asked for."""
    runs = bench.storage.runs
    await begin(bench.storage, "r", b"one")
    expect_equal(await runs.create(a_record("r", goal="other"), Write(entries=[b"x"])), False, "a second create")
    expect_equal(await runs.read("r"), [b"one"], "the entries")
    expect_equal((await find(bench.storage, "r")).goal, "goal", "the goal")


async def a_hundred_times_the_same_create(bench: StorageBench) -> None:
    """Of a hundred concurrent creates of one id exactly one makes the run."""
    made = await asyncio.gather(
        *(bench.storage.runs.create(a_record("r"), Write(entries=[b"%d" % index])) for index in range(MANY))
    )
    expect_equal(sum(made), 1, "creates that made the run")
    expect_equal(await bench.storage.runs.read("r"), [b"%d" % made.index(True)], "the entries of that create")


async def entries_keep_their_order(bench: StorageBench) -> None:
    """Entries come back in the order they were written, all of them or those behind a place."""
    runs = bench.storage.runs
    await begin(bench.storage, "r", b"0")
    lease = await take(bench.storage, "r")
    for index in range(1, 40, 2):
        await runs.append(lease, Write(entries=[b"%d" % index, b"%d" % (index + 1)]))
    wanted = [b"%d" % index for index in range(41)]
    expect_equal(await runs.read("r"), wanted, "all entries")
    expect_equal(await runs.read("r", after=39), wanted[39:], "the entries behind the first 39")
    expect_equal(await runs.read("r", after=41), [], "the entries behind the last")
    expect_equal((await find(bench.storage, "r")).entries, 41, "how many the record says there are")
    expect_equal(await runs.read("unknown"), [], "the entries of an unknown run")


async def any_bytes_are_an_entry(bench: StorageBench) -> None:
    """Nothing, zeros, what is no text, and a megabyte are kept byte for byte."""
    runs = bench.storage.runs
    odd = [b"", b"\x00", b"\xff\xfe\x00", bytes(range(256)) * (LARGE // 256)]
    await begin(bench.storage, "r", *odd)
    lease = await take(bench.storage, "r")
    await runs.append(lease, Write(entries=odd))
    expect_equal(await runs.read("r") == odd * 2, True, "the odd entries come back")


async def a_write_moves_everything_at_once(bench: StorageBench) -> None:
    """Entries, bodies, standing and the controls that were taken change together."""
    storage = bench.storage
    await begin(storage, "r")
    lease = await take(storage, "r")
    await storage.queue.send("r", "event", b"control")
    (sent,) = await storage.queue.arrived("worker")
    standing = Standing(stand=Stand.BLOCKED, reason="other code")
    body = b"body" * 5000
    write = Write(entries=[b"arrived"], bodies={digest(body): body}, taken=sent.number, standing=standing)
    await storage.runs.append(lease, write)
    expect_equal((await storage.runs.read("r"))[-1], b"arrived", "the last entry")
    expect_equal(await storage.runs.body("r", digest(body)) == body, True, "the body")
    expect_equal((await find(storage, "r")).standing, standing, "the standing")
    expect_equal(await storage.queue.arrived("worker"), [], "controls that are left")


async def a_stale_lease_writes_nothing(bench: StorageBench) -> None:
    """Once another worker has claimed the run, nothing of what the first one writes is kept."""
    storage = bench.storage
    await begin(storage, "r", b"one")
    async with living(storage.queue, "frozen"):
        stale = await take(storage, "r", "frozen")
    async with living(storage.queue, "next"):
        lease = await take(storage, "r", "next")
        expect(lease.fence > stale.fence, "the new fence is higher")
        await storage.queue.send("r", "event", b"control")
        (sent,) = await storage.queue.arrived("next")
        body = b"body"
        ending = Standing(stand=Stand.FINISHED)
        attempt = Write(entries=[b"x"], bodies={digest(body): body}, taken=sent.number, standing=ending)
        for other in (stale, Lease("r", "next", stale.fence), Lease("r", "frozen", lease.fence), Lease("?", "next", 1)):
            await expect_raises(LeaseLostError, storage.runs.append(other, attempt), f"a write under {other}")
        await storage.queue.release(stale, ending)
        expect_equal(await storage.runs.read("r"), [b"one"], "the entries")
        expect_equal((await find(storage, "r")).standing, Standing(), "the standing")
        expect_equal(await storage.queue.arrived("next"), [sent], "the controls")
        await expect_raises(EntryMissingError, storage.runs.body("r", digest(body)), "the body")
        await storage.runs.append(lease, Write(entries=[b"two"]))
    expect_equal(await storage.runs.read("r"), [b"one", b"two"], "the entries of who holds the run")


async def a_hundred_runs_are_written_at_once(bench: StorageBench) -> None:
    """A hundred runs that are written concurrently keep their own entries in their own order."""
    runs = bench.storage.runs
    names = [f"run-{index:03}" for index in range(MANY)]
    await asyncio.gather(*(begin(bench.storage, name, name.encode()) for name in names))
    leases = [claim.lease for claim in await bench.storage.queue.claim("worker", limit=MANY)]
    expect_equal(len(leases), MANY, "runs that were claimed")

    async def write(lease: Lease) -> None:
        for turn in range(5):
            await runs.append(lease, Write(entries=[f"{lease.run_id} {turn}".encode()]))

    await asyncio.gather(*(write(lease) for lease in leases))
    for name in names:
        wanted = [name.encode(), *(f"{name} {turn}".encode() for turn in range(5))]
        expect_equal(await runs.read(name), wanted, f"the entries of {name}")


async def a_cancelled_write_is_whole_or_nothing(bench: StorageBench) -> None:
    """A write whose caller was cancelled is there with all its entries or not at all, and the next one follows it."""
    runs = bench.storage.runs
    await begin(bench.storage, "r")
    lease = await take(bench.storage, "r")
    for turn in range(20):
        write = Write(entries=[b"%d" % turn, b"%d!" % turn])
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(runs.append(lease, write)) for _ in range(3)]
            for _ in range(turn % 4):
                await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
    await runs.append(lease, Write(entries=[b"last"]))
    first, *entries, last = await runs.read("r")
    expect_equal((first, last), (b"started", b"last"), "the first and the last entry")
    pairs = list(zip(entries[::2], entries[1::2], strict=True))
    expect(all(one + b"!" == other for one, other in pairs), "no write was kept in part")


async def bodies_are_kept_once(bench: StorageBench) -> None:
    """A body that several entries and runs name is stored once, and goes with the last run that names it."""
    storage = bench.storage
    body = b"large" * 4000
    bodies = {digest(body): body}
    await storage.runs.create(a_record("a"), Write(entries=[b"1"], bodies=bodies))
    await storage.runs.create(a_record("b"), Write(entries=[b"1"], bodies=bodies))
    for claim in await storage.queue.claim("worker"):
        await storage.runs.append(claim.lease, Write(entries=[b"2"], bodies=bodies))
    expect_equal(await bench.count_bodies(), 1, "bodies that are stored")
    await storage.runs.forget("a")
    expect_equal(await storage.runs.body("b", digest(body)) == body, True, "the body of the run that is left")
    await storage.runs.forget("b")
    expect_equal(await bench.count_bodies(), 0, "bodies that are stored for nobody")


async def a_body_is_shown_to_runs_that_name_it(bench: StorageBench) -> None:
    """A run gets a body by its digest only if its own entries named it."""
    storage = bench.storage
    body = b"secret"
    await storage.runs.create(a_record("a"), Write(bodies={digest(body): body}))
    await begin(storage, "b")
    expect_equal(await storage.runs.body("a", digest(body)), body, "the body")
    for run_id in ("b", "unknown"):
        await expect_raises(EntryMissingError, storage.runs.body(run_id, digest(body)), f"the body for {run_id}")


async def a_body_is_what_its_name_says(bench: StorageBench) -> None:
    """A body under another name than its SHA-256 is refused with the whole write, since other runs may share it."""
    storage = bench.storage
    await begin(storage, "r")
    lease = await take(storage, "r")
    wrong = Write(entries=[b"x"], bodies={digest(b"this"): b"that"})
    await expect_raises(BodyMismatchError, storage.runs.append(lease, wrong), "an append")
    await expect_raises(BodyMismatchError, storage.runs.create(a_record("s"), wrong), "a create")
    expect_equal(await storage.runs.read("r"), [b"started"], "the entries")
    expect_equal(await storage.runs.list(RunFilter(run_id="s")), [], "the run that was refused")


async def a_damaged_body_is_noticed(bench: StorageBench) -> None:
    """A body that is gone or changed is an error that names the run and the digest, never other bytes."""
    storage = bench.storage
    body = b"body"
    await storage.runs.create(a_record("r"), Write(bodies={digest(body): body}))
    for damage in (b"b0dy", None):
        await bench.spoil_body(digest(body), damage)
        try:
            got = await storage.runs.body("r", digest(body))
        except EntryMissingError as error:
            expect_equal((error.run_id, error.digest), ("r", digest(body)), "what the error names")
            expect("r" in str(error) and digest(body) in str(error), "the text names run and digest")
        else:
            expect(False, f"a damaged body came back: {got!r}")


async def a_gap_is_noticed(bench: StorageBench) -> None:
    """A record that lost an entry, in the middle or at its end, is an error that names run and entry."""
    storage = bench.storage
    for run_id, lost in (("middle", 1), ("last", 2)):
        await begin(storage, run_id, b"0", b"1", b"2")
        if not await bench.lose_entry(run_id, lost):
            return
        try:
            got = await storage.runs.read(run_id)
        except EntryMissingError as error:
            expect_equal((error.run_id, error.entry), (run_id, lost), "what the error names")
            expect(f"run {run_id}, entry {lost}" in str(error), f"the text names run and entry: {error}")
        else:
            expect(False, f"a record with a gap came back: {got!r}")
    await begin(storage, "whole", b"0")
    expect_equal(await storage.runs.read("whole"), [b"0"], "another run's record")


async def a_forgotten_run_is_gone(bench: StorageBench) -> None:
    """Forgetting drops record, entries, bodies and controls; the lease is lost, others are untouched."""
    storage = bench.storage
    body = b"body"
    await storage.runs.create(a_record("r"), Write(entries=[b"1"], bodies={digest(body): body}))
    await begin(storage, "other", b"1")
    lease = next(claim.lease for claim in await storage.queue.claim("worker") if claim.record.run_id == "r")
    await storage.queue.send("r", "event", b"control")
    await storage.runs.forget("r")
    await storage.runs.forget("r")
    expect_equal(await storage.runs.list(RunFilter(run_id="r")), [], "the run")
    expect_equal((await storage.runs.read("r"), await storage.queue.arrived("worker")), ([], []), "what it held")
    await expect_raises(LeaseLostError, storage.runs.append(lease, Write(entries=[b"2"])), "a write")
    await expect_raises(RunRecordNotFoundError, storage.queue.send("r", "event 2", b""), "a control")
    expect_equal(await storage.runs.read("other"), [b"1"], "another run")
    await begin(storage, "r", b"anew")
    expect_equal(await storage.runs.read("r"), [b"anew"], "a run that is made again under the same id")
    expect_equal(await storage.queue.send("r", "event", b"control"), True, "an event id of the forgotten run")


async def a_filter_shows_its_owner_only(bench: StorageBench) -> None:
    """A filter by tenant, user and session shows no run of anybody else, and each part narrows by itself."""
    storage = bench.storage
    owners = [Quadruple(t, u, s, "x") for t in ("a", "a/b") for u in ("b/c", "c") for s in ("d", "d ")]
    for index, who in enumerate(owners):
        await storage.runs.create(a_record(f"r{index}", who), Write())
    for index, who in enumerate(owners):
        mine = RunFilter(tenant=who.tenant_id, user=who.user_id, session=who.session_id)
        expect_equal([one.run_id for one in await storage.runs.list(mine)], [f"r{index}"], f"the runs of {who}")
    for part, wanted in (
        (RunFilter(tenant="a"), ["r0", "r1", "r2", "r3"]),
        (RunFilter(user="c"), ["r2", "r3", "r6", "r7"]),
        (RunFilter(session="d "), ["r1", "r3", "r5", "r7"]),
        (RunFilter(tenant="a", user="c"), ["r2", "r3"]),
        (RunFilter(run_id="r4", tenant="a"), []),
        (RunFilter(run_id="r4", tenant="a/b"), ["r4"]),
        (RunFilter(tenant="A"), []),
    ):
        expect_equal([one.run_id for one in await storage.runs.list(part)], wanted, f"the runs of {part}")


async def a_filter_knows_standing_and_agent(bench: StorageBench) -> None:
    """Runs are listed by where they stand, by agent, and by both."""
    storage = bench.storage
    for stand in Stand:
        for agent in ("one", "two"):
            write = Write(standing=Standing(stand=stand))
            await storage.runs.create(a_record(f"{stand} {agent}", agent=agent), write)
    for asked, wanted in (
        (RunFilter(agent="two"), [f"{stand} two" for stand in Stand]),
        (RunFilter(stands=(Stand.PARKED,)), ["parked one", "parked two"]),
        (RunFilter(stands=(Stand.FAILED, Stand.READY)), ["ready one", "ready two", "failed one", "failed two"]),
        (RunFilter(stands=(Stand.FAILED, Stand.READY), agent="one"), ["ready one", "failed one"]),
        (RunFilter(stands=(Stand.PARKED,), tenant="other"), []),
    ):
        expect_equal([one.run_id for one in await storage.runs.list(asked)], wanted, f"the runs of {asked}")


async def lists_come_in_pages(bench: StorageBench) -> None:
    """Pages follow one another in the order of making, whatever the ids, without a run twice or left out."""
    storage = bench.storage
    names = [f"{(index * 37) % 25:02}" for index in range(25)]
    for name in names:
        await begin(storage, name)
    for asked in (RunFilter(), RunFilter(tenant="tenant"), RunFilter(stands=(Stand.READY, Stand.FAILED))):
        found: list[str] = []
        while page := await storage.runs.list(asked, after=found[-1] if found else "", limit=10):
            expect(len(page) <= 10, "a page is not longer than its limit")
            found += [record.run_id for record in page]
        expect_equal(found, names, f"all pages of {asked}")
    await expect_raises(RunRecordNotFoundError, storage.runs.list(RunFilter(), after="?"), "a page behind no run")


async def a_second_connection_sees_it_all(bench: StorageBench) -> None:
    """What one connection wrote the other reads at once, and can go on with."""
    other = await bench.another()
    await begin(bench.storage, "r", b"one")
    expect_equal(await other.runs.read("r"), [b"one"], "the entries")
    expect_equal(await find(other, "r"), await find(bench.storage, "r"), "the record")
    expect_equal(await other.runs.create(a_record("r"), Write()), False, "a second create")
    claims = await other.queue.claim("worker")
    expect_equal(ids(claims), ["r"], "what the other can claim")
    await other.runs.append(claims[0].lease, Write(entries=[b"two"]))
    expect_equal(await bench.storage.runs.read("r"), [b"one", b"two"], "the entries in the first connection")


SCENARIOS = (
    a_created_run_is_kept,
    creating_again_does_nothing,
    a_hundred_times_the_same_create,
    entries_keep_their_order,
    any_bytes_are_an_entry,
    a_write_moves_everything_at_once,
    a_stale_lease_writes_nothing,
    a_hundred_runs_are_written_at_once,
    a_cancelled_write_is_whole_or_nothing,
    bodies_are_kept_once,
    a_body_is_shown_to_runs_that_name_it,
    a_body_is_what_its_name_says,
    a_damaged_body_is_noticed,
    a_gap_is_noticed,
    a_forgotten_run_is_gone,
    a_filter_shows_its_owner_only,
    a_filter_knows_standing_and_agent,
    lists_come_in_pages,
    a_second_connection_sees_it_all,
)
