"""Tools that ignore their cancellation are left after a short grace."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from harborage.concurrency import CANCEL_GRACE_S, CLOSE_GRACE_S, FOREIGN_GRACE_S
from harborage.identity import Quadruple
from harborage.planner import CallParallel, CallTool, Finish, FinishReason, JoinKind, JoinSpec, RunContext, Trajectory
from harborage.runtime.dispatch import CatalogToolExecutor
from harborage.runtime.effects.options import RuntimeOptions
from harborage.runtime.host import Runtime
from harborage.runtime.pauses import Coordinator
from harborage.runtime.steering import InboxRegistry, RunLoop, RunSpec
from harborage.testing.clock import FakeClock, settle
from harborage.testing.planners import ScriptedPlanner
from harborage.tools import ToolCatalog, ToolDescriptor, ToolPolicy, tool

pytestmark = pytest.mark.anyio

Runtimes = Callable[..., Awaitable[Any]]
WHO = Quadruple("t", "u", "s", "r")


class Stubborn:
    """A tool that ignores its cancellation until the test lets it go."""

    def __init__(self) -> None:
        self.cancellations = 0
        self.over: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def hold(self) -> str:
        """Hold on."""
        while True:
            try:
                return await asyncio.shield(self.over)
            except asyncio.CancelledError:
                self.cancellations += 1

    def descriptor(self, **policy: Any) -> ToolDescriptor:
        return tool(self.hold, policy=ToolPolicy(**{"timeout_ms": 1000, "max_retries": 0, **policy}))


@tool
async def quick() -> str:
    """At once."""
    return "quick"


@pytest.fixture
async def stubborn() -> AsyncIterator[Stubborn]:
    stubborn = Stubborn()
    yield stubborn
    if not stubborn.over.done():
        stubborn.over.set_result("late")
    await settle()


def last(run: RunContext) -> Finish:
    return Finish(FinishReason.GOAL, run.trajectory.steps[-1].llm_observation)


HOLD = CallTool("hold")


async def test_a_call_that_outlives_its_timeout_fails_and_the_run_goes_on(
    runtimes: Runtimes, stubborn: Stubborn
) -> None:
    """Alone and as a branch: the others of the parallel call keep their results."""
    both = CallParallel((HOLD, CallTool("quick")))
    bench = await runtimes(ScriptedPlanner([HOLD, both, last]), tools=[stubborn.descriptor(), quick])
    run = await bench.start()
    await bench.clock.run_for(2 * (1 + CANCEL_GRACE_S) + 0.1)
    held, quickly = (await bench.end(run)).payload["branches"]
    assert "1000 ms" in held["error"]
    assert quickly["value"] == "quick"
    stubborn.over.set_result("late")


async def test_a_hard_cancel_and_a_deadline_end_the_run(runtimes: Runtimes, stubborn: Stubborn) -> None:
    """Within the grace, alone and as a branch."""
    for decision in (HOLD, CallParallel((HOLD, CallTool("quick")))):
        for how in ("hard", "deadline"):
            bench = await runtimes(ScriptedPlanner([decision, last]), tools=[stubborn.descriptor(timeout_ms=0), quick])
            deadline = bench.clock.now() + timedelta(seconds=1) if how == "deadline" else None
            run = await bench.start(deadline=deadline)
            await settle()
            if how == "hard":
                await run.cancel(hard=True)
            else:
                await bench.clock.run_for(1)
            await bench.clock.run_for(2 * CANCEL_GRACE_S)
            reason = (await bench.end(run)).reason
            assert reason is (FinishReason.CANCELLED if how == "hard" else FinishReason.DEADLINE_EXCEEDED)
    stubborn.over.set_result("late")


async def test_closing_a_runtime_ends_in_time_and_says_what_it_left(
    stubborn: Stubborn, caplog: pytest.LogCaptureFixture
) -> None:
    """A call in flight, and one that a timeout left behind before."""
    for decision in (HOLD, CallParallel((HOLD, CallTool("quick")))):
        for timeout_ms in (0, 100):
            caplog.clear()
            clock = FakeClock()
            tools = [stubborn.descriptor(timeout_ms=timeout_ms), quick]
            planner = ScriptedPlanner([decision, Finish(FinishReason.GOAL)])
            rt = Runtime(planner=planner, tools=tools, clock=clock, options=RuntimeOptions())
            await rt.__aenter__()
            await rt.start("g", who=WHO.identity)
            await clock.run_for(1)
            with caplog.at_level(logging.WARNING):
                closing = asyncio.create_task(rt.aclose())
                for _ in range(8):
                    await clock.run_for(CLOSE_GRACE_S)
                async with asyncio.timeout(10):
                    await closing
            assert "call of hold was abandoned: it ignored its cancellation" in caplog.text


async def test_a_call_that_ends_within_the_grace_has_its_outcome(runtimes: Runtimes, stubborn: Stubborn) -> None:
    """What it gave counts: it did act."""
    bench = await runtimes(ScriptedPlanner([HOLD, last]), tools=[stubborn.descriptor()])
    run = await bench.start()
    await bench.clock.run_for(1)
    assert stubborn.cancellations == 1
    stubborn.over.set_result("just in time")
    assert (await bench.end(run)).payload == "just in time"


async def test_a_loser_is_left_behind(runtimes: Runtimes, stubborn: Stubborn) -> None:
    """The first success is the answer; the loser that ignores its cancellation is the executor's."""
    decision = CallParallel((HOLD, CallTool("quick")), JoinSpec(JoinKind.FIRST_SUCCESS))
    bench = await runtimes(ScriptedPlanner([decision, last]), tools=[stubborn.descriptor(timeout_ms=0), quick])
    run = await bench.start()
    await bench.clock.run_for(2 * CANCEL_GRACE_S)
    observed = (await bench.end(run)).payload
    assert [one.get("value") for one in observed["branches"]] == [None, "quick"]
    stubborn.over.set_result("late")


@pytest.mark.parametrize("is_own", [False, True])
async def test_a_run_loop_is_not_held_up_either(stubborn: Stubborn, is_own: bool) -> None:
    """Not by a tool of a catalog, nor by an executor of an embedder."""

    class Own:
        async def execute_decision(self, rc: RunContext, decision: Any) -> tuple[Any, Any]:
            return (await stubborn.hold(),) * 2

    catalog = ToolCatalog()
    catalog.register(stubborn.descriptor(timeout_ms=0))
    clock = FakeClock()
    executor: Any = Own() if is_own else CatalogToolExecutor(catalog, clock=clock)
    loop = RunLoop(InboxRegistry(), Coordinator(), clock=clock)
    base = RunContext(quadruple=WHO, goal="g", trajectory=Trajectory())
    spec = RunSpec(planner=ScriptedPlanner([HOLD, last]), base=base, tool_executor=executor)
    task = asyncio.create_task(loop.run(spec))
    await settle()
    task.cancel()
    await settle()
    await clock.run_for(FOREIGN_GRACE_S + CLOSE_GRACE_S)  # no keeper of the run asked for it
    await asyncio.wait({task}, timeout=10)
    assert task.cancelled()
    stubborn.over.set_result("late")
    await settle()
