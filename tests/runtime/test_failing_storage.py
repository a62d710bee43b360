"""A runtime whose storage fails: what went wrong is said with the run and the entry, nothing is lost, and it heals."""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

from harborage import codec
from harborage.events import EventType
from harborage.identity import Identity
from harborage.planner import (
    CallTool,
    Finish,
    FinishReason,
    PauseReason,
    ProcessLocalHandleRegistry,
    RequestPause,
    RunContext,
)
from harborage.runtime.durable.engine import RunPhase
from harborage.runtime.durable.stored import StoredEngine
from harborage.runtime.effects.options import RuntimeOptions
from harborage.runtime.host import Runtime
from harborage.runtime.pauses import PauseDecision, ToolContextLostError
from harborage.runtime.run import Run
from harborage.runtime.steering import ControlEvent, ControlType, Scope
from harborage.state.errors import DatabaseCorruptError, DatabaseLockedError, DatabaseUnreachableError
from harborage.state.sqlite import storage_of
from harborage.state.storage import Storage
from harborage.store import Commit, SendControl
from harborage.store.sqlite import Database
from harborage.testing.clock import FakeClock
from harborage.tools import SideEffect, tool
from tests.kit.planners import HandlePlanner

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")
LARGE = "x" * 400_000


class World:
    """A planner whose runs fetch something of the size that their goal says, note it, and finish; and its tools."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.reached = asyncio.Event()
        self.fetched: list[str] = []
        self.noted: list[str] = []

    async def next(self, run: RunContext) -> Any:
        steps = run.trajectory.steps
        if not steps:
            return CallTool("fetch", b'{"what":"%s"}' % run.goal.encode())
        if len(steps) == 1:
            return CallTool("note", b'{"text":"%s"}' % run.goal.encode())
        return Finish(FinishReason.GOAL, len(str(steps[0].observation)))

    def tools(self) -> list[Any]:
        async def fetch(what: str) -> str:
            """Fetch something."""
            self.reached.set()
            await self.gate.wait()
            self.fetched.append(what)
            return LARGE if what == "large" else what

        async def note(text: str) -> str:
            """Note something, once."""
            self.noted.append(text)
            return "noted"

        return [tool(fetch, effects=SideEffect.READ), tool(note, effects=SideEffect.WRITE)]


class Place:
    """A database file, runtimes over it, and what they log."""

    def __init__(self, path: Path, log: pytest.LogCaptureFixture) -> None:
        self.path = path
        self.clock = FakeClock()
        self.world = World()
        self.log = log

    async def open(self) -> tuple[Database, Storage]:
        """The database and the storage over it, as a process opens them."""
        database = await Database.open(self.path, busy_timeout_s=0.05)
        return database, storage_of(database, clock=self.clock)

    def runtime(self, storage: Storage, planner: Any = None, **parts: Any) -> Runtime:
        return Runtime(
            planner=planner or self.world,
            tools=self.world.tools(),
            storage=storage,
            clock=self.clock,
            options=RuntimeOptions(linger=timedelta(hours=1), heavy_threshold=1 << 20),
            **parts,
        )

    async def said(self, *words: str) -> str:
        """The first line of the log that holds all these words, once it is there."""
        return await self.eventually(
            lambda: next((one for one in self.log.messages if all(word in one for word in words)), ""), str(words)
        )

    async def ends(self, run: Run) -> Any:
        """What a run's finish holds; meanwhile the clock goes on."""
        ending = asyncio.ensure_future(run.finished())
        await self.eventually(ending.done, "the run ends")
        return (await ending).payload

    async def becomes(self, run: Run, phase: RunPhase) -> str:
        """Return when the run is in this phase, with the reason."""
        async with asyncio.timeout(20):
            while (status := await run.status()).phase is not phase:
                await self.clock.run_for(0.2)
        return status.reason

    async def eventually(self, look: Callable[[], Any], what: str) -> Any:
        """What `look` gives as soon as that is something, while time passes."""
        async with asyncio.timeout(20):
            while not (found := look()):
                await self.clock.run_for(0.2)
                await asyncio.sleep(0.002)  # a thread answers, which virtual time does not wait for
        return found

    def alter(self, sql: str, *values: object) -> None:
        """Change the file from outside, while no process has it open."""
        with closing(apsw.Connection(str(self.path))) as connection:
            connection.execute(sql, values)
            assert connection.changes() == 1

    def rows(self, sql: str, *values: object) -> list[Any]:
        """Read the file from outside."""
        with closing(apsw.Connection(str(self.path))) as connection:
            return list(connection.execute(sql, values))


