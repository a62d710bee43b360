"""One thing that cannot be read blocks its run, by name, and an engine that stops says so to every later caller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from harborage import codec
from harborage.identity import Quadruple
from harborage.planner import Finish, FinishReason, PauseReason
from harborage.runtime.durable.engine import EngineStoppedError, RunPhase
from harborage.runtime.durable.steps import EffectTable
from harborage.runtime.durable.stored import StoredEngine
from harborage.runtime.loop.arrivals import Hold
from harborage.runtime.loop.controls import ControlEvent, ControlType, Scope
from harborage.runtime.loop.seam import Durable, RunRequest
from harborage.runtime.pauses import Coordinator, PauseRequest
from harborage.store import Commit, SendControl
from harborage.store.memory import MemoryStore
from harborage.testing.clock import FakeClock, settle

pytestmark = pytest.mark.anyio

GOAL = Finish(reason=FinishReason.GOAL)
UNREADABLE = {
    "no JSON": b"\xff\x00",
    "a control of a newer version": b'{"type":"TELEPORT"}',
    "no object": b"[1]",
    "deeper than anything reads": b"[" * 100_000,
}


def who(run_id: str) -> Quadruple:
    return Quadruple("t", "u", f"s {run_id}", run_id)


class Bench:
    """An engine over a store in memory whose runs wait for an answer."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(clock=self.clock)
        self.pauses = Coordinator(clock=self.clock)
        self.engine = StoredEngine(
            self.store, self.pauses, clock=self.clock, worker="worker", linger=timedelta(seconds=1)
        )
        self.boundaries: list[tuple[str, int]] = []

    async def program(self, io: Durable, request: RunRequest) -> Finish:
        """Wait for controls, and finish with the first that comes."""
        asked = PauseRequest(identity=request.who, reason=PauseReason.EXTERNAL_EVENT)
        pause = await self.pauses.request(asked)
        while not (arrivals := await io.drain()).controls:
            await io.wait(Hold(pause.token))
        self.boundaries.append((io.run_id, len(arrivals.controls)))
        return GOAL

    async def start(self, run_id: str) -> None:
        """A run that waits."""
        await self.engine.start(run_id, RunRequest(who=who(run_id), goal="g"))
        await settle()

    async def send_bytes(self, run_id: str, event_id: str, data: bytes) -> None:
        """What some other program wrote as a control."""
        await self.store.commit(
            Commit(sends=(SendControl(run_id=run_id, event_id=event_id, type="USER_MESSAGE", data=data),))
        )

    async def send(self, run_id: str) -> None:
        """A control that can be read."""
        one = ControlEvent(ControlType.USER_MESSAGE, who(run_id), Scope.ADMIN, "t", {"text": "hello"})
        await self.engine.send(run_id, one)
        await settle()


@asynccontextmanager
async def a_bench() -> AsyncIterator[Bench]:
    bench = Bench()
    serving = asyncio.create_task(bench.engine.serve(bench.program, EffectTable({})))
    await settle()
    yield bench
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    await bench.engine.aclose()


async def test_a_control_that_cannot_be_read_blocks_its_run_alone() -> None:
    """The run is blocked with a reason that names it and the control, in memory or not; all others go on."""
    for what, data in UNREADABLE.items():
        for idle_s in (0.0, 5.0):
            async with a_bench() as bench:
                for run_id in ("bad", "good"):
                    await bench.start(run_id)
                await bench.clock.run_for(idle_s)
                await bench.send_bytes("bad", "event 1", data)
                await bench.send_bytes("bad", "event 2", codec.encode(None))
                await bench.send("good")
                await bench.clock.run_for(0.1)
                assert await bench.engine.result("good") == GOAL, what
                status = await bench.engine.status("bad")
                assert status.phase is RunPhase.BLOCKED, (what, idle_s, status)
                for named in ("run bad", "control 3", "'event 1'", "harborage_controls"):
                    assert named in status.reason, (what, status.reason)
                await bench.start("later")
                await bench.send("later")
                assert await bench.engine.result("later") == GOAL, what
                assert [run_id for run_id, _ in bench.boundaries] == ["good", "later"], what


async def test_what_was_sent_before_the_damage_is_applied_once_the_row_is_gone() -> None:
    """A blocked run goes on with the next worker when its row was repaired, with every control in its order."""
    async with a_bench() as bench:
        await bench.start("r")
        await bench.send_bytes("r", "bad", b"{}")
        await bench.clock.run_for(0.1)
        assert (await bench.engine.status("r")).phase is RunPhase.BLOCKED
        await bench.send("r")
    bench.store._tables.runs["r"].controls.pop(2)
    again = StoredEngine(bench.store, bench.pauses, clock=bench.clock, worker="next")
    serving = asyncio.create_task(again.serve(bench.program, EffectTable({})))
    assert await again.result("r") == GOAL
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    await again.aclose()


class Broken(MemoryStore):
    """A store that fails in a way that no driver should."""

    is_shared = True
    is_broken = False

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self.is_silent = False

    async def next_due(self, **options: Any) -> int | None:
        if self.is_broken:
            raise ZeroDivisionError("a defect")
        return await super().next_due(**options)

    async def look(self, worker: str) -> None:
        if self.is_silent:
            raise ZeroDivisionError("no sign")


@pytest.mark.parametrize("is_silent", [False, True], ids=["a defect", "no sign of life"])
async def test_an_engine_that_stopped_makes_every_call_fail(is_silent: bool) -> None:
    """A caller that waits for a result, starts a run or sends a control gets EngineStoppedError with the reason."""
    clock = FakeClock()
    store = Broken(clock=clock)
    engine = StoredEngine(store, Coordinator(clock=clock), clock=clock)

    async def program(io: Durable, request: RunRequest) -> Finish:
        await asyncio.Event().wait()
        return GOAL

    serving = asyncio.create_task(engine.serve(program, EffectTable({})))
    await settle()
    request = RunRequest(who=who("r"), goal="g")
    await engine.start("r", request)
    await settle()
    waiting = asyncio.create_task(engine.result("r"))
    await settle()
    store.is_silent, store.is_broken = is_silent, not is_silent
    await engine.wake("r")
    await clock.run_for(1)
    async with asyncio.timeout(10):
        await asyncio.wait([serving])
        assert isinstance(serving.exception(), Exception)
        control = ControlEvent(ControlType.USER_MESSAGE, who("r"), Scope.ADMIN, "t", {"text": "hello"})
        for call in (
            waiting,
            engine.result("r"),
            engine.start("r", request),
            engine.send("r", control),
            engine.cancel("r"),
        ):
            with pytest.raises(EngineStoppedError, match=r"stopped: .*(defect|no sign).*open the runtime again"):
                await call
    await engine.aclose()
