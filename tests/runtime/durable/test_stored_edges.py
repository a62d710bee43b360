"""The edges of the stored host: many starts at once, a store that refuses, what cannot be read, what is forgotten."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from harborage.identity import IdentityRequiredError, Quadruple
from harborage.runtime.durable.engine import EngineError, RunBlockedError, RunNotFoundError, RunPhase
from harborage.runtime.durable.journal import JournalCorruptError
from harborage.runtime.durable.stored import StoredEngine
from harborage.runtime.loop.seam import RunRequest
from harborage.runtime.steering import InboxRegistry
from harborage.state.errors import DatabaseLockedError
from harborage.store import Claimed, Commit, Committed
from harborage.store.memory import MemoryStore
from harborage.testing.clock import FakeClock, settle
from tests.kit.acting import GOAL, World, acts, acts_and_waits, on, request, served, who
from tests.kit.slow_store import AwaitedStore, SlowStore
from tests.kit.stored_runs import keep

pytestmark = pytest.mark.anyio


class PickyStore(SlowStore):
    """Refuses the chosen operations, and yields to the event loop in all of them."""

    def __init__(self, *, start_turns: int = 3, claim_turns: int = 3) -> None:
        super().__init__(clock=FakeClock())
        self.refuses: Callable[[Commit], bool] = lambda commit: False
        self._start_turns = start_turns
        self._claim_turns = claim_turns

    async def commit(self, commit: Commit) -> Committed:
        await settle(self._start_turns if commit.starts else 0)
        if self.refuses(commit):
            raise DatabaseLockedError("the disk", "full")
        return await super().commit(commit)

    async def claim(self, worker: str, **options: Any) -> list[Claimed]:
        await settle(self._claim_turns)
        return await super().claim(worker, **options)


def writes(kind: bytes) -> Callable[[Commit], bool]:
    """Whether a commit brings an entry of this kind."""
    return lambda commit: any(b'"entry":"%s"' % kind in entry for entry in commit.entries)


@pytest.fixture
async def world() -> World:
    return World()


@pytest.fixture(params=[MemoryStore, AwaitedStore])
def engine(request: pytest.FixtureRequest) -> StoredEngine:
    return on(request.param())


@pytest.mark.parametrize(("start_turns", "claim_turns"), [(3, 3), (9, 0), (0, 9)])
async def test_a_run_that_starts_while_a_worker_begins_is_carried_once(
    world: World, start_turns: int, claim_turns: int
) -> None:
    """However the start and the look for runs fall together, nothing is done twice or before it is recorded."""
    for turns in range(40):
        store = PickyStore(start_turns=start_turns, claim_turns=claim_turns)
        engine = on(store)
        async with served(engine, acts, world):
            await settle(turns)
            await engine.start(f"r{turns}", request(f"r{turns}"))
            assert await engine.result(f"r{turns}") == GOAL
        entries = [b'"started"' in entry for entry in await store.entries(f"r{turns}")]
        assert entries == [True] + [False] * 3, "the record begins with the beginning"
    assert world.done == [f"r{turns}" for turns in range(40)]


async def test_many_starts_of_one_run_start_it_once(world: World) -> None:
    """All of them return, and the run is recorded and carried once."""
    store = PickyStore()
    engine = on(store)
    async with served(engine, acts, world):
        await asyncio.gather(*(engine.start("r", request("r")) for _ in range(20)))
        assert await engine.result("r") == GOAL
    assert world.done == ["r"]
    assert sum(b'"started"' in entry for entry in await store.entries("r")) == 1


async def test_a_start_that_cannot_be_recorded_starts_nothing(world: World) -> None:
    """The store's error comes out, and the id and its inbox are free again."""
    store, inboxes = PickyStore(), InboxRegistry()
    engine = on(store, inboxes=inboxes)
    async with served(engine, acts, world):
        store.refuses = lambda commit: bool(commit.starts)
        with pytest.raises(DatabaseLockedError, match="full"):
            await engine.start("r", request("r"))
        with pytest.raises(RunNotFoundError):
            await engine.status("r")
        assert await engine.list() == []
        assert len(inboxes) == 0
        store.refuses = lambda commit: False
        await engine.start("r", request("r"))
        assert await engine.result("r") == GOAL


async def test_a_request_without_a_json_form_starts_nothing(engine: StoredEngine) -> None:
    """Half a surrogate pair in the goal is refused by its path before anything is opened."""
    with pytest.raises(Exception, match=r"entry\.request\.goal"):
        await engine.start("r", request("r", goal="\ud800"))
    assert await engine.list() == []
    await engine.start("r", request("r"))


async def test_a_start_needs_a_whole_identity(engine: StoredEngine) -> None:
    """A run without one of its parts is refused and not there."""
    with pytest.raises(IdentityRequiredError, match="session"):
        await engine.start("r", RunRequest(who=Quadruple("t", "u", "", "r"), goal="g"))
    assert await engine.list() == []


