"""Scenarios of the store suite: journals and bodies under concurrent writes."""

from __future__ import annotations

import asyncio
import hashlib

from harborage.store import Change, Commit, Lease, NewRun
from harborage.store.errors import CommitInvalidError, LeaseLostError, RowNotFoundError, RunKnownError
from harborage.testing.conformance.checks import expect, expect_equal, expect_raises
from harborage.testing.conformance.store_bench import ME, StoreBench, claim, finish, row, send, start, step

MANY = 100
PATIENCE_S = 20.0


async def concurrent_starts_make_one_run(bench: StoreBench) -> None:
    """Of a hundred concurrent starts of one id exactly one makes the run; the others get that it exists."""
    store = bench.store

    async def made(number: int) -> bool:
        try:
            await store.commit(Commit(starts=(NewRun(run_id="r", who=ME, entries=(b"%d" % number,)),)))
        except RunKnownError:
            return False
        return True

    results = await asyncio.gather(*map(made, range(MANY)))
    expect_equal(sum(results), 1, "starts that made the run")
    expect_equal(await store.entries("r"), [b"%d" % results.index(True)], "the entries of that start")


async def any_bytes_are_an_entry(bench: StoreBench) -> None:
    """Entries come back as the very bytes they were, in their order."""
    store = bench.store
    await store.join("one")
    lease = await start(store, "r", worker="one")
    entries = (b"", b"\x00\xff", b"{}", bytes(range(256)), "ä€".encode())
    await store.commit(step(lease, 1, *entries))
    expect_equal(await store.entries("r"), [b"started", *entries], "the journal")
    expect_equal(await store.entries("r", after=4), list(entries[3:]), "the journal behind the fourth")
    expect_equal(await store.entries("r", after=99), [], "the journal behind its end")
    expect_equal(await store.entries("unknown"), [], "the journal of an unknown run")


async def many_runs_are_written_at_once(bench: StoreBench) -> None:
    """A hundred runs that are written concurrently keep their own entries in their own order."""
    store = bench.store
    await store.join("one")
    names = [f"run-{index:03}" for index in range(MANY)]
    leases = await asyncio.gather(*(start(store, name, worker="one") for name in names))

    async def write(lease: Lease) -> None:
        for turn in range(5):
            await store.commit(step(lease, 1 + turn, f"{lease.run_id} {turn}".encode()))

    await asyncio.gather(*map(write, leases))
    for name in names:
        wanted = [b"started", *(f"{name} {turn}".encode() for turn in range(5))]
        expect_equal(await store.entries(name), wanted, f"the journal of {name}")


async def a_cancelled_commit_is_whole_or_nothing(bench: StoreBench) -> None:
    """A commit whose caller was cancelled is applied with all its entries or not at all; it can be sent again."""
    store = bench.store
    await store.join("one")
    lease = await start(store, "r", worker="one")
    for turn in range(20):
        position = (await row(store, "r")).position
        commit = step(lease, position, b"%d" % turn, b"%d!" % turn)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(store.commit(commit))
            for _ in range(turn % 4):
                await asyncio.sleep(0)
            task.cancel()
        await store.commit(commit)
    wanted = [part for turn in range(20) for part in (b"%d" % turn, b"%d!" % turn)]
    expect_equal(await store.entries("r"), [b"started", *wanted], "the journal")


async def a_body_is_what_its_name_says(bench: StoreBench) -> None:
    """A commit with a body that has another SHA-256 than its name is refused, and nothing is written."""
    store = bench.store
    await store.join("one")
    lease = await start(store, "r", worker="one")
    wrong = {hashlib.sha256(b"this").hexdigest(): b"that"}
    await expect_raises(CommitInvalidError, store.commit(step(lease, 1, b"x", bodies=wrong)), "a step")
    begun = Commit(starts=(NewRun(run_id="s", who=ME, entries=(b"x",)),), bodies=wrong)
    await expect_raises(CommitInvalidError, store.commit(begun), "a start")
    expect_equal((await store.entries("r"), await store.entries("s")), ([b"started"], []), "the journals")


async def a_run_begins_with_its_bodies(bench: StoreBench) -> None:
    """What the first entries of a run name is kept with them."""
    store = bench.store
    data = b"large" * 1000
    digest = hashlib.sha256(data).hexdigest()
    begun = NewRun(run_id="r", who=ME, entries=(b"named",))
    await store.commit(Commit(starts=(begun,), bodies={digest: data}))
    expect_equal(await store.body("r", digest), data, "the body")


async def a_deleted_run_is_gone(bench: StoreBench) -> None:
    """Of a deleted run nothing is left, so its id, and the event ids that were sent to it, are free again."""
    store = bench.store
    await store.join("one")
    await start(store, "other")
    lease = await start(store, "r", worker="one")
    await send(store, "r", "event")
    (control,) = await store.controls("r")
    await store.commit(step(lease, 1, b"read", consumed=(control.number,)))
    await finish(store, lease, 2)
    expect_equal(await store.delete(["r"]), 1, "how many were deleted")
    expect_equal((await store.entries("r"), await store.controls("r")), ([], []), "what it had")
    await expect_raises(LeaseLostError, store.commit(step(lease, 3, b"late")), "a late step")
    await expect_raises(RowNotFoundError, send(store, "r", "event 2"), "a late control")
    expect_equal(await store.entries("other"), [b"started"], "another run")
    await start(store, "r")
    expect(await send(store, "r", "event"), "the event id is new for the run of today")


async def an_ended_run_never_moves_again(bench: StoreBench) -> None:
    """A run that has ended is not claimed after any change, and takes no step under its old lease."""
    store = bench.store
    await store.join("one")
    lease = await start(store, "r", worker="one")
    await finish(store, lease)
    await store.commit(Commit(wakes=("r",)))
    await store.unblock(["r"])
    await claim(store, "one")
    await expect_raises(LeaseLostError, store.commit(step(lease, 2, b"late")), "a late step")
    change = Change(release=True, is_ready=True)
    await expect_raises(LeaseLostError, store.commit(step(lease, 2, change=change)), "a late release")


async def another_process_sees_commits(bench: StoreBench) -> None:
    """Another process reads a commit at once, and its listener is called with its next look."""
    mine, theirs = bench.store, await bench.another()
    await mine.join("one")
    called = asyncio.Event()
    unlisten = mine.on_change(called.set)

    async def wait_for_call() -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not called.is_set():
                await mine.look("one")
                await asyncio.sleep(0)
        called.clear()

    await start(theirs, "r")
    await wait_for_call()
    await claim(mine, "one", "r")
    await send(theirs, "r", "event")
    await wait_for_call()
    expect_equal([control.event_id for control in await mine.controls("r")], ["event"], "the other's control")
    unlisten()


SCENARIOS = (
    concurrent_starts_make_one_run,
    any_bytes_are_an_entry,
    many_runs_are_written_at_once,
    a_cancelled_commit_is_whole_or_nothing,
    a_body_is_what_its_name_says,
    a_run_begins_with_its_bodies,
    a_deleted_run_is_gone,
    an_ended_run_never_moves_again,
    another_process_sees_commits,
)
