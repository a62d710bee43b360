"""What is the in-process host's own: its journal failing it, closing, many starts at once, what it forgets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from harborage.identity import IdentityRequiredError, Quadruple
from harborage.planner import Finish, FinishReason
from harborage.runtime.durable import (
    EngineClosedError,
    EngineError,
    RunFailedError,
    RunNotFoundError,
    RunPhase,
    RunRequest,
)
from harborage.runtime.effects import Effect, EffectTable, StepCall
from harborage.runtime.engines.memory import MemoryEngine
from harborage.runtime.engines.recorder import StrayCancellationError
from harborage.runtime.journal import JournalCorruptError, MemoryJournal
from harborage.runtime.pauses import Coordinator
from harborage.runtime.steering import ControlEvent, ControlType, InboxExistsError, InboxRegistry, Scope
from harborage.testing.clock import FakeClock, settle

pytestmark = pytest.mark.anyio

GOAL = Finish(FinishReason.GOAL)


def who(run_id: str) -> Quadruple:
    return Quadruple("t", "u", "s", run_id)


def request(run_id: str, **fields: Any) -> RunRequest:
    return RunRequest(**{"who": who(run_id), "goal": "g", **fields})


def cancel(run_id: str, id: str = "") -> ControlEvent:
    return ControlEvent(ControlType.CANCEL, who(run_id), Scope.ADMIN, "t", None, id)


class StepJournal(MemoryJournal):
    """Refuses what it is told to refuse, and takes turns of the loop over everything."""

    def __init__(self, *, start_turns: int = 3, read_turns: int = 3) -> None:
        super().__init__()
        self.refuses: Callable[[Sequence[bytes]], bool] = lambda entries: False
        self._start_turns = start_turns
        self._read_turns = read_turns

    async def append(self, run_id: str, entries: Sequence[bytes]) -> None:
        await settle(self._start_turns if b'"started"' in entries[0] else 3)
        if self.refuses(entries):
            raise OSError("the disk is full")
        await super().append(run_id, entries)

    async def read(self, run_id: str) -> list[bytes]:
        await settle(self._read_turns)
        return await super().read(run_id)

    async def runs(self) -> list[str]:
        await settle(6)
        return await super().runs()


class World:
    """Counts what is done; `wait` holds until `gate` is set."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.gate = asyncio.Event()
        self.stray: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def effects(self) -> EffectTable:
        return EffectTable(
            {
                "act": Effect(run=self._act, is_intended=True),
                "wait": Effect(run=self._wait),
                "stray": Effect(run=self._stray),
            }
        )

    async def _act(self, call: StepCall) -> None:
        self.done.append(call.run_id)

    async def _wait(self, call: StepCall) -> None:
        await self.gate.wait()

    async def _stray(self, call: StepCall) -> None:
        await self.stray


async def acts(io: Any, asked: RunRequest) -> Finish:
    await io.step("act", None)
    return GOAL


async def acts_and_waits(io: Any, asked: RunRequest) -> Finish:
    await io.step("act", None)
    await io.step("wait", None)
    return GOAL


@pytest.fixture
async def world() -> World:
    return World()


@pytest.fixture
def engine() -> MemoryEngine:
    return MemoryEngine(Coordinator(clock=FakeClock()), clock=FakeClock())


@asynccontextmanager
async def served(engine: MemoryEngine, program: Any, world: World) -> AsyncIterator[None]:
    worker = asyncio.create_task(engine.serve(program, world.effects()))
    try:
        yield
    finally:
        worker.cancel()
        await asyncio.wait({worker})


def on(journal: MemoryJournal, **options: Any) -> MemoryEngine:
    clock = FakeClock()
    return MemoryEngine(Coordinator(clock=clock), journal=journal, clock=clock, **options)


async def test_it_is_served_by_one_worker(engine: MemoryEngine, world: World) -> None:
    """A second one is turned away and does not disturb the first."""
    async with served(engine, acts, world):
        await settle()
        with pytest.raises(EngineError, match="served already"):
            await engine.serve(acts, world.effects())
        await engine.start("r", request("r"))
        assert await engine.result("r") == GOAL


@pytest.mark.parametrize(("start_turns", "read_turns"), [(3, 3), (9, 0)])
async def test_a_run_that_starts_while_a_worker_looks_back_is_carried_once(
    world: World, start_turns: int, read_turns: int
) -> None:
    """However the start and the look at earlier runs fall together, nothing is done twice or before it is recorded."""
    for turns in range(30):
        journal = StepJournal(start_turns=start_turns, read_turns=read_turns)
        engine = on(journal)
        async with served(engine, acts, world):
            await settle(turns)
            await engine.start(f"r{turns}", request(f"r{turns}"))
            assert await engine.result(f"r{turns}") == GOAL
            await settle()
        entries = [b'"started"' in entry for entry in await journal.read(f"r{turns}")]
        assert entries == [True] + [False] * 3, "the record begins with the beginning"
    assert world.done == [f"r{turns}" for turns in range(30)]


