"""What a run on a bare loop leaves behind, however it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from harborage.identity import Quadruple
from harborage.planner import CallTool, Decision, Finish, RequestPause, RunContext
from harborage.runtime.pauses import Coordinator
from harborage.runtime.steering import (
    ControlEvent,
    ControlType,
    InboxRegistry,
    PayloadInvalidError,
    RunLoop,
    RunSpec,
    Scope,
)
from harborage.testing.clock import settle
from harborage.testing.planners import ScriptedPlanner

pytestmark = pytest.mark.anyio

RUN = Quadruple("t", "u", "s", "r")


def control(type: ControlType, payload: dict[str, Any] | None = None) -> ControlEvent:
    return ControlEvent(type, RUN, Scope.ADMIN, "t", payload)


def spec(*script: Decision | Callable[[RunContext], Decision]) -> RunSpec:
    return RunSpec(planner=ScriptedPlanner(script), base=RunContext(quadruple=RUN, goal="g"))


async def open_pauses(pauses: Coordinator) -> int:
    return (await pauses.list(who=RUN)).total


async def test_a_run_that_is_cancelled_while_parked_leaves_no_open_pause() -> None:
    """No worker can resume a run without a journal, so its pause is rejected with the run."""
    pauses = Coordinator()
    task = asyncio.create_task(RunLoop(InboxRegistry(), pauses).run(spec(RequestPause("await_input"))))
    await settle()
    assert await open_pauses(pauses) == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await open_pauses(pauses) == 0


async def test_a_bad_control_settles_the_pause_that_its_own_batch_opened() -> None:
    """A run that ends on the second control of a batch takes back the pause that the first one opened."""
    inboxes, pauses = InboxRegistry(), Coordinator()

    def steered(_: RunContext) -> Decision:
        inboxes.lookup(RUN).enqueue(control(ControlType.PAUSE))
        inboxes.lookup(RUN).enqueue(control(ControlType.PRIORITIZE, {"priority": "high"}))
        return CallTool("x")

    with pytest.raises(PayloadInvalidError):
        await RunLoop(inboxes, pauses).run(spec(steered))
    assert await open_pauses(pauses) == 0
    assert len(inboxes) == 0


async def test_an_inbox_that_other_code_retired_does_not_hide_how_the_run_ended() -> None:
    """The finish counts, and an inbox that was opened meanwhile for the same identity is left alone."""
    inboxes = InboxRegistry()

    def bereft(_: RunContext) -> Decision:
        inboxes.retire(RUN)
        inboxes.open(RUN)
        return Finish("goal", "done")

    finish = await RunLoop(inboxes, Coordinator()).run(spec(bereft))
    assert finish.payload == "done"
    assert inboxes.lookup(RUN).is_empty