@pytest.fixture
def place(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Place:
    caplog.set_level(logging.WARNING)
    return Place(tmp_path / "harborage.db", caplog)


@pytest.fixture
async def opened(place: Place) -> AsyncIterator[tuple[Database, Storage]]:
    """The database of the place and the storage over it."""
    database, storage = await place.open()
    yield database, storage
    await storage.aclose()


async def pragma(database: Database, name: str, value: int | None = None) -> int:
    """Execute a statement on the connection that writes."""
    found = await database.write(lambda tx: tx.connection.pragma(name, value))
    return int(str(found or 0))


async def test_a_full_disk_stops_the_run_that_does_not_fit(place: Place, opened: tuple[Database, Storage]) -> None:
    """It stops at its last recorded step and says what to do, a smaller run ends; with space it continues."""
    database, storage = opened
    async with place.runtime(storage) as rt:
        large, small = await rt.start("large", who=ME), await rt.start("small", who=ME)
        before = await large.history()
        pages = int(str(await database.read(lambda tx: tx.connection.pragma("page_count"))))
        await pragma(database, "max_page_count", pages + 60)
        place.world.gate.set()
        assert await place.ends(small) == len("small")
        message = await place.said(large.id, "free some space")
        assert str(place.path) in message
        assert (await large.history())[: len(before)] == before
        assert not (await large.status()).phase.is_final
        await pragma(database, "max_page_count", 1_000_000)
        assert await place.ends(large) == len(LARGE)
    assert sorted(place.world.noted) == ["large", "small"]


async def test_a_locked_database_is_waited_for(place: Place, opened: tuple[Database, Storage]) -> None:
    """While another process holds it nothing can be started and nothing goes on; afterwards all of it does."""
    _, storage = opened
    async with place.runtime(storage) as rt:
        run = await rt.start("small", who=ME)
        await place.eventually(place.world.reached.is_set, "the run is at work")
        # The same library as the runtime's: two of them in one process do not see each other's locks.
        holder = apsw.Connection(str(place.path))
        holder.set_busy_timeout(20_000)
        holder.execute("BEGIN IMMEDIATE")
        place.world.gate.set()
        message = await place.said(run.id, "lock")
        assert str(place.path) in message
        with pytest.raises(DatabaseLockedError, match=place.path.name):
            await rt.start("small", who=ME)
        assert place.world.noted == []
        holder.execute("ROLLBACK")
        holder.close()
        assert await place.ends(run) == len("small")
    assert place.world.noted == ["small"]


async def test_a_database_that_became_read_only_is_named(place: Place, opened: tuple[Database, Storage]) -> None:
    """What cannot be recorded does not happen: no step with effects begins until writing is allowed again."""
    database, storage = opened
    async with place.runtime(storage) as rt:
        run = await rt.start("small", who=ME)
        await place.eventually(place.world.reached.is_set, "the run is at work")
        before = await run.history()
        (writer,) = await database.write(lambda tx: [tx.connection])
        writer.pragma("query_only", 1)
        place.world.gate.set()
        message = await place.said(run.id, "right to write")
        assert str(place.path) in message
        assert (await run.history())[: len(before)] == before
        assert place.world.noted == []
        await place.eventually(lambda: _allowed(writer), "nobody uses the connection")
        assert await place.ends(run) == len("small")
    assert place.world.noted == ["small"]


class Away:
    """A store to which the way is broken for a while; everything else of it is the real one."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.is_away = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def runs(self, *args: Any, **more: Any) -> Any:
        if self.is_away:
            raise DatabaseUnreachableError("the database", "connection refused")
        return await self._store.runs(*args, **more)


async def test_who_waits_for_a_result_outlives_an_outage(place: Place, opened: tuple[Database, Storage]) -> None:
    """Whether the run is carried here or elsewhere: its result comes when the database is back."""
    _, storage = opened
    away: Any = Away(storage.store)
    async with place.runtime(storage) as rt:
        run = await rt.start("small", who=ME)
        engine = StoredEngine(away, rt.pauses, clock=place.clock, agents=["none"])
        away.is_away = True
        waiting = asyncio.ensure_future(engine.result(run.id))
        await place.said(run.id, "connection refused")
        place.world.gate.set()
        assert await place.ends(run) == len("small")
        assert not waiting.done()
        away.is_away = False
        await place.eventually(waiting.done, "the result comes")
        assert (await waiting).payload == len("small")
        await engine.aclose()


def _allowed(writer: apsw.Connection) -> bool:
    """Allow writing again; False while the thread that writes is at it."""
    try:
        writer.pragma("query_only", 0)
    except apsw.ThreadingViolationError:
        return False
    return True


async def test_what_is_no_database_does_not_open(place: Place) -> None:
    """A runtime over it says so at once, naming the file, and leaves every byte as it is."""
    place.path.write_bytes(b"dear diary, " * 1000)
    with pytest.raises(DatabaseCorruptError, match=place.path.name):
        async with Runtime(planner=place.world, storage=f"sqlite:{place.path}"):
            pytest.fail("it opened")
    assert place.path.read_bytes() == b"dear diary, " * 1000


class Asking:
    """A world whose runs wait for a person after they have fetched what they wanted."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def next(self, run: RunContext) -> Any:
        if len(run.trajectory.steps) == 1 and run.trajectory.resume_hint is None:
            return RequestPause(PauseReason.AWAIT_INPUT)
        return await self._world.next(run)


async def parked(place: Place) -> tuple[str, str]:
    """Two runs that wait for a person while nothing is up; the first one holds a large body."""
    place.world.gate.set()
    _, storage = await place.open()
    async with storage, place.runtime(storage, Asking(place.world)) as rt:
        runs = [await rt.start(goal, who=ME) for goal in ("large", "small")]
        for run in runs:
            await place.becomes(run, RunPhase.PARKED)
    return runs[0].id, runs[1].id


OF_THE_RUN = "run = (SELECT num FROM harborage_runs WHERE run_id = ?)"
AN_ENTRY = f"{OF_THE_RUN} AND position = 3"


def changed(place: Place, run_id: str) -> Callable[[], None]:
    """Change a byte of an entry; what is returned changes it back."""
    ((data,),) = place.rows(f"SELECT data FROM harborage_journal WHERE {AN_ENTRY}", run_id)
    update = f"UPDATE harborage_journal SET data = ? WHERE {AN_ENTRY}"
    place.alter(update, data.replace(b"done", b"gone", 1), run_id)
    return lambda: place.alter(update, data, run_id)


def foreign(place: Place, run_id: str) -> Callable[[], None]:
    """Put something else in the place of an entry, with the right checksum; what is returned puts it back."""
    ((data, crc),) = place.rows(f"SELECT data, crc FROM harborage_journal WHERE {AN_ENTRY}", run_id)
    update = f"UPDATE harborage_journal SET data = ?, crc = ? WHERE {AN_ENTRY}"
    place.alter(update, b'{"entry":"poem"}', zlib.crc32(b'{"entry":"poem"}'), run_id)
    return lambda: place.alter(update, data, crc, run_id)


def lost(place: Place, run_id: str) -> Callable[[], None]:
    """Take an entry away; what is returned brings it back."""
    (row,) = place.rows(f"SELECT * FROM harborage_journal WHERE {AN_ENTRY}", run_id)
    place.alter(f"DELETE FROM harborage_journal WHERE {AN_ENTRY}", run_id)
    return lambda: place.alter("INSERT INTO harborage_journal VALUES (?, ?, ?, ?, ?)", *row)


def bodiless(place: Place, run_id: str) -> Callable[[], None]:
    """Take a large body away; what is returned brings it back."""
    (row,) = place.rows("SELECT * FROM harborage_bodies")
    place.alter("DELETE FROM harborage_bodies")
    return lambda: place.alter("INSERT INTO harborage_bodies VALUES (?, ?, ?)", *row)


@pytest.mark.parametrize(
    ("damage", "words"),
    [(changed, "entry 2"), (foreign, "entry 2: Invalid value 'poem'"), (lost, "entry 2"), (bodiless, ": its body ")],
)
async def test_a_damaged_record_blocks_its_run_alone(
    place: Place, damage: Callable[[Place, str], Callable[[], None]], words: str
) -> None:
    """The run is blocked and names the entry, no row of it changes, the other ends; once repaired, it ends."""
    victim, other = await parked(place)
    mend = damage(place, victim)
    kept = place.rows(f"SELECT * FROM harborage_journal WHERE {OF_THE_RUN}", victim)
    _, storage = await place.open()
    async with storage, place.runtime(storage, Asking(place.world)) as rt:
        first, second = await rt.run(victim, who=ME), await rt.run(other, who=ME)
        await first.resume()
        await second.resume()
        reason = await place.becomes(first, RunPhase.BLOCKED)
        assert f"run {victim}, entry " in reason
        assert words in reason
        assert await place.ends(second) == len("small")
    assert place.rows(f"SELECT * FROM harborage_journal WHERE {OF_THE_RUN}", victim) == kept
    assert place.world.noted == ["small"]
    mend()
    _, storage = await place.open()
    async with storage, place.runtime(storage, Asking(place.world)) as rt:
        assert await place.ends(await rt.run(victim, who=ME)) == len(LARGE)
    assert place.world.fetched.count("large") == 1
    assert place.world.noted == ["small", "large"]


async def test_a_missing_handle_keeps_its_run_waiting(place: Place) -> None:
    """Where a live object is not there the run is not resumed, which is said; where it is, the same pause is."""
    _, storage = await place.open()
    async with storage, place.runtime(storage, HandlePlanner()) as rt:
        run = await rt.start("go", who=ME)
        await place.becomes(run, RunPhase.PARKED)
        (pause,) = await run.waiting()
        with pytest.raises(ToolContextLostError, match="browser"):
            await rt.pauses.resume(pause.token, PauseDecision.RESUME, who=ME)
        with pytest.raises(ToolContextLostError, match="browser"):
            await run.resume()
        # Sent by a process that cannot know, it is refused by the worker.
        control = ControlEvent(ControlType.RESUME, run.who, Scope.OWNER_USER, run.who.tenant_id)
        sent = SendControl(run_id=run.id, event_id="elsewhere", type="RESUME", data=codec.encode(control))
        await storage.store.commit(Commit(sends=(sent,)))
        async for event in run.events():
            if event.type == EventType.CONTROL_APPLIED:
                assert (event.payload.outcome, event.payload.err) == ("failed", "tool_context_lost")
                break
        assert await run.waiting() == [pause]
    handles = ProcessLocalHandleRegistry()
    handles.set("browser", object())
    _, storage = await place.open()
    async with storage, place.runtime(storage, HandlePlanner(), handles=handles) as rt:
        run = await rt.run(run.id, who=ME)
        assert [one.token for one in await run.waiting()] == [pause.token]
        await run.resume()
        assert await place.ends(run) == "went on"