async def test_many_starts_of_one_run_start_it_once(world: World) -> None:
    """All of them return, and the run is recorded and carried once."""
    journal = StepJournal()
    engine = on(journal)
    async with served(engine, acts, world):
        await asyncio.gather(*(engine.start("r", request("r")) for _ in range(20)))
        assert await engine.result("r") == GOAL
    assert world.done == ["r"]
    assert sum(b'"started"' in entry for entry in await journal.read("r")) == 1


async def test_a_start_that_cannot_be_recorded_starts_nothing(world: World) -> None:
    """The journal's error comes out, and the id and its inbox are free again."""
    journal = StepJournal()
    engine = on(journal)
    async with served(engine, acts, world):
        journal.refuses = lambda entries: True
        with pytest.raises(OSError, match="disk is full"):
            await engine.start("r", request("r"))
        with pytest.raises(RunNotFoundError):
            await engine.status("r")
        assert await engine.list() == []
        journal.refuses = lambda entries: False
        await engine.start("r", request("r"))
        assert await engine.result("r") == GOAL


async def test_a_request_without_a_json_form_starts_nothing(engine: MemoryEngine) -> None:
    """Half a surrogate pair in the goal is refused by its path before anything is opened."""
    with pytest.raises(Exception, match=r"entry\.request\.goal"):
        await engine.start("r", request("r", goal="\ud800"))
    assert await engine.list() == []
    await engine.start("r", request("r"))


async def test_a_start_needs_a_whole_identity(engine: MemoryEngine) -> None:
    """A run without one of its parts is refused and not there."""
    with pytest.raises(IdentityRequiredError, match="session"):
        await engine.start("r", RunRequest(who=Quadruple("t", "u", "", "r"), goal="g"))
    assert await engine.list() == []


async def test_two_runs_cannot_share_an_identity(engine: MemoryEngine) -> None:
    """The second would read the first one's inbox; it is refused and not there."""
    await engine.start("one", request("r"))
    with pytest.raises(InboxExistsError):
        await engine.start("two", request("r"))
    assert [status.run_id for status in await engine.list()] == ["one"]


async def test_a_step_that_cannot_be_recorded_fails_the_run(world: World) -> None:
    """No effect runs without its intent; the journal's error is the run's."""
    journal = StepJournal()
    journal.refuses = lambda entries: any(b'"begun"' in entry for entry in entries)
    engine = on(journal)
    async with served(engine, acts, world):
        await engine.start("r", request("r"))
        await settle()
        journal.refuses = lambda entries: False
        with pytest.raises(RunFailedError, match="OSError: the disk is full") as caught:
            await engine.result("r")
    assert isinstance(caught.value.__cause__, OSError)
    assert world.done == []


