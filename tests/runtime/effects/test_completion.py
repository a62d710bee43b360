"""How a run's task begins and ends with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from harborage import codec
from harborage.identity import Identity
from harborage.planner import Finish, FinishReason, PauseReason, RequestPause
from harborage.runtime.durable.engine import RunFailedError
from harborage.runtime.pauses import PauseFilter, PauseState
from harborage.tasks import TaskStatus
from harborage.testing.clock import settle
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")
Runtimes = Callable[..., Awaitable[Any]]


@each_row("reason", FinishReason)
@each_row("payload", [None, "text", {"answer": "inside"}, {"n": 1}])
async def test_a_task_ends_as_its_run_does(runtimes: Runtimes, reason: FinishReason, payload: Any) -> None:
    """Reaching the goal is the only success; else the reason is the code."""
    bench = await runtimes([Finish(reason, payload)])
    run = await bench.start()
    await bench.end(run)
    task = await bench.rt.tasks.get(run.id, who=ME)
    if reason is FinishReason.GOAL:
        answer = {"None": "goal", "text": "text", "{'answer': 'inside'}": "inside"}.get(str(payload), '{"n":1}')
        assert task.status is TaskStatus.COMPLETE
        wanted = b'{"answer":%s,"finish_reason":"goal","tool_calls_seen":0}' % codec.encode(answer)
        assert task.result == wanted
    else:
        assert task.status is TaskStatus.FAILED
        assert (task.error.code, task.error.message) == (
            str(reason),
            f"RunLoop finished without satisfying goal: {reason}",
        )


async def test_a_run_that_raises_fails_its_task(runtimes: Runtimes) -> None:
    """With one code for all errors, and what was said."""
    bench = await runtimes([LookupError("lost")])
    run = await bench.start()
    with pytest.raises(RunFailedError):
        await bench.end(run)
    task = await bench.rt.tasks.get(run.id, who=ME)
    assert (task.status, task.error.code) == (TaskStatus.FAILED, "runloop_error")
    assert "planner step 0: lost" in task.error.message


async def test_controls_that_came_too_late_are_refused_before_the_task_ends(runtimes: Runtimes) -> None:
    """A reader of the run's events sees what became of each of them."""
    gate, is_called = asyncio.Event(), asyncio.Event()

    class Slow:
        async def next(self, run: Any) -> Finish:
            is_called.set()
            await gate.wait()
            return Finish(FinishReason.GOAL)

    bench = await runtimes(Slow())
    run = await bench.start()
    await is_called.wait()
    await run.message("too late")
    await run.pause()
    gate.set()
    await bench.end(run)
    types = [event.type async for event in run.events()]
    assert types[-3:] == ["control.rejected", "control.rejected", "task.completed"]
    assert bench.controls == []


async def test_nothing_is_asked_of_a_run_that_is_over(runtimes: Runtimes) -> None:
    """Whatever it waited for when it ended is settled."""

    bench = await runtimes([RequestPause(PauseReason.AWAIT_INPUT)], max_steps=1)
    run = await bench.start()
    await bench.paused(run)
    await run.approve()
    with pytest.raises(RunFailedError, match="1 steps"):
        await bench.end(run)
    await settle()
    rows = (await bench.rt.pauses.list(PauseFilter(states=tuple(PauseState)), who=ME)).rows
    assert [pause.state for pause in rows] == [PauseState.RESUMED]
