"""A run in Postgres has one owner at a time: whoever was thought dead cannot write, and what it carried goes on."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from harborage.concurrency import Crew
from harborage.identity import Quadruple
from harborage.state.postgres import Database, PostgresRuns
from harborage.state.postgres.worker_locks import Other, Watch
from harborage.state.runs import Claim, LeaseLostError, RunFilter, RunRecord, Stand, Standing, Write

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WHO = Quadruple("tenant", "user", "session", "run")
LIFE = Path(__file__).with_name("life.py")
LEASE_S = 1.0
LONG_S = 60.0
PATIENCE_S = 20.0

OpenRuns = Callable[..., Awaitable[PostgresRuns]]


def a_record(run_id: str) -> RunRecord:
    """A run as it is asked for."""
    return RunRecord(run_id=run_id, who=WHO, goal="goal", created_at=NOW, updated_at=NOW)


@pytest.fixture
async def open_runs(place: Any) -> AsyncIterator[OpenRuns]:
    """Opens one more queue with short leases, as another process would have it."""
    opened: list[Any] = []

    async def open_one(lease_s: float = LEASE_S) -> PostgresRuns:
        database = await Database.open(place.url)
        runs = PostgresRuns(database, lease=timedelta(seconds=lease_s))
        opened.extend((runs, database))
        return runs

    yield open_one
    for one in opened:
        await one.aclose()


@asynccontextmanager
async def living(runs: PostgresRuns, worker: str) -> AsyncIterator[None]:
    """A block in which the worker gives signs of life."""
    crew = Crew(lambda _, error: pytest.fail(str(error)))
    crew.start(runs.keep_alive(worker), worker)
    try:
        await asyncio.sleep(0)
        yield
    finally:
        await crew.aclose()


async def claimed(runs: PostgresRuns, worker: str) -> Claim:
    """The first run that the worker gets; it looks again whenever it is told to."""
    told = asyncio.Event()
    unlisten = runs.on_change(told.set)
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                told.clear()
                if claims := await runs.claim(worker):
                    return claims[0]
                await told.wait()
    finally:
        unlisten()


class Life:
    """A worker in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def hear(self) -> str:
        """The next line it prints."""
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            return (await self.process.stdout.readline()).decode().strip()

    async def append(self, entry: str) -> str:
        """Let it append to its run; returns what became of that."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{entry}\n".encode())
        await self.process.stdin.drain()
        return await self.hear()


@asynccontextmanager
async def a_life(url: str, worker: str, lease_s: float = LEASE_S) -> AsyncIterator[Life]:
    """Another process that carries what is ready now."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, LIFE, url, worker, str(lease_s), stdin=pipe, stdout=pipe
    )
    try:
        yield Life(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_a_frozen_process_that_thaws_cannot_write(place: Any, open_runs: OpenRuns) -> None:
    """A process that stood still for longer than its lease finds its run with another one, and changes nothing."""
    runs = await open_runs()
    await runs.create(a_record("r"), Write(entries=[b"started"]))
    async with a_life(place.url, "frozen") as life, living(runs, "mine"):
        assert await life.hear() == "r"
        assert await life.append("before") == "kept"
        assert await runs.claim("mine") == []
        life.process.send_signal(signal.SIGSTOP)
        claim = await claimed(runs, "mine")
        life.process.send_signal(signal.SIGCONT)
        assert await life.append("too late") == "LeaseLostError"
        await runs.append(claim.lease, Write(entries=[b"after"]))
        assert await life.append("too late") == "LeaseLostError"
    assert await runs.read("r") == [b"started", b"before", b"after"]


async def test_the_runs_of_a_killed_process_go_on(place: Any, open_runs: OpenRuns) -> None:
    """After a kill the lease runs out, whoever lives is told, and takes the run over where its record stands."""
    runs = await open_runs()
    await runs.create(a_record("r"), Write(entries=[b"started"]))
    async with a_life(place.url, "killed") as life, living(runs, "mine"):
        assert await life.hear() == "r"
        assert await life.append("before") == "kept"
        life.process.kill()
        claim = await claimed(runs, "mine")
        assert claim.lease.fence == 2
        await runs.append(claim.lease, Write(entries=[b"after"]))
    assert await runs.read("r") == [b"started", b"before", b"after"]


async def test_a_lease_runs_out_by_the_clock_of_the_database(open_runs: OpenRuns) -> None:
    """A claim alone is a sign of life for as long as one lease, and no longer."""
    one, two = await open_runs(), await open_runs()
    await one.create(a_record("r"), Write())
    (claim,) = await one.claim("one")
    assert await two.claim("two") == []
    async with living(two, "two"):
        assert (await claimed(two, "two")).lease.fence == 2
    with pytest.raises(LeaseLostError):
        await one.append(claim.lease, Write(entries=[b"x"]))
    await one.release(claim.lease, Standing(stand=Stand.PARKED))
    (found,) = await one.list(RunFilter())
    assert found.standing.stand is Stand.READY


async def test_runs_of_the_dead_are_freed_without_a_claim(open_runs: OpenRuns) -> None:
    """Signs of life free what the dead carried, for workers of other agents, too; a parked run is looked at again."""
    one, two = await open_runs(), await open_runs()
    await one.create(a_record("r"), Write(standing=Standing(stand=Stand.PARKED)))
    await one.wake("r")
    assert len(await one.claim("one")) == 1
    told = asyncio.Event()
    async with living(two, "two"), asyncio.timeout(PATIENCE_S):
        two.on_change(told.set)
        while (await two.list(RunFilter()))[0].owner:
            told.clear()
            await told.wait()
    assert len(await two.claim("two", agent="any")) == 1


async def test_who_signs_keeps_its_runs(open_runs: OpenRuns) -> None:
    """Signs of life keep a lease for many times its length."""
    one, two = await open_runs(), await open_runs()
    await one.create(a_record("r"), Write())
    async with living(one, "one"):
        (claim,) = await one.claim("one")
        query = "select extract(epoch from expires_at) from harborage_workers where worker = 'one'"
        ends = {await one._database.fetchval(query)}
        async with asyncio.timeout(PATIENCE_S):
            while len(ends) < 6:
                ends.add(await one._database.fetchval(query))
                assert await two.claim("two") == []
        assert float(max(ends) - min(ends)) > LEASE_S
        await one.append(claim.lease, Write(entries=[b"x"]))


async def test_a_second_life_under_one_name_frees_what_the_first_carried(open_runs: OpenRuns) -> None:
    """A process that starts with the name of a dead one does not count as the carrier of its runs."""
    one, two = await open_runs(), await open_runs()
    await one.create(a_record("r"), Write())
    assert len(await one.claim("worker")) == 1
    async with living(two, "worker"):
        assert (await claimed(two, "worker")).lease.fence == 2


async def test_a_parking_run_never_misses_the_end_it_waits_for(open_runs: OpenRuns) -> None:
    """However the end of one run and the parking of another on it meet, the other is ready afterwards."""
    one, two = await open_runs(), await open_runs()
    async with living(one, "one"), living(two, "two"):
        for turn in range(40):
            child, parent = f"child {turn}", f"parent {turn}"
            await one.create(a_record(child), Write())
            (ending,) = await one.claim("one")
            await one.create(a_record(parent), Write())
            (parking,) = await two.claim("two")
            await asyncio.gather(
                one.append(ending.lease, Write(standing=Standing(stand=Stand.FINISHED))),
                two.release(parking.lease, Standing(stand=Stand.PARKED, waits_for=child)),
            )
            (claim,) = await two.claim("two")
            assert claim.record.run_id == parent
            await two.append(claim.lease, Write(standing=Standing(stand=Stand.FAILED)))


async def test_numbers_of_controls_become_visible_in_order(open_runs: OpenRuns) -> None:
    """Whoever has seen a control has seen every one with a smaller number, whatever connections sent them."""
    one, two = await open_runs(), await open_runs()
    for name in ("a", "b"):
        await one.create(a_record(name), Write())
    async with living(one, "one"):
        assert len(await one.claim("one")) == 2
        is_over = False

        async def send(runs: PostgresRuns, run_id: str, sender: int) -> None:
            for turn in range(20):
                await runs.send(run_id, f"{sender} {turn}", b"")

        async def watch() -> list[int]:
            seen: list[int] = []
            while True:
                was_over = is_over
                arrived = await one.arrived("one", after=seen[-1] if seen else 0)
                seen += [sent.number for sent in arrived]
                if was_over and not arrived:
                    return seen

        async with asyncio.TaskGroup() as group:
            watching = group.create_task(watch())
            senders = (send(runs, run, place) for place, runs in enumerate((one, two)) for run in ("a", "b"))
            await asyncio.gather(*senders)
            is_over = True
        assert watching.result() == list(range(1, 81))


async def test_a_body_is_kept_while_anybody_names_it(open_runs: OpenRuns) -> None:
    """Runs that come to name a body while others that name it are forgotten never lose it."""
    import hashlib

    one, two = await open_runs(), await open_runs()
    body = b"shared" * 1000
    name = hashlib.sha256(body).hexdigest()
    write = Write(entries=[b"x"], bodies={name: body})
    for turn in range(25):
        await one.create(a_record(f"old {turn}"), write)
        await asyncio.gather(one.forget(f"old {turn}"), two.create(a_record(f"new {turn}"), write))
        assert await one.body(f"new {turn}", name) == body
        await asyncio.gather(two.forget(f"new {turn}"), one.create(a_record(f"next {turn}"), write))
        assert await two.body(f"next {turn}", name) == body
        await two.forget(f"next {turn}")
    assert await one._database.fetchval("select count(*) from harborage_bodies") == 0


async def is_locked(place: Any, worker: str) -> None:
    """Return once the worker holds its lock."""
    await place.has_come("select exists (select from harborage_workers where worker = $1 and lock_key > 0)", worker)


async def test_the_runs_of_a_killed_process_go_on_long_before_its_lease_ends(place: Any, open_runs: OpenRuns) -> None:
    """A killed process loses its lock with its connection, and others take its runs over at once."""
    runs = await open_runs(LONG_S)
    await runs.create(a_record("r"), Write(entries=[b"started"]))
    async with a_life(place.url, "killed", LONG_S) as life, living(runs, "mine"):
        assert await life.hear() == "r"
        await is_locked(place, "killed")
        life.process.kill()
        claim = await claimed(runs, "mine")  # which waits for a third of the lease at most
        assert claim.lease.fence == 2


async def test_a_frozen_process_is_found_though_the_clock_of_the_database_was_set_back(
    place: Any, open_runs: OpenRuns
) -> None:
    """A lease that ends an hour from now by the database's clock ends in time by the clocks of those who look."""
    runs = await open_runs()
    await runs.create(a_record("r"), Write())
    async with a_life(place.url, "frozen") as life, living(runs, "mine"):
        assert await life.hear() == "r"
        await is_locked(place, "frozen")
        life.process.send_signal(signal.SIGSTOP)
        set_back = "update harborage_workers set expires_at = expires_at + interval '1 hour' where worker = 'frozen'"
        await place.admin.execute(set_back)
        assert (await claimed(runs, "mine")).lease.fence == 2
        life.process.send_signal(signal.SIGCONT)
        assert await life.append("too late") == "LeaseLostError"


async def test_a_clock_of_the_database_that_is_set_on_takes_no_run_from_who_lives(
    place: Any, open_runs: OpenRuns
) -> None:
    """A lease that is over by the database's clock is none while the worker holds its lock."""
    one, two = await open_runs(LONG_S), await open_runs(LONG_S)
    await one.create(a_record("r"), Write())
    async with living(one, "one"), living(two, "two"):
        (claim,) = await one.claim("one")
        await is_locked(place, "one")
        await place.admin.execute("update harborage_workers set expires_at = expires_at - interval '1 hour'")
        assert await two.claim("two") == []
        await one.append(claim.lease, Write(entries=[b"x"]))


async def test_a_worker_that_loses_its_connections_takes_a_new_lock_and_keeps_its_runs(
    place: Any, open_runs: OpenRuns
) -> None:
    """A lock that went with its connection is no death: the worker says so, and locks again."""
    one, two = await open_runs(LONG_S), await open_runs(LONG_S)
    await one.create(a_record("r"), Write())
    async with living(one, "one"), living(two, "two"):
        (claim,) = await one.claim("one")
        for worker in ("one", "two"):
            await is_locked(place, worker)
        for _ in range(3):
            key = await place.admin.fetchval("select lock_key from harborage_workers where worker = 'one'")
            assert await place.break_connections() > 0
            await place.has_come("select lock_key <> $1 from harborage_workers where worker = 'one'", key)
            assert await two.claim("two") == []
        await one.append(claim.lease, Write(entries=[b"x"]))


def test_who_is_dead_follows_from_what_was_seen() -> None:
    """A lock that is missing for a moment, or a sign that stays the same for a lease, is a death; a single look, or
    looks with a gap between them, are not."""
    early, late = NOW, NOW + timedelta(hours=1)
    held = Other("w", early, 7, is_locked=True, is_expired=False)
    lost = Other("w", early, 7, is_locked=False, is_expired=False)
    signed = Other("w", late, 7, is_locked=False, is_expired=False)
    without = Other("w", early, None, is_locked=False, is_expired=False)
    stories: dict[str, list[tuple[float, Other, bool]]] = {
        "killed": [(0, held, False), (0.1, lost, False), (0.3, lost, False), (0.6, lost, True)],
        "a new lock in time": [(0, lost, False), (0.3, lost, False), (0.4, held, False), (1, lost, False)],
        "a sign without a lock": [(0, lost, False), (0.4, signed, False), (0.8, signed, False), (1, signed, True)],
        "frozen": [(at, held, at >= 10) for at in range(12)],
        "who looks was frozen": [(0, held, False), (20, held, False), (21, held, False)],
        "without a lock": [(at, without, at >= 10) for at in range(12)],
        "expired without a lock": [(0, Other("w", early, None, is_locked=False, is_expired=True), True)],
        "expired, and alive": [(0, Other("w", early, 7, is_locked=True, is_expired=True), False)],
        "expired, and dead": [(0, Other("w", early, 7, is_locked=False, is_expired=True), True)],
    }
    for name, looks in stories.items():
        watch = Watch(10.0, 0.5)
        assert [(at, bool(watch.dead([one], at))) for at, one, _ in looks] == [
            (at, is_dead) for at, _, is_dead in looks
        ], name
