"""The wait between two attempts of a tool call is a wait like any other: a cancel ends it at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from harborage import CallTool, Finish, FinishReason, Identity, RunContext, Runtime, tool
from harborage.planner import CallParallel
from harborage.testing.clock import FakeClock, settle
from harborage.tools import ToolPolicy
from harborage.tools.enums import SideEffect

pytestmark = pytest.mark.anyio

ADA = Identity("t", "u", "s")
PATIENT = ToolPolicy(max_retries=3, backoff_base_ms=60_000, backoff_mult=1, backoff_max_ms=60_000)


class Flaky:
    """A tool that fails each time, or that can be held in its attempt."""

    def __init__(self) -> None:
        self.attempts = 0
        self.has_failed = asyncio.Event()
        self.may_fail = asyncio.Event()
        self.may_fail.set()

    async def __call__(self) -> str:
        self.attempts += 1
        self.has_failed.set()
        await self.may_fail.wait()
        raise ConnectionError("nobody there")


class CallsOnce:
    """Makes its decision, and finishes with what came of it; says so when it was cancelled."""

    def __init__(self, decision: Any) -> None:
        self._decision = decision

    async def next(self, run: RunContext) -> Any:
        if run.control.cancelled:
            return Finish(FinishReason.CANCELLED, "stopped")
        return Finish(FinishReason.GOAL, "done") if run.trajectory and run.trajectory.steps else self._decision


def runtime(flaky: Flaky, clock: FakeClock, decision: Any, storage: str | None = None) -> Runtime:
    @tool(effects=SideEffect.READ, policy=PATIENT)
    async def fetch() -> str:
        """Fetch."""
        return await flaky()

    return Runtime(planner=CallsOnce(decision), tools=[fetch], clock=clock, storage=storage)


@pytest.mark.parametrize("decision", [CallTool("fetch"), CallParallel((CallTool("fetch"),))], ids=["one", "parallel"])
@pytest.mark.parametrize("is_kept", [False, True], ids=["memory", "sqlite"])
async def test_a_soft_cancel_ends_the_wait_before_another_attempt(decision: Any, is_kept: bool, tmp_path: Any) -> None:
    """No time passes, the tool is not tried again, and the planner is called once more to finish."""
    flaky, clock = Flaky(), FakeClock()
    async with runtime(flaky, clock, decision, f"sqlite:{tmp_path / 'runs.db'}" if is_kept else None) as rt:
        run = await rt.start("go", who=ADA)
        await flaky.has_failed.wait()
        await settle()
        began = clock.now()
        await run.cancel()
        finish = await asyncio.wait_for(run.finished(), 10)
        assert (finish.reason, finish.payload) == (FinishReason.CANCELLED, "stopped")
        assert (flaky.attempts, clock.now()) == (1, began)


async def test_a_wait_does_not_begin_once_the_run_is_cancelled() -> None:
    """A soft cancel lets the attempt in flight end; where that fails, the call is over."""
    flaky, clock = Flaky(), FakeClock()
    flaky.may_fail.clear()
    async with runtime(flaky, clock, CallTool("fetch")) as rt:
        run = await rt.start("go", who=ADA)
        await flaky.has_failed.wait()
        await run.cancel()
        await settle()
        flaky.may_fail.set()
        finish = await asyncio.wait_for(run.finished(), 10)
    assert (finish.reason, flaky.attempts) == (FinishReason.CANCELLED, 1)


async def test_without_a_cancel_the_attempts_go_on() -> None:
    """After the wait the tool is tried again, as often as its policy says."""
    flaky, clock = Flaky(), FakeClock()
    async with runtime(flaky, clock, CallTool("fetch")) as rt:
        run = await rt.start("go", who=ADA)
        for expected in (1, 2, 3, 4):
            await flaky.has_failed.wait()
            flaky.has_failed.clear()
            await settle()
            assert flaky.attempts == expected
            clock.advance(61)
        assert (await asyncio.wait_for(run.finished(), 10)).payload == "done"
