"""Controls of runs that wait: they leave memory with unread ones, and none that comes just then is missed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from harborage.planner import Finish, FinishReason, PauseReason
from harborage.runtime.durable.engine import RunPhase
from harborage.runtime.durable.leased_run import LeasedRun
from harborage.runtime.durable.steps import EffectTable, Wait, Waiting
from harborage.runtime.durable.stored import StoredEngine
from harborage.runtime.loop.arrivals import Hold, StepInterruptedError
from harborage.runtime.loop.controls import ControlEvent, ControlType, Scope
from harborage.runtime.loop.seam import Durable, RunRequest
from harborage.runtime.pauses import Coordinator, PauseDecision, PauseRequest
from harborage.state.storage import open_storage
from harborage.store import Change, Claimed, Lease, Store
from harborage.store.memory import MemoryStore
from harborage.testing.clock import FakeClock, settle
from tests.kit.acting import request, who
from tests.kit.slow_store import AwaitedStore, SlowStore
from tests.kit.stored_runs import row_of

pytestmark = pytest.mark.anyio

OWNER = who("r")


def message(text: str) -> ControlEvent:
    """A message to the run."""
    return ControlEvent(ControlType.USER_MESSAGE, OWNER, Scope.OWNER_USER, "t", {"message": text})


CANCEL = ControlEvent(ControlType.CANCEL, OWNER, Scope.OWNER_USER, "t")


async def received(io: Durable) -> list[str]:
    """What a run takes at a boundary: messages by their text, other controls by their type."""
    return [(one.payload or {}).get("message", str(one.type)) for one in (await io.drain()).controls]


async def awaits(io: Durable, _: RunRequest) -> Finish:
    """Wait for a run that ends after this one, and hear then what was sent."""
    try:
        await io.step("await", None)
    except StepInterruptedError as cut:
        return Finish(FinishReason.GOAL, [str(cut.reason), *await received(io)])
    return Finish(FinishReason.GOAL, await received(io))


async def holds(io: Durable, asked: RunRequest) -> Finish:
    """Wait on a pause, and hear at once whatever is sent."""
    said: list[str] = []
    while (woken := await io.wait(Hold(asked.goal))).decision is None:
        said += await received(io)
    return Finish(FinishReason.GOAL, [*said, str(woken.decision)])


async def never(_: Any) -> None:
    """Wait for what does not come."""
    await asyncio.get_running_loop().create_future()


EFFECTS = EffectTable({"await": Wait(run=never, waits_for=lambda _: Waiting())})


@asynccontextmanager
async def served(store: Store, program: Any, clock: FakeClock) -> AsyncIterator[StoredEngine]:
    """A worker whose runs leave memory as soon as they wait."""
    engine = StoredEngine(store, Coordinator(store=store, clock=clock), clock=clock, linger=timedelta(0))
    serving = asyncio.create_task(engine.serve(program, EFFECTS))
    try:
        yield engine
    finally:
        serving.cancel()
        await asyncio.wait({serving})
        await engine.aclose()


class Claims:
    """Counts what a store's workers claim."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.count = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    async def claim(self, worker: str, **options: Any) -> list[Claimed]:
        claimed = await self.store.claim(worker, **options)
        self.count += len(claimed)
        return claimed


@pytest.mark.parametrize("url", ["memory:", "sqlite:{}/runs.db"], ids=["memory", "sqlite"])
async def test_a_waiting_run_leaves_memory_with_its_unread_messages(url: str, tmp_path: Path) -> None:
    """Each message is looked at once, and then makes no work, for days; a cancel reaches the run at once."""
    clock = FakeClock()
    async with await open_storage(url.format(tmp_path), clock=clock) as storage:
        store: Any = Claims(storage.store)
        async with served(store, awaits, clock) as engine, asyncio.timeout(60):
            await engine.start("r", request("r"))
            await until_parked(engine, clock)
            for text in ("one", "two"):
                await engine.send("r", message(text))
                await until_parked(engine, clock)
            row, claims = await row_of(store, "r"), store.count
            assert (row.unread, row.is_woken, row.owner) == (2, False, "")
            assert row.seen_control == (await store.controls("r"))[-1].number
            await clock.run_for(3600 * 20)
            assert store.count == claims
            await engine.send("r", CANCEL)
            assert (await engine.result("r")).payload == ["soft_cancel", "one", "two", "CANCEL"]
            assert (await row_of(store, "r")).unread == 0


async def until_parked(engine: StoredEngine, clock: FakeClock) -> None:
    """Return when the run waits outside of memory."""
    while True:
        await clock.run_for(0.1)
        if (await engine.status("r")).phase is RunPhase.PARKED and not engine._running:
            return


def sweep(clock: FakeClock, engine: StoredEngine) -> None:
    """Let the worker decide that the run leaves memory, in this turn of the event loop."""
    while all(run.parked is None for run in engine._running.values()):
        clock.advance(0.05)


@pytest.mark.parametrize("make", [MemoryStore, AwaitedStore, SlowStore])
@pytest.mark.parametrize(
    ("program", "sent", "wanted"),
    [
        (awaits, CANCEL, ["soft_cancel", "before", "CANCEL"]),
        (holds, message("after"), ["before", "after", "resume"]),
    ],
    ids=["a cancel of a step that waits", "a message to a run on a pause"],
)
async def test_a_control_that_comes_while_its_run_leaves_memory_is_delivered(
    make: Callable[..., MemoryStore], program: Any, sent: ControlEvent, wanted: list[str]
) -> None:
    """In whichever turn of the event loop between the worker's decision and the end of its release."""
    for turns in range(25):
        clock = FakeClock()
        store = make(clock=clock)
        pauses = Coordinator(store=store, clock=clock)
        pause = await pauses.request(PauseRequest(identity=OWNER, reason=PauseReason.AWAIT_INPUT))
        async with served(store, program, clock) as engine, asyncio.timeout(60):
            await engine.start("r", request("r", goal=pause.token))
            await engine.send("r", message("before"))
            await settle()
            sweep(clock, engine)
            await settle(turns)
            await engine.send("r", sent)
            await clock.run_for(1)
            if program is holds:
                assert (await row_of(store, "r")).unread == 0, turns
                await pauses.resume(pause.token, PauseDecision.RESUME, who=OWNER)
                await engine.wake("r")
            assert (await engine.result("r")).payload == wanted, turns


def left(change: Change | None, delivered: int) -> LeasedRun:
    """A run that was handed the controls up to this number when it was cut short."""
    return LeasedRun(request=request("r"), lease=Lease("r", "one", 1), parked=change, delivered=delivered)


async def test_a_run_that_was_handed_more_since_it_was_to_wait_is_given_back_ready() -> None:
    """It may have taken the control and recorded that, and not have acted on it."""
    waits = Change(release=True, wake_at=5, seen_control=3)
    assert left(waits, 3).release_change() == waits
    assert left(waits, 4).release_change().is_ready
    assert left(None, 4).release_change().is_ready
    blocked = Change(release=True, blocked="unreadable")
    assert left(blocked, 4).release_change() == blocked
