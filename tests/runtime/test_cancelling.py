"""A soft cancel: it reaches a run that waits at once, and nothing happens after it but one last call of the planner."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from harborage.identity import Identity
from harborage.planner import (
    AwaitTask,
    CallParallel,
    CallTool,
    Finish,
    FinishReason,
    PauseReason,
    RequestPause,
    RunContext,
    SpawnSpec,
    SpawnTask,
)
from harborage.runtime.approval import AlwaysDeny
from harborage.runtime.durable.engine import RunNotFoundError, RunPhase
from harborage.runtime.effects.options import RuntimeOptions
from harborage.runtime.host import Runtime
from harborage.runtime.pauses import AlreadyResumedError, PauseDecision
from harborage.runtime.steering import RunCancelledError
from harborage.testing.clock import settle
from harborage.testing.planners import RecordingPlanner, ScriptedPlanner
from tests.kit.pauses import wait_for_approval

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")
BYE = Finish(FinishReason.CANCELLED, "bye")
PAY = CallTool("pay", b'{"n":1}')
STOPPED = {"error": "cancelled: soft_cancel"}

Runtimes = Callable[..., Any]


class Shop:
    """Tools, and what was done with them. `hold` waits until `go` is set."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.go = asyncio.Event()
        self.is_held = asyncio.Event()
        self.tools = [self.pay, self.hold]
        self.approvals = {"pay": AlwaysDeny()}

    async def pay(self, n: int = 0) -> str:
        """Pay."""
        self.done.append(f"paid {n}")
        return "paid"

    async def hold(self) -> str:
        """Take long."""
        self.is_held.set()
        await self.go.wait()
        self.done.append("held")
        return "held"


class Thinker:
    """A planner that stops in front of its first decision until it is let go on, and then ends."""

    def __init__(self, decision: Any) -> None:
        self.decision = decision
        self.is_asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.seen: list[RunContext] = []

    async def next(self, run: RunContext) -> Any:
        self.seen.append(run)
        if len(self.seen) > 1:
            return BYE
        self.is_asked.set()
        await self.may_answer.wait()
        return self.decision


@pytest.fixture
def shop() -> Shop:
    """Tools that note what they did."""
    return Shop()


async def test_a_waiting_run_receives_a_cancel_at_once(runtimes: Runtimes, shop: Shop) -> None:
    """At a gate, at two, or for a task: the wait ends, the planner is called once more, its questions are resolved."""

    def child(run: RunContext) -> Any:
        return AwaitTask(run.trajectory.steps[0].observation["task_id"])

    background = SpawnTask(spec=SpawnSpec(query="child"))
    scripts: dict[str, list[Any]] = {
        "a gate": [PAY],
        "two gates": [CallParallel((PAY, CallTool("pay", b'{"n":2}')))],
        "a gate beside a call": [CallParallel((PAY, CallTool("look")))],
        "a task": [background, child],
        "a retained task": [SpawnTask(spec=SpawnSpec(query="child", retain_turn=True))],
    }

    async def look() -> str:
        """Look."""
        return "seen"

    for name, script in scripts.items():

        class Planner(RecordingPlanner):
            async def next(self, run: RunContext) -> Any:
                if run.query == "child":
                    return RequestPause(PauseReason.AWAIT_INPUT, {})
                return await super().next(run)

        planner = Planner(ScriptedPlanner([*script, BYE]))
        bench = await runtimes(planner, tools=[*shop.tools, look], approvals=shop.approvals)
        run = await bench.start()
        await settle()
        assert not (await run.status()).phase.is_final, name
        await run.cancel()
        assert await bench.end(run) == BYE, name
        assert [one.control.cancelled for one in planner.contexts] == [False] * len(script) + [True], name
        assert await run.waiting() == [], name
        last = planner.contexts[-1].trajectory.steps[-1]
        assert "cancelled: soft_cancel" in str(last.observation), name
        await settle()  # a child is cancelled before its parent has ended, and ends by itself
        for task in await bench.rt.tasks.list(ME):
            assert task.status.is_terminal, name
    assert shop.done == []


async def test_what_a_planner_decided_before_it_knew_of_the_cancel_is_not_done(runtimes: Runtimes, shop: Shop) -> None:
    """Its result is `cancelled`, and the planner gets it; a finish counts, a question is not asked."""
    decisions = {
        "a call": (CallTool("hold"), BYE, STOPPED),
        "a spawn": (SpawnTask(spec=SpawnSpec(query="x")), BYE, STOPPED),
        "a question": (RequestPause(PauseReason.AWAIT_INPUT, {}), Finish("cancelled"), None),
        "a finish": (Finish(FinishReason.GOAL, "done"), Finish(FinishReason.GOAL, "done"), None),
    }
    for name, (decision, wanted, observed) in decisions.items():
        planner = Thinker(decision)
        bench = await runtimes(planner, tools=shop.tools)
        run = await bench.start()
        await planner.is_asked.wait()
        await run.cancel()
        planner.may_answer.set()
        finish = await bench.end(run)
        assert (finish.reason, finish.payload) == (wanted.reason, wanted.payload), name
        if observed is not None:
            last = planner.seen[-1]
            assert last.control.cancelled, name
            assert [step.observation for step in last.trajectory.steps] == [observed], name
        assert await run.waiting() == [], name
    assert shop.done == []
    assert len(await bench.rt.tasks.list(ME)) == 1


