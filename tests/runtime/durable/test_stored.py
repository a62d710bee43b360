"""The host over a store keeps every promise of a host, in memory, over a slow store and in SQLite, lingering or not."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from harborage.identity import Quadruple
from harborage.planner import Finish, FinishReason, PauseReason
from harborage.runtime.durable.engine import HistoryMismatchError, RunPhase
from harborage.runtime.durable.steps import EffectTable
from harborage.runtime.durable.stored import StoredEngine
from harborage.runtime.loop.arrivals import Hold
from harborage.runtime.loop.seam import Durable, RunRequest
from harborage.runtime.pauses import Coordinator, PauseRequest
from harborage.state.storage import open_storage
from harborage.store import Claimed
from harborage.store.memory import MemoryStore
from harborage.store.times import micros
from harborage.testing.clock import FakeClock, settle
from tests.kit.conformance.host_bench import HostFactory
from tests.kit.conformance.hosts import IN_TURNS, SCENARIOS, SHARED, Scenario, check
from tests.kit.hosts import StoredHosts
from tests.kit.slow_store import SlowStore, storage_over

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("linger", [timedelta(0), timedelta(hours=1)], ids=["leaves at once", "stays"])
@pytest.mark.parametrize("scenario", [*SCENARIOS, *SHARED], ids=lambda scenario: scenario.__name__)
async def test_a_host_over_a_store(scenario: Scenario, linger: timedelta) -> None:
    """Every scenario of the suite, whether runs that wait leave memory or not."""

    async def open_hosts() -> HostFactory:
        clock = FakeClock()
        return StoredHosts(await open_storage("memory:", clock=clock), clock, linger)

    await check(scenario, open_hosts)


@pytest.mark.parametrize("scenario", [*SCENARIOS, *SHARED], ids=lambda scenario: scenario.__name__)
async def test_a_host_over_a_slow_store(scenario: Scenario) -> None:
    """Nothing in it relies on the store answering at once."""

    async def open_hosts() -> HostFactory:
        clock = FakeClock()
        return StoredHosts(storage_over(SlowStore(clock=clock), clock), clock, timedelta(hours=1))

    await check(scenario, open_hosts)


OVER_A_DISK = [one for one in (*SCENARIOS, *SHARED) if one not in IN_TURNS]


@pytest.mark.parametrize("scenario", OVER_A_DISK, ids=lambda scenario: scenario.__name__)
async def test_a_host_over_sqlite(scenario: Scenario, tmp_path: Path) -> None:
    """Every scenario of the suite over one file."""

    async def open_hosts() -> HostFactory:
        clock = FakeClock()
        return StoredHosts(await open_storage(f"sqlite:{tmp_path}/runs.db", clock=clock), clock, timedelta(0))

    await check(scenario, open_hosts)


class Behind(MemoryStore):
    """A store whose clock is behind that of its workers: what is due for them is not due for it."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self.clock = clock
        self.looks = 0

    async def claim(self, worker: str, **options: Any) -> list[Claimed]:
        self.looks += 1
        return await super().claim(worker, **options)

    async def next_due(self, *, agents: Sequence[str] = ()) -> int:
        return micros(self.clock.now() - timedelta(seconds=3))


async def test_a_clock_that_is_ahead_makes_no_work() -> None:
    """A worker that thinks a run is due looks again at once, then a little later, and not without end."""
    clock = FakeClock()
    store = Behind(clock)
    engine = StoredEngine(store, Coordinator(clock=clock), clock=clock)

    async def program(durable: Durable, request: RunRequest) -> Finish:
        raise AssertionError("there is nothing to carry")

    serving = asyncio.create_task(engine.serve(program, EffectTable({})))
    await settle()
    looks = store.looks
    assert looks == 2
    await clock.run_for(1)
    assert looks < store.looks < 50
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    await engine.aclose()


class Slow(MemoryStore):
    """A store that takes its time to say when the next parked run is due."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self.is_asked = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def next_due(self, *, agents: Sequence[str] = ()) -> int | None:
        due = await super().next_due(agents=agents)
        if due is not None:
            self.is_asked.set()
            await self.may_answer.wait()
        return due


async def test_a_run_that_falls_due_while_its_time_is_asked_for_goes_on_at_once() -> None:
    """No more time has to pass for that."""
    clock = FakeClock()
    store = Slow(clock)
    pauses = Coordinator(clock=clock)
    engine = StoredEngine(store, pauses, clock=clock, linger=timedelta(0))
    who = Quadruple("t", "u", "s", "r")
    deadline = clock.now() + timedelta(minutes=2)
    pause = await pauses.request(PauseRequest(identity=who, reason=PauseReason.AWAIT_INPUT, deadline=deadline))

    async def program(durable: Durable, request: RunRequest) -> Finish:
        return Finish(FinishReason.GOAL, str((await durable.wait(Hold(pause.token, None))).decision))

    serving = asyncio.create_task(engine.serve(program, EffectTable({})))
    await engine.start("r", RunRequest(who=who, goal="wait"))
    await clock.run_for(1)
    assert store.is_asked.is_set()
    await clock.run_for(120)
    store.may_answer.set()
    await settle()
    assert (await engine.status("r")).phase is RunPhase.FINISHED
    assert (await engine.result("r")).payload == "timeout"
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    await engine.aclose()


@pytest.mark.parametrize("url", ["memory:", "sqlite:{}/runs.db"], ids=["memory", "sqlite"])
async def test_every_blocked_run_has_its_turn_however_many_there_are(url: str, tmp_path: Path) -> None:
    """A worker tries all of them once when it begins to serve, also where the first ones are blocked again at once."""
    clock = FakeClock()
    names = [f"run {index:03}" for index in range(250)]
    tried: list[str] = []

    async def changed(durable: Durable, request: RunRequest) -> Finish:
        raise HistoryMismatchError(request.who.run_id, "1", "a", "b")

    async def mended(durable: Durable, request: RunRequest) -> Finish:
        tried.append(request.who.run_id)
        if len(tried) <= 150:
            raise HistoryMismatchError(request.who.run_id, "1", "a", "b")
        return Finish(FinishReason.GOAL, "done")

    async with await open_storage(url.format(tmp_path), clock=clock) as storage:
        for program in (changed, mended):
            engine = StoredEngine(storage.store, Coordinator(clock=clock), clock=clock)
            serving = asyncio.create_task(engine.serve(program, EffectTable({})))
            if program is changed:
                for name in names:
                    await engine.start(name, RunRequest(who=Quadruple("t", "u", "s", name), goal="g"))
            wanted = {RunPhase.BLOCKED: 250} if program is changed else {RunPhase.BLOCKED: 150, RunPhase.FINISHED: 100}
            async with asyncio.timeout(60):
                while Counter(one.phase for one in await engine.list()) != wanted:  # noqa: ASYNC110 - a blocked run tells nobody
                    await asyncio.sleep(0)
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            await engine.aclose()
    assert sorted(tried) == names
