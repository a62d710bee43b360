"""Several processes share a database, and any of them may be killed or frozen at any moment."""

from __future__ import annotations

import asyncio
import signal
import time
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from harborage.clock import SystemClock
from harborage.store import RunQuery, Status, Store
from harborage.store.errors import LeaseLostError
from harborage.store.sqlite import Database, SQLiteStore
from harborage.testing.clock import FakeClock
from harborage.testing.conformance.store_bench import claim, living, start, step

OpenDatabase = Callable[..., Awaitable[Database]]
StartProgram = Callable[..., Awaitable[Process]]

# Long enough for a loaded machine; what is waited for comes within a fraction of a second.
PATIENCE_S = 30.0

OPENING = """
import asyncio, sys
from harborage.store import Change, Commit, NewRun, Status
from harborage.store.errors import StoreError
from harborage.store.sqlite import Database, SQLiteStore
from harborage.testing.conformance.store_bench import ME, living, step

def told():
    return asyncio.to_thread(sys.stdin.readline)

async def main(path, *arguments):
    store = SQLiteStore(await Database.open(path, busy_timeout_s=60))
    try:
        await work(store, *arguments)
    finally:
        await store.aclose()
"""
ENDING = """
asyncio.run(main(*sys.argv[1:]))
"""

# Twenty writers of their own runs add pairs of entries, and say each pair once it is kept.
WRITER = f"""{OPENING}
async def work(store, worker):
    async with living(store, worker):
        for index in range(20):
            try:
                new = NewRun(run_id=f"r{{index}}", who=ME, entries=(b"0 first", b"0 second"))
                await store.commit(Commit(starts=(new,)))
            except StoreError:
                pass  # a writer before this one has made it
        async with asyncio.TaskGroup() as group:
            for claimed in await store.claim(worker):
                group.create_task(write(store, claimed.row))

async def write(store, row):
    turn = row.position // 2
    while True:
        pair = (b"%d first" % turn, b"%d second" % turn)
        await store.commit(step(row.lease, turn * 2, *pair))
        print(row.run_id, turn, flush=True)
        turn += 1
{ENDING}"""

HOLDER = f"""{OPENING}
async def work(store, worker):
    async with living(store, worker):
        for claimed in await store.claim(worker):
            print("holds", claimed.row.run_id, flush=True)
        await told()
        try:
            await store.commit(step(claimed.row.lease, claimed.row.position, b"late"))
            print("wrote", flush=True)
        except StoreError as error:
            print(type(error).__name__, flush=True)
{ENDING}"""

CARRIER = f"""{OPENING}
async def work(store, worker):
    async with living(store, worker):
        print("ready", flush=True)
        await told()
        while claims := await store.claim(worker, limit=3):
            for claimed in claims:
                end = Change(status=Status.COMPLETE)
                await store.commit(step(claimed.row.lease, 1, worker.encode(), change=end))
        print("done", flush=True)
{ENDING}"""

OPENER = """
import asyncio, sys
from harborage.store.sqlite import Database
print("ready", flush=True)
sys.stdin.readline()
asyncio.run(Database.open(sys.argv[1], busy_timeout_s=60))
print("opened", flush=True)
"""


async def say(process: Process) -> str:
    """The next line that a program says."""
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE_S):
        return (await process.stdout.readline()).decode().strip()


async def tell(process: Process) -> None:
    """Let a program that waits go on."""
    assert process.stdin is not None
    process.stdin.write(b"\n")
    await process.stdin.drain()


async def kill(process: Process) -> list[str]:
    """Kill a program at once; returns the lines that it had said and nobody had read, without one that was cut off."""
    process.kill()
    assert process.stdout is not None
    rest = await process.stdout.read()
    await process.wait()
    assert process.returncode == -signal.SIGKILL
    return rest.decode().rpartition("\n")[0].splitlines()