@pytest.mark.parametrize("is_served", [False, True])
async def test_two_runs_cannot_share_an_identity(engine: StoredEngine, world: World, is_served: bool) -> None:
    """The second would read the first one's inbox; it is refused and not there, whether anybody serves or not."""
    program = acts_and_waits
    worker = asyncio.create_task(engine.serve(program, world.effects())) if is_served else None
    await settle()
    await engine.start("one", request("one"))
    with pytest.raises(EngineError, match="identity of run one"):
        await engine.start("two", request("one"))
    assert [status.run_id for status in await engine.list()] == ["one"]
    if worker is not None:
        worker.cancel()
        await asyncio.wait({worker})


async def test_a_step_that_cannot_be_recorded_waits_until_it_can(world: World) -> None:
    """No effect runs without its intent: the run is given back, and goes on once the store takes it."""
    store, clock = PickyStore(), FakeClock()
    store.refuses = writes(b"begun")
    engine = on(store, clock=clock)
    async with served(engine, acts, world):
        await engine.start("r", request("r"))
        await clock.run_for(5)
        assert world.done == []
        assert not (await engine.status("r")).phase.is_final
        store.refuses = lambda commit: False
        await clock.run_for(5)
        assert await engine.result("r") == GOAL
    assert world.done == ["r"]


async def test_an_end_that_cannot_be_recorded_is_logged_and_not_published(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """An end that is not stored is not published; a worker reaches the same end without new effects."""
    store, clock = PickyStore(), FakeClock()
    store.refuses = writes(b"ended")
    engine = on(store, clock=clock)
    with caplog.at_level(logging.ERROR):
        async with served(engine, acts, world):
            await engine.start("r", request("r"))
            waiting = asyncio.create_task(engine.result("r"))
            await clock.run_for(5)
            assert not waiting.done()
    waiting.cancel()
    assert "run r is released" in caplog.text
    assert "full" in caplog.text
    store.refuses = lambda commit: False
    another = on(store)
    async with served(another, acts, world):
        assert await another.result("r") == GOAL
    assert world.done == ["r"]


async def test_an_unreadable_run_is_left_alone(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """It is named in the log and blocked, which says why, nothing is written to it, and other runs are carried."""
    store = MemoryStore()
    broken = {
        "garbage": b"\xff\x00",
        "newer": b'{"entry":"started","at":"2026-01-01T00:00:00Z","v":99,"request":{}}',
        "headless": b'{"entry":"cut","at":"2026-01-01T00:00:00Z","name":"x","reason":"y"}',
        "shapeless": b'{"entry":"started","at":"2026-01-01T00:00:00Z","request":{"goal":1}}',
    }
    for run_id, entry in broken.items():
        await keep(store, who(run_id), [entry])
    await on(store).start("good", request("good"))
    engine = on(store)
    with caplog.at_level(logging.ERROR):
        async with served(engine, acts, world):
            assert await engine.result("good") == GOAL
            await settle()
            for run_id, entry in broken.items():
                place = f"run {run_id}, entry 0: "
                assert place in caplog.text
                status = await engine.status(run_id)
                assert (status.phase, status.reason.startswith(place)) == (RunPhase.BLOCKED, True), status
                with pytest.raises(RunBlockedError, match=place):
                    await engine.result(run_id)
                await engine.start(run_id, request(run_id))
                assert await store.entries(run_id) == [entry]
    assert world.done == ["good"]


async def test_a_seed_that_is_none_starts_nothing(engine: StoredEngine) -> None:
    """Something that is no entry is refused by its place before the run is there."""
    with pytest.raises(JournalCorruptError, match="run r, entry 0"):
        await engine.start("r", request("r"), seed=[b"{}"])
    assert await engine.list() == []


async def test_old_runs_are_forgotten(world: World) -> None:
    """Of ended runs the newest stay readable; the others are gone from the store."""
    store = MemoryStore(keep_ended=2)
    engine = on(store)
    async with served(engine, acts, world):
        for run_id in "abcd":
            await engine.start(run_id, request(run_id))
            await engine.result(run_id)
    assert [status.run_id for status in await engine.list()] == ["c", "d"]
    assert await store.entries("a") == []
    with pytest.raises(RunNotFoundError):
        await engine.history("a")


async def test_runs_of_before_are_listed_first(world: World) -> None:
    """Also if no worker serves, and newer runs were started before a caller waited."""
    store = PickyStore()
    async with served(engine := on(store), acts, world):
        for run_id in ("old", "older"):
            await engine.start(run_id, request(run_id))
            await engine.result(run_id)
    another = on(store)
    await another.start("new", request("new"))
    listed = await another.list()
    assert [(one.run_id, one.phase) for one in listed] == [
        ("old", RunPhase.FINISHED),
        ("older", RunPhase.FINISHED),
        ("new", RunPhase.PENDING),
    ]
    assert await another.list() == listed
