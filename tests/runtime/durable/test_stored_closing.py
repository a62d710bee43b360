"""A stored host that is served, stopped and closed, and what its runs and those who wait for them hear of that."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from harborage.planner import Finish
from harborage.runtime.durable.engine import (
    EngineClosedError,
    EngineError,
    RunFailedError,
    RunNotFoundError,
    RunPhase,
    StrayCancellationError,
)
from harborage.runtime.durable.stored import StoredEngine
from harborage.runtime.loop.seam import RunRequest
from harborage.runtime.steering import ControlEvent, ControlType, InboxRegistry, Scope
from harborage.store.memory import MemoryStore
from harborage.testing.clock import settle
from tests.kit.acting import GOAL, World, acts, acts_and_waits, on, request, served, who
from tests.kit.slow_store import AwaitedStore, SlowStore
from tests.kit.stored_runs import rows_of

pytestmark = pytest.mark.anyio


def cancel(run_id: str, id: str = "") -> ControlEvent:
    return ControlEvent(ControlType.CANCEL, who(run_id), Scope.ADMIN, "t", None, id)


@pytest.fixture
async def world() -> World:
    return World()


@pytest.fixture(params=[MemoryStore, AwaitedStore])
def engine(request: pytest.FixtureRequest) -> StoredEngine:
    return on(request.param())


async def test_it_is_served_by_one_worker(engine: StoredEngine, world: World) -> None:
    """A second one is turned away and does not disturb the first."""
    async with served(engine, acts, world):
        await settle()
        with pytest.raises(EngineError, match="served already"):
            await engine.serve(acts, world.effects())
        await engine.start("r", request("r"))
        assert await engine.result("r") == GOAL


async def test_a_start_that_a_worker_stops_under_is_for_the_next_one(world: World) -> None:
    """Whenever the worker stops while a run is being started, the run is there, once, and the next one ends it."""
    for turns in range(40):
        store, name = SlowStore(), f"r{turns}"
        engine = on(store)
        async with served(engine, acts, world):
            await settle(12)
            starting = asyncio.create_task(engine.start(name, request(name)))
            await settle(turns)
        await starting
        async with served(another := on(store), acts, world):
            assert await another.result(name) == GOAL
        assert sum(b'"started"' in entry for entry in await store.entries(name)) == 1
    assert list(dict.fromkeys(world.done)) == [f"r{turns}" for turns in range(40)]


async def test_a_start_that_is_cut_short_leaves_no_run_without_a_worker(world: World) -> None:
    """Wherever its caller gives up, a run that is kept all the same goes to its end."""
    store = SlowStore()
    engine = on(store)
    async with served(engine, acts, world):
        await settle(12)
        for turns in range(1, 9):
            starting = asyncio.create_task(engine.start(f"r{turns}", request(f"r{turns}")))
            await settle(turns)
            starting.cancel()
            await asyncio.wait([starting])
        await settle(12)
        kept = [row.run_id for row in await rows_of(store)]
        assert len(kept) == 8  # the commit goes on without the caller that waited for it
        async with asyncio.timeout(10):
            assert [await engine.result(run_id) for run_id in kept] == [GOAL] * len(kept)


async def test_closing_releases_every_waiter(engine: StoredEngine, world: World) -> None:
    """Callers that wait get an error, controls are refused, and no run starts; closing twice does nothing."""
    async with served(engine, acts_and_waits, world):
        await engine.start("r", request("r"))
        waiting = asyncio.create_task(engine.result("r"))
        await settle()
    assert (await engine.status("r")).phase is RunPhase.PENDING
    await engine.aclose()
    await engine.aclose()
    for attempt in (
        waiting,
        engine.send("r", cancel("r")),
        engine.cancel("r"),
        engine.start("another", request("another")),
        engine.serve(acts, world.effects()),
    ):
        with pytest.raises(EngineClosedError):
            await attempt


async def test_a_waiter_gets_the_end_though_the_store_closes_with_the_host(engine: StoredEngine, world: World) -> None:
    """The one who waits comes to its turn only when the store is closed already."""
    async with served(engine, acts_and_waits, world):
        await engine.start("r", request("r"))
        waiting = asyncio.create_task(engine.result("r"))
        await settle()
    await engine.aclose()
    await engine._store.aclose()
    with pytest.raises(EngineClosedError):
        await waiting


async def test_controls_that_no_run_took_are_reported_once_their_run_has_ended(world: World) -> None:
    """Each of them is named once; those of a run that goes on are kept for the next host."""
    refused: list[ControlEvent] = []
    inboxes, store = InboxRegistry(), MemoryStore()
    engine = on(store, refused=refused.append, inboxes=inboxes)
    async with served(engine, acts_and_waits, world):
        await settle()
        for run_id in ("ends", "stays"):
            await engine.start(run_id, request(run_id))
        assert len(inboxes) == 2, "the registry that was given is the one that is used, empty as it was"
        await settle()
        await engine.send("ends", cancel("ends", "one"))
        world.gate.set()
        await engine.result("ends")
    await engine.start("idle", request("idle"))
    await engine.send("idle", cancel("idle", "two"))
    await engine.aclose()
    assert [control.event_id for control in refused] == ["one"]
    assert len(inboxes) == 0
    (claimed,) = [claim for claim in await store.claim("next") if claim.row.run_id == "idle"]
    assert [control.event_id for control in claimed.controls] == ["two"]


async def test_a_cancellation_from_elsewhere_fails_the_run(engine: StoredEngine, world: World) -> None:
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


async def test_a_worker_that_stops_ends_all_its_tasks(engine: StoredEngine, world: World) -> None:
    """Whatever its runs were doing, none of them goes on without it."""
    before = asyncio.all_tasks()
    async with served(engine, acts_and_waits, world):
        for index in range(50):
            await engine.start(f"r{index}", request(f"r{index}"))
        await settle()
        assert len(asyncio.all_tasks()) > 50
    await settle(2)
    assert asyncio.all_tasks() == before


async def test_a_cancel_may_come_from_the_host_itself(engine: StoredEngine, world: World) -> None:
    """It reaches the run's inbox like any other; hard ones say so."""
    received: list[Any] = []

    async def program(io: Any, asked: RunRequest) -> Finish:
        await io.step("wait", None)
        received.extend((one.type, one.payload) for one in (await io.drain()).controls)
        return GOAL

    async with served(engine, program, world):
        await engine.start("r", request("r"))
        assert await engine.cancel("r")
        assert await engine.cancel("r", hard=True)
        world.gate.set()
        await engine.result("r")
        assert not await engine.cancel("r")
    assert received == [(ControlType.CANCEL, None), (ControlType.CANCEL, {"hard": True})]


async def test_a_waiter_gets_an_end_that_is_forgotten_at_once(world: World) -> None:
    """A store in memory may keep no ended run at all; the finish or the failure reaches those who wait."""

    async def fails(io: Any, asked: RunRequest) -> Finish:
        await io.step("wait", None)
        raise LookupError("lost")

    for program in (acts_and_waits, fails):
        world.gate.clear()
        engine = on(MemoryStore(keep_ended=0))
        async with served(engine, program, world):
            await engine.start("r", request("r"))
            waiting = asyncio.create_task(engine.result("r"))
            await settle()
            world.gate.set()
            if program is acts_and_waits:
                assert await waiting == GOAL
            else:
                with pytest.raises(RunFailedError, match="LookupError: lost") as caught:
                    await waiting
                assert isinstance(caught.value.__cause__, LookupError)
        with pytest.raises(RunNotFoundError):
            await engine.status("r")


async def test_every_control_that_a_stopped_worker_leaves_is_named(engine: StoredEngine) -> None:
    """However many wait for the run, each once and in order."""
    await engine.start("r", request("r"))
    names = [f"c{number}" for number in range(250)]
    for name in names:
        await engine.send("r", cancel("r", name))
    assert [control.event_id for control in await engine.list_unconsumed("r")] == names
