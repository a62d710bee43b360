"""A process that is killed inside an approved call: the approval was used, and no later event says otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

from harborage import (
    CallTool,
    EventType,
    Identity,
    Runtime,
    SideEffect,
    tool,
)
from harborage.planner import CallParallel
from harborage.runtime.approval import AlwaysDeny
from harborage.runtime.effects.options import RuntimeOptions
from harborage.runtime.pauses import Coordinator, Pause
from harborage.runtime.run import Run
from harborage.tools import OnUnknown, ToolDescriptor, ToolPolicy
from tests.kit.pauses import wait_for_approval
from tests.kit.planners import DONE, StepPlanner

pytestmark = pytest.mark.anyio

WHO = Identity("t", "u", "s")
PAY = CallTool("pay")
PAYS = StepPlanner(lambda run: CallParallel((PAY, PAY)) if run.goal == "both" else PAY, DONE)


def paying(calls: list[str], began: asyncio.Event, on_unknown: OnUnknown) -> ToolDescriptor:
    """A payment that hangs at its first call, where its process is killed."""

    async def pay() -> str:
        """Pay."""
        calls.append("pay")
        if not began.is_set():
            began.set()
            await asyncio.Event().wait()
        return "paid"

    return tool(pay, effects=SideEffect.WRITE, policy=ToolPolicy(on_unknown=on_unknown, timeout_ms=0))


def killed(database: Path, copy: Path) -> str:
    """What a process leaves on disk that is killed now: nothing that it would write at its end.

    Read with the SQLite library of the store: one process must not open a file with two of them, as the locks of one do
    not hold for the other, which then truncates the memory that the first has mapped.
    """
    with (
        closing(apsw.Connection(str(database))) as source,
        closing(apsw.Connection(str(copy))) as target,
        target.backup("main", source, "main") as backup,
    ):
        while not backup.done:
            backup.step()
    return f"sqlite:{copy}"


async def controls_of(run: Run) -> list[tuple[str, str, str]]:
    """What was published of the run's controls up to its end."""
    async with asyncio.timeout(20):
        return [
            (event.payload.type, event.payload.outcome, event.payload.err)  # type: ignore[union-attr]
            async for event in run.events()
            if event.type in {EventType.CONTROL_RECEIVED, EventType.CONTROL_APPLIED}
        ]


@pytest.fixture
def began(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Lets the process take its time over what follows an answer: the call begins meanwhile, if anything lets it."""
    began = asyncio.Event()
    resume = Coordinator.resume

    async def late(self: Coordinator, *args: Any, **options: Any) -> Pause:
        resolved = await resume(self, *args, **options)
        for _ in range(5000):
            if began.is_set():
                break
            await asyncio.sleep(0)
        return resolved

    monkeypatch.setattr(Coordinator, "resume", late)
    return began


@pytest.fixture
def opened() -> Callable[..., Runtime]:
    def make(storage: str, pay: ToolDescriptor) -> Runtime:
        options = RuntimeOptions(linger=timedelta(0))
        approvals = {"pay": AlwaysDeny()}
        return Runtime(planner=PAYS, tools=[pay], approvals=approvals, storage=storage, options=options)

    return make


@pytest.mark.parametrize("on_unknown", [OnUnknown.REPORT, OnUnknown.RETRY])
async def test_the_approval_of_a_call_in_which_its_process_was_killed_is_published_once(
    tmp_path: Path, opened: Callable[..., Runtime], began: asyncio.Event, on_unknown: OnUnknown
) -> None:
    """The next process publishes no further control, and no person is asked again."""
    calls: list[str] = []
    pay = paying(calls, began, on_unknown)
    async with opened(f"sqlite:{tmp_path / 'runs.db'}", pay) as rt:
        run = await rt.start("go", who=WHO)
        await run.approve(await wait_for_approval(run))
        await asyncio.wait_for(began.wait(), 20)
        copy = killed(tmp_path / "runs.db", tmp_path / "copy.db")
    async with opened(copy, pay) as rt:
        again = await rt.run(run.id, who=WHO)
        assert (await asyncio.wait_for(again.finished(), 20)).payload == "done"
        assert await controls_of(again) == [("APPROVE", "received", ""), ("APPROVE", "applied", "")]
        assert await again.waiting() == []
    assert len(calls) == (2 if on_unknown is OnUnknown.RETRY else 1)


async def test_an_approval_that_was_used_leaves_the_inbox_with_what_it_allowed(
    tmp_path: Path, opened: Callable[..., Runtime], began: asyncio.Event
) -> None:
    """Killed while another call still waits at its gate, the run takes the next answer and no used one again."""
    calls: list[str] = []
    pay = paying(calls, began, OnUnknown.REPORT)
    async with opened(f"sqlite:{tmp_path / 'runs.db'}", pay) as rt:
        run = await rt.start("both", who=WHO)
        await run.approve(await wait_for_approval(run))
        await asyncio.wait_for(began.wait(), 20)
        copy = killed(tmp_path / "runs.db", tmp_path / "copy.db")
    async with opened(copy, pay) as rt:
        again = await rt.run(run.id, who=WHO)
        (pause,) = await again.waiting()
        await again.approve(pause.token)
        assert (await asyncio.wait_for(again.finished(), 20)).payload == "done"
        assert await controls_of(again) == [("APPROVE", "received", ""), ("APPROVE", "applied", "")] * 2
    assert calls == ["pay", "pay"]