async def check_kept(store: Store, said: list[str]) -> None:
    """Every pair that a writer said is there; no pair is there in part; none is there twice or out of order."""
    kept: dict[str, int] = {}
    for row in (await store.runs(RunQuery())).rows:
        entries = await store.entries(row.run_id)
        turns = range(len(entries) // 2)
        assert entries == [b"%d %s" % (turn, half) for turn in turns for half in (b"first", b"second")]
        kept[row.run_id] = len(turns)
    for line in said:
        run_id, turn = line.split()
        assert int(turn) < kept[run_id]


async def test_what_was_acknowledged_survives_kill_9(
    open_database: OpenDatabase, start_program: StartProgram, path: Path
) -> None:
    """A process that is killed in mid commit, again and again, loses nothing that it had acknowledged."""
    said: list[str] = []
    for turn in range(5):
        writer = await start_program(WRITER, path, f"writer-{turn}")
        said += [await say(writer) for _ in range(37 * turn + 5)]
        said += await kill(writer)
    await check_kept(SQLiteStore(await open_database()), said)
    assert len(said) > 300


async def test_a_killed_workers_runs_are_free_at_once(
    open_database: OpenDatabase, start_program: StartProgram, path: Path
) -> None:
    """The very next look after a worker's death finds its runs, and they can be claimed; its lock file is gone."""
    store = SQLiteStore(await open_database())
    await start(store, "r")
    holder = await start_program(HOLDER, path, "victim")
    assert await say(holder) == "holds r"
    await store.join("heir")
    await store.look("heir")
    await claim(store, "heir")
    await kill(holder)
    await store.look("heir")
    (claimed,) = await claim(store, "heir", "r")
    await store.commit(step(claimed.row.lease, 1, b"carried on"))
    assert lock_files(path) == ["heir.lock"]
    await store.leave("heir")
    assert lock_files(path) == []


async def test_the_death_of_a_process_is_noticed(
    open_database: OpenDatabase, start_program: StartProgram, path: Path
) -> None:
    """A worker that only waits hears that another one died, without asking and without a change of the data."""
    store = SQLiteStore(await open_database())
    await start(store, "r")
    holder = await start_program(HOLDER, path, "victim")
    assert await say(holder) == "holds r"
    received = asyncio.Event()
    async with living(store, "heir"):
        for _ in range(2):  # the notice of the start comes in the next turns of the loop
            await store.look("heir")
        store.on_change(received.set)
        await kill(holder)
        async with asyncio.timeout(PATIENCE_S):
            await received.wait()
        await claim(store, "heir", "r")


class Ahead(SystemClock):
    """The clock that all processes of this machine share, so many seconds later."""

    seconds = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.seconds


async def test_a_frozen_worker_cannot_write_after_it_thaws(
    open_database: OpenDatabase, start_program: StartProgram, path: Path
) -> None:
    """A stopped process keeps its lock but not its runs: when its sign is a minute old another takes them, for good."""
    clock = Ahead()
    store = SQLiteStore(await open_database(), clock=clock)
    await start(store, "r")
    holder = await start_program(HOLDER, path, "frozen")
    assert await say(holder) == "holds r"
    holder.send_signal(signal.SIGSTOP)
    await store.join("heir")
    await store.look("heir")
    await claim(store, "heir")
    clock.seconds = 120.0
    await store.look("heir")
    (claimed,) = await claim(store, "heir", "r")
    holder.send_signal(signal.SIGCONT)
    await tell(holder)
    assert await say(holder) == "LeaseLostError"
    await store.commit(step(claimed.row.lease, 1, b"mine"))
    assert await store.entries("r") == [b"started", b"mine"]


async def test_a_worker_that_is_late_may_live_on(open_database: OpenDatabase) -> None:
    """Whoever was taken for dead begins anew with its next sign of life, and gets runs that are free."""
    first, second = await open_database(), await open_database()
    clock = FakeClock()
    mine, theirs = SQLiteStore(first, clock=clock), SQLiteStore(second, clock=clock)
    await mine.join("late")
    await theirs.join("heir")
    stale = await start(mine, "r", worker="late")
    await theirs.look("heir")
    clock.advance(61)
    await theirs.beat("heir")
    await claim(theirs, "heir", "r")
    with pytest.raises(LeaseLostError):
        await mine.commit(step(stale, 1, b"x"))
    await mine.beat("late")
    await start(mine, "s")
    (claimed,) = await claim(mine, "late", "s")
    await theirs.beat("heir")
    await mine.commit(step(claimed.row.lease, 1, b"x"))
    await claim(theirs, "heir")


async def test_two_processes_share_the_runs(
    open_database: OpenDatabase, start_program: StartProgram, path: Path
) -> None:
    """Of a hundred runs that two processes carry at the same time each is carried by one of them."""
    store = SQLiteStore(await open_database())
    for index in range(100):
        await start(store, f"r{index:02}")
    carriers = [await start_program(CARRIER, path, worker) for worker in ("one", "two")]
    assert [await say(carrier) for carrier in carriers] == ["ready", "ready"]
    for carrier in carriers:
        await tell(carrier)
    assert [await say(carrier) for carrier in carriers] == ["done", "done"]
    done = await store.runs(RunQuery(statuses=(Status.COMPLETE,), limit=1000))
    assert len(done.rows) == 100
    for row in done.rows:
        assert await store.entries(row.run_id) in ([b"started", b"one"], [b"started", b"two"])


async def test_many_processes_may_make_the_database(start_program: StartProgram, path: Path) -> None:
    """Processes that open a database that is not there yet, all at once, get the same one."""
    openers = [await start_program(OPENER, path) for _ in range(4)]
    assert [await say(opener) for opener in openers] == ["ready"] * 4
    for opener in openers:
        await tell(opener)
    assert [await say(opener) for opener in openers] == ["opened"] * 4
    store = SQLiteStore(await Database.open(path))
    await start(store, "r")
    await store.aclose()


def lock_files(path: Path) -> list[str]:
    """The names of the lock files beside the database."""
    return sorted(file.name for file in path.with_name(f"{path.name}-workers").glob("*"))
