"""Only so many controls wait for a run that takes none, and a caller that sends one more gets an error."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from harborage import CallTool, Decision, EventType, Finish, FinishReason, Identity, RunContext, Runtime, RuntimeOptions
from harborage.runtime.steering import InboxFullError

pytestmark = pytest.mark.anyio

WHO = Identity("t", "u", "s")


class Thinks:
    """Thinks for as long as it is held, and finishes with the messages that came meanwhile."""

    def __init__(self) -> None:
        self.is_thinking = asyncio.Event()
        self.may_go_on = asyncio.Event()
        self.received: list[str] = []

    async def next(self, run: RunContext) -> Decision:
        self.received += run.control.user_messages
        if run.control.cancelled:
            return Finish(FinishReason.CANCELLED, "stopped")
        if self.received:
            return Finish(FinishReason.GOAL, self.received)
        self.is_thinking.set()
        await self.may_go_on.wait()
        return CallTool("nothing")


@pytest.mark.parametrize("is_kept", [False, True], ids=["memory", "sqlite"])
async def test_one_control_more_than_may_wait_is_refused(is_kept: bool, tmp_path: Path) -> None:
    """The error names the limit, the refusal is announced, the others arrive, and a cancel always gets through."""
    planner = Thinks()
    options = RuntimeOptions(max_unread_controls=3)
    storage = f"sqlite:{tmp_path / 'runs.db'}" if is_kept else None
    async with Runtime(planner=planner, options=options, storage=storage) as rt:
        run = await rt.start("go", who=WHO)
        await planner.is_thinking.wait()
        for number in range(3):
            assert await run.message(f"m{number}")
        for send in (lambda: run.message("m3"), run.pause, lambda: run.redirect("elsewhere"), run.resume):
            with pytest.raises(InboxFullError, match="3 controls wait for it, which is the limit"):
                await send()
        assert await run.cancel()
        planner.may_go_on.set()
        finish = await asyncio.wait_for(run.finished(), 20)
        published = [event.type async for event in run.events()]
    assert (finish.payload, planner.received) == ("stopped", ["m0", "m1", "m2"])
    assert published.count(EventType.CONTROL_REJECTED) == 4
