"""What a run keeps in memory once no worker executes it: nothing that only the garbage collector would find."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from harborage.identity import Identity
from harborage.planner import (
    CallParallel,
    CallTool,
    Decision,
    JoinKind,
    JoinSpec,
    PauseReason,
    RequestPause,
    RunContext,
    SpawnSpec,
    SpawnTask,
)
from harborage.runtime.approval import AlwaysDeny
from harborage.runtime.durable import reader
from harborage.runtime.durable.event_buffer import RunEventBuffer
from harborage.runtime.durable.leased_run import LeasedRun
from harborage.runtime.durable.mailbox import Mailbox
from harborage.runtime.durable.recorder import Recorder
from harborage.runtime.effects.approval.answering import WaitingCall
from harborage.runtime.effects.options import RuntimeOptions
from harborage.runtime.effects.run_resources import LiveRun
from harborage.runtime.host import Runtime
from harborage.state import Storage, open_storage
from harborage.tools import SideEffect, tool
from tests.kit.planners import DONE, StepPlanner

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")
HELD = (LeasedRun, LiveRun, Mailbox, RunEventBuffer, Recorder, RunContext, WaitingCall)
RUNS = 3


@tool(effects=SideEffect.EXTERNAL)
async def act(what: str) -> str:
    """Do something that a person must allow."""
    return what


@tool(effects=SideEffect.READ)
async def look(what: str) -> str:
    """Look at something."""
    return what


@tool(effects=SideEffect.READ)
async def stare(what: str) -> str:
    """Look at something for ever."""
    await asyncio.Event().wait()
    return what


FIRST = JoinSpec(JoinKind.FIRST_SUCCESS)
ASKED = {"what": "it"}
FIRST_STEPS: dict[str, Decision] = {
    "ask": RequestPause(PauseReason.AWAIT_INPUT),
    "approval": CallTool("act", ASKED),
    "approvals": CallParallel((CallTool("act", ASKED), CallTool("act", ASKED))),
    "child": SpawnTask(spec=SpawnSpec(query="ask", retain_turn=True)),
    "race": CallParallel((CallTool("look", ASKED), CallTool("stare", ASKED)), FIRST),
    "stare": CallTool("stare", ASKED),
    "succeed": CallTool("look", ASKED),
}


@pytest.fixture(params=["memory", "sqlite"])
async def storage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Storage]:
    """A storage in memory, and one in a file."""
    async with await open_storage("memory:" if request.param == "memory" else f"sqlite:{tmp_path / 'runs.db'}") as kept:
        yield kept


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Nothing is collected but what the last reference lets go of."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def held() -> int:
    """The objects in memory that belong to runs which are executed."""
    return sum(isinstance(one, HELD) for one in gc.get_objects())


@pytest.mark.parametrize("what", [*FIRST_STEPS, "fail"])
async def test_what_a_run_held_goes_with_it(
    what: str, storage: Storage, uncollected: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However it came to an end, or to where it only waits, none of it is left in a cycle of references."""
    monkeypatch.setattr(reader, "_CAUSES", 0)  # causes of failed runs are remembered on purpose
    before = held()
    runtime = Runtime(
        planner=StepPlanner(lambda run: FIRST_STEPS[run.query], DONE),
        tools=[act, look, stare],
        approvals={"act": AlwaysDeny()},
        storage=storage,
        options=RuntimeOptions(linger=timedelta(0)),
    )
    async with runtime as rt:
        runs = [await rt.start(what, who=ME) for _ in range(RUNS)]
        if what == "stare":
            for run in runs:
                await _cut_short(run)
        async with asyncio.timeout(60):
            for run in runs:
                await _left(rt, run)
            while held() > before:  # noqa: ASYNC110 - the store says so a moment before its worker has let go
                await asyncio.sleep(0.01)


async def _cut_short(run: Any) -> None:
    """Cancel a run in the middle of its call."""
    async for event in run.events():
        if event.type == "tool.invoked":
            await run.cancel(hard=True)
            return


async def _left(runtime: Runtime, run: Any) -> None:
    """Return once the run has ended, or waits for a person."""
    while not (status := await run.status()).phase.is_final and status.phase != "parked":  # noqa: ASYNC110 - as above
        await asyncio.sleep(0.01)