async def test_an_end_that_cannot_be_recorded_is_told_and_logged(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever waits gets the finish; the next process finds the run unended and comes to the same end."""
    journal = StepJournal()
    journal.refuses = lambda entries: any(b'"ended"' in entry for entry in entries)
    engine = on(journal)
    with caplog.at_level(logging.ERROR):
        async with served(engine, acts, world):
            await engine.start("r", request("r"))
            assert await engine.result("r") == GOAL
            await settle()
    assert "run r: the disk is full" in caplog.text
    journal.refuses = lambda entries: False
    another = on(journal)
    async with served(another, acts, world):
        assert await another.result("r") == GOAL
    assert world.done == ["r"]


async def test_an_unreadable_run_is_left_alone(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """It is named in the log, every look at it says why, nothing is written to it, and other runs are carried."""
    journal = MemoryJournal()
    broken = {
        "garbage": b"\xff\x00",
        "newer": b'{"entry":"started","at":"2026-01-01T00:00:00Z","v":99,"request":{}}',
        "headless": b'{"entry":"cut","at":"2026-01-01T00:00:00Z","name":"x","reason":"y"}',
        "shapeless": b'{"entry":"started","at":"2026-01-01T00:00:00Z","request":{"goal":1}}',
    }
    for run_id, entry in broken.items():
        await journal.append(run_id, [entry])
    await on(journal).start("good", request("good"))
    engine = on(journal)
    with caplog.at_level(logging.ERROR):
        async with served(engine, acts, world):
            assert await engine.result("good") == GOAL
    for run_id, entry in broken.items():
        assert f"run {run_id} is left alone: run {run_id}, entry 0: " in caplog.text
        for look in (engine.status, engine.result, engine.history):
            with pytest.raises(JournalCorruptError, match=f"run {run_id}, entry 0"):
                await look(run_id)
        with pytest.raises(JournalCorruptError):
            await engine.start(run_id, request(run_id))
        assert await journal.read(run_id) == [entry]


async def test_a_seed_that_is_none_starts_nothing(engine: MemoryEngine) -> None:
    """Something that is no entry is refused by its place before the run is there."""
    with pytest.raises(JournalCorruptError, match="run r, entry 0"):
        await engine.start("r", request("r"), seed=[b"{}"])
    assert await engine.list() == []


async def test_closing_lets_everybody_go(engine: MemoryEngine, world: World) -> None:
    """Those who wait for a result are told, controls are refused, and nothing starts any more; twice is once."""
    async with served(engine, acts_and_waits, world):
        await engine.start("r", request("r"))
        waiting = asyncio.create_task(engine.result("r"))
        await settle()
    assert (await engine.status("r")).phase is RunPhase.PENDING
    await engine.aclose()
    await engine.aclose()
    with pytest.raises(EngineClosedError):
        await waiting
    with pytest.raises(RunNotFoundError):
        await engine.send("r", cancel("r"))
    assert not await engine.cancel("r")
    for attempt in (engine.start("another", request("another")), engine.serve(acts, world.effects())):
        with pytest.raises(EngineClosedError):
            await attempt


async def test_controls_that_no_run_took_are_reported(world: World) -> None:
    """Whether the run ended first or the host closed, each of them is named once."""
    refused: list[ControlEvent] = []
    inboxes = InboxRegistry()
    engine = on(MemoryJournal(), refused=refused.append, inboxes=inboxes)
    async with served(engine, acts_and_waits, world):
        for run_id in ("ends", "stays"):
            await engine.start(run_id, request(run_id))
        assert len(inboxes) == 2, "the registry that was given is the one that is used, empty as it was"
        await settle()
        await engine.send("ends", cancel("ends", "one"))
        world.gate.set()
        await engine.result("ends")
    world.gate.clear()
    await engine.start("idle", request("idle"))
    await engine.send("idle", cancel("idle", "two"))
    assert [control.event_id for control in refused] == ["one"]
    await engine.aclose()
    assert [control.event_id for control in refused] == ["one", "two"]
    assert len(inboxes) == 0


async def test_old_runs_are_forgotten(world: World) -> None:
    """Of ended runs the newest stay readable; the others are gone from the host and the journal."""
    journal = MemoryJournal()
    engine = on(journal, keep_finished=2)
    async with served(engine, acts, world):
        for run_id in "abcd":
            await engine.start(run_id, request(run_id))
            await engine.result(run_id)
        await settle()
    assert [status.run_id for status in await engine.list()] == ["c", "d"]
    assert await journal.runs() == ["c", "d"]
    with pytest.raises(RunNotFoundError):
        await engine.history("a")


async def test_runs_of_before_are_listed_first(world: World) -> None:
    """Also when nobody serves and newer ones were started before anybody looked."""
    journal = StepJournal()
    async with served(engine := on(journal), acts, world):
        for run_id in ("old", "older"):
            await engine.start(run_id, request(run_id))
            await engine.result(run_id)
        await settle()
    another = on(journal)
    await another.start("new", request("new"))
    listed = await another.list()
    assert [(one.run_id, one.phase) for one in listed] == [
        ("old", RunPhase.FINISHED),
        ("older", RunPhase.FINISHED),
        ("new", RunPhase.PENDING),
    ]
    assert await another.list() == listed


async def test_a_cancellation_from_elsewhere_fails_the_run(engine: MemoryEngine, world: World) -> None:
    """A step that awaits something that others cancelled must not leave its run hanging for ever."""

    async def program(io: Any, asked: RunRequest) -> Finish:
        await io.step("stray", None)
        return GOAL

    async with served(engine, program, world):
        await engine.start("r", request("r"))
        await settle()
        world.stray.cancel()
        with pytest.raises(RunFailedError, match="cancelled elsewhere") as caught:
            await engine.result("r")
    assert isinstance(caught.value.__cause__, StrayCancellationError)
    assert (await engine.status("r")).reason.startswith("StrayCancellationError")


async def test_a_worker_that_stops_ends_all_its_tasks(engine: MemoryEngine, world: World) -> None:
    """Whatever its runs were doing, none of them goes on without it."""
    before = asyncio.all_tasks()
    async with served(engine, acts_and_waits, world):
        for index in range(50):
            await engine.start(f"r{index}", request(f"r{index}"))
        await settle()
        assert len(asyncio.all_tasks()) > 50
    await settle(2)
    assert asyncio.all_tasks() == before


async def test_a_cancel_may_come_from_the_host_itself(world: World) -> None:
    """It reaches the run's inbox like any other; hard ones say so."""
    engine = on(MemoryJournal())
    heard: list[Any] = []

    async def program(io: Any, asked: RunRequest) -> Finish:
        await io.step("wait", None)
        heard.extend((one.type, one.payload) for one in (await io.drain()).controls)
        return GOAL

    async with served(engine, program, world):
        await engine.start("r", request("r"))
        assert await engine.cancel("r")
        assert await engine.cancel("r", hard=True)
        world.gate.set()
        await engine.result("r")
        assert not await engine.cancel("r")
    assert heard == [(ControlType.CANCEL, None), (ControlType.CANCEL, {"hard": True})]
