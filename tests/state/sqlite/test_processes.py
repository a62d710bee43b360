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
from harborage.state.runs import LeaseLostError, RunFilter, Stand, Standing, Write
from harborage.state.sqlite import Database, storage_of
from harborage.state.storage import Storage
from harborage.testing.clock import FakeClock
from harborage.testing.conformance.storage_bench import begin, ids, living, take

OpenDatabase = Callable[..., Awaitable[Database]]
StartProgram = Callable[..., Awaitable[Process]]

# Long enough for a loaded machine; what is waited for comes within a fraction of a second.
PATIENCE_S = 30.0

OPENING = """
import asyncio, sys
from harborage.state.errors import StateError
from harborage.state.runs import RunFilter, Stand, Standing, Write
from harborage.state.sqlite import Database, storage_of
from harborage.testing.conformance.storage_bench import a_record, living

def told():
    return asyncio.to_thread(sys.stdin.readline)

async def main(path, *arguments):
    async with storage_of(await Database.open(path, busy_timeout_s=60)) as storage:
        await work(storage, *arguments)
"""
ENDING = """
asyncio.run(main(*sys.argv[1:]))
"""

# Twenty writers of their own runs add pairs of entries, and say each pair once it is kept.
WRITER = f"""{OPENING}
async def work(storage, worker):
    async with living(storage.queue, worker):
        for index in range(20):
            await storage.runs.create(a_record(f"r{{index}}"), Write())
        claims = await storage.queue.claim(worker)
        async with asyncio.TaskGroup() as group:
            for claim in claims:
                group.create_task(write(storage, claim))

async def write(storage, claim):
    turn = claim.record.entries // 2
    while True:
        pair = [b"%d first" % turn, b"%d second" % turn]
        await storage.runs.append(claim.lease, Write(entries=pair))
        print(claim.record.run_id, turn, flush=True)
        turn += 1
{ENDING}"""

HOLDER = f"""{OPENING}
async def work(storage, worker):
    async with living(storage.queue, worker):
        for claim in await storage.queue.claim(worker):
            print("holds", claim.record.run_id, flush=True)
        await told()
        try:
            await storage.runs.append(claim.lease, Write(entries=[b"late"]))
            print("wrote", flush=True)
        except StateError as error:
            print(type(error).__name__, flush=True)
{ENDING}"""

CARRIER = f"""{OPENING}
async def work(storage, worker):
    async with living(storage.queue, worker):
        print("ready", flush=True)
        await told()
        while claims := await storage.queue.claim(worker, limit=3):
            for claim in claims:
                entries = [worker.encode()]
                await storage.runs.append(claim.lease, Write(entries=entries, standing=Standing(stand=Stand.FINISHED)))
        print("done", flush=True)
{ENDING}"""

OPENER = """
import asyncio, sys
from harborage.state.sqlite import Database, storage_of
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


async def check_kept(storage: Storage, said: list[str]) -> None:
    """Every pair that a writer said is there; no pair is there in part; none is there twice or out of order."""
    kept: dict[str, int] = {}
    for record in await storage.runs.list(RunFilter()):
        entries = await storage.runs.read(record.run_id)
        turns = range(len(entries) // 2)
        assert entries == [b"%d %s" % (turn, half) for turn in turns for half in (b"first", b"second")]
        kept[record.run_id] = len(turns)
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
    storage = storage_of(await open_database())
    await check_kept(storage, said)
    assert len(said) > 300


async def test_a_killed_workers_runs_are_free_at_once(
    open_database: OpenDatabase, start_program: StartProgram, path: Path
) -> None:
    """The very next claim after a worker's death has its runs, parked or not; its lock file is gone."""
    storage = storage_of(await open_database())
    await begin(storage, "r")
    holder = await start_program(HOLDER, path, "victim")
    assert await say(holder) == "holds r"
    async with living(storage.queue, "heir"):
        assert await storage.queue.claim("heir") == []
        await kill(holder)
        lease = await take(storage, "r", "heir")
        await storage.runs.append(lease, Write(entries=[b"carried on"]))
        assert lock_files(path) == ["heir.lock"]
    assert lock_files(path) == []