async def test_a_planner_that_ignores_a_cancel_gets_nothing_done(runtimes: Runtimes, shop: Shop) -> None:
    """The call in flight ends as it would; what the planner decides after that is not done, and the run ends."""
    ignored = {
        "a call": PAY,
        "a gated call": CallTool("gated"),
        "calls": CallParallel((PAY, CallTool("hold"))),
        "a spawn": SpawnTask(spec=SpawnSpec(query="x")),
        "a question": RequestPause(PauseReason.AWAIT_INPUT, {}),
    }

    async def gated() -> str:
        """Do it."""
        shop.done.append("gated")
        return "done"

    for name, decision in ignored.items():
        shop.go.clear()
        shop.is_held.clear()
        shop.done.clear()
        planner = RecordingPlanner(ScriptedPlanner([CallTool("hold"), decision, decision]))
        bench = await runtimes(planner, tools=[*shop.tools, gated], approvals={"gated": AlwaysDeny()})
        run = await bench.start()
        await shop.is_held.wait()
        await run.cancel()
        await settle()
        assert shop.done == [], name
        shop.go.set()
        finish = await bench.end(run)
        assert finish.metadata["steering_reason"] == "cancel_ignored", name
        assert [one.control.cancelled for one in planner.contexts] == [False, True], name
        assert shop.done == ["held"], name
        assert bench.recorder.types.count("pause.requested") == 0, name
        assert len(await bench.rt.tasks.list(ME)) == 1, name


async def test_an_approval_after_a_cancel_is_refused(runtimes: Runtimes, shop: Shop) -> None:
    """Right behind it, during the planner's last call, and after the end: each raises, and nothing is paid."""
    is_asked, may_answer = asyncio.Event(), asyncio.Event()

    class Planner:
        async def next(self, run: RunContext) -> Any:
            if not run.control.cancelled:
                return PAY
            is_asked.set()
            await may_answer.wait()
            return BYE

    bench = await runtimes(Planner(), tools=shop.tools, approvals=shop.approvals)
    run = await bench.start()
    pause = await bench.paused(run)
    await run.cancel()
    for verb in (run.approve, run.reject):
        with pytest.raises(RunCancelledError, match="was cancelled"):
            await verb(token=pause.token)
    await is_asked.wait()
    resolved = await bench.rt.pauses.status(pause.token, who=ME)
    assert resolved.decision is PauseDecision.REJECT
    with pytest.raises(AlreadyResumedError, match=r"was resolved before \(reject at "):
        await run.approve(pause.token)
    may_answer.set()
    assert await bench.end(run) == BYE
    with pytest.raises(RunNotFoundError, match="has ended"):
        await run.approve(pause.token)
    assert shop.done == []
    assert bench.recorder.types.count("control.rejected") == 3
    assert bench.controls == [("CANCEL", "received"), ("CANCEL", "applied")]


async def test_a_parked_run_receives_a_cancel(tmp_path: Path, shop: Shop) -> None:
    """Sent from another process: it is taken up, its wait ends, and its planner is called once more."""
    storage = f"sqlite:{tmp_path / 'runs.db'}"
    options = RuntimeOptions(linger=timedelta(milliseconds=1))
    parts = {"tools": shop.tools, "approvals": shop.approvals, "storage": storage, "options": options}
    async with Runtime(planner=ScriptedPlanner([PAY]), agent="a", **parts) as first:
        run = await first.start("g", who=ME)
        await wait_for_approval(run)
    planner = RecordingPlanner(ScriptedPlanner([BYE]))
    async with Runtime(planner=ScriptedPlanner([]), agent="b", **parts) as sender:
        mine = await sender.run(run.id, who=ME)
        (pause,) = await mine.waiting()
        await mine.cancel()
        async with Runtime(planner=planner, agent="a", **parts), asyncio.timeout(10):
            assert await mine.finished() == BYE
            with pytest.raises(RunNotFoundError, match="has ended"):
                await mine.approve(pause.token)
        assert (await mine.status()).phase is RunPhase.FINISHED
        assert await mine.waiting() == []
    assert [one.control.cancelled for one in planner.contexts] == [True]
    assert shop.done == []