async def test_a_death_is_heard_of(open_database: OpenDatabase, start_program: StartProgram, path: Path) -> None:
    """A worker that only waits hears that another one died, without asking and without a change of the data."""
    storage = storage_of(await open_database())
    await begin(storage, "r")
    holder = await start_program(HOLDER, path, "victim")
    assert await say(holder) == "holds r"
    heard = asyncio.Event()
    async with living(storage.queue, "heir"):
        storage.queue.on_change(heard.set)
        await kill(holder)
        async with asyncio.timeout(PATIENCE_S):
            await heard.wait()
        assert ids(await storage.queue.claim("heir")) == ["r"]


class Ahead(SystemClock):
    """The clock that all processes of this machine share, so many seconds later."""

    seconds = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.seconds


async def test_a_frozen_worker_cannot_write_after_it_thaws(
    open_database: OpenDatabase, start_program: StartProgram, path: Path
) -> None:
    """A stopped process keeps its lock but not its runs: when its sign is a minute old another takes them, for good."""
    database = await open_database()
    clock = Ahead()
    storage = storage_of(database, clock=clock)
    await begin(storage, "r")
    holder = await start_program(HOLDER, path, "frozen")
    assert await say(holder) == "holds r"
    holder.send_signal(signal.SIGSTOP)
    assert await storage.queue.claim("heir") == []
    clock.seconds = 120.0
    lease = await take(storage, "r", "heir")
    holder.send_signal(signal.SIGCONT)
    await tell(holder)
    assert await say(holder) == "LeaseLostError"
    await storage.runs.append(lease, Write(entries=[b"mine"]))
    assert await storage.runs.read("r") == [b"started", b"mine"]


async def test_a_worker_that_is_late_may_live_on(open_database: OpenDatabase) -> None:
    """Whoever was taken for dead begins anew with its next sign of life, and gets runs that are free."""
    first, second = await open_database(), await open_database()
    clock = FakeClock()
    mine, theirs = storage_of(first, clock=clock), storage_of(second, clock=clock)
    await begin(mine, "r")
    stale = await take(mine, "r", "late")
    clock.advance(61)
    await take(theirs, "r", "heir")
    with pytest.raises(LeaseLostError):
        await mine.runs.append(stale, Write(entries=[b"x"]))
    await begin(mine, "s")
    lease = await take(mine, "s", "late")
    await mine.runs.append(lease, Write(entries=[b"x"]))
    assert await theirs.queue.claim("heir") == []


async def test_two_processes_share_the_runs(
    open_database: OpenDatabase, start_program: StartProgram, path: Path
) -> None:
    """Of a hundred runs that two processes carry at the same time each is carried by one of them."""
    storage = storage_of(await open_database())
    for index in range(100):
        await begin(storage, f"r{index:02}")
    carriers = [await start_program(CARRIER, path, worker) for worker in ("one", "two")]
    assert [await say(carrier) for carrier in carriers] == ["ready", "ready"]
    for carrier in carriers:
        await tell(carrier)
    assert [await say(carrier) for carrier in carriers] == ["done", "done"]
    done = await storage.runs.list(RunFilter(stands=(Stand.FINISHED,)), limit=1000)
    assert len(done) == 100
    for record in done:
        assert await storage.runs.read(record.run_id) in ([b"started", b"one"], [b"started", b"two"])


async def test_many_processes_may_make_the_database(start_program: StartProgram, path: Path) -> None:
    """Processes that open a database that is not there yet, all at once, get the same one."""
    openers = [await start_program(OPENER, path) for _ in range(4)]
    assert [await say(opener) for opener in openers] == ["ready"] * 4
    for opener in openers:
        await tell(opener)
    assert [await say(opener) for opener in openers] == ["opened"] * 4
    async with storage_of(await Database.open(path)) as storage:
        await begin(storage, "r", standing=Standing())


def lock_files(path: Path) -> list[str]:
    """The names of the lock files beside the database."""
    return sorted(file.name for file in path.with_name(f"{path.name}-workers").glob("*"))
