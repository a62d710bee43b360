"""The pauses of a run, as tests wait for them and make them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from harborage.events import EventType
from harborage.identity import Quadruple
from harborage.runtime.pauses import Pause, PauseReason, PauseState

if TYPE_CHECKING:
    from harborage.runtime.run import Run

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
PATIENCE_S = 20


async def wait_for_approval(run: Run) -> str:
    """Return the token of the first approval that the run requests."""
    async with asyncio.timeout(PATIENCE_S):
        async for event in run.events():
            if event.type == EventType.TOOL_APPROVAL_REQUESTED:
                token: str = event.payload.pause_token  # type: ignore[union-attr]
                return token
    raise AssertionError("the run ended and requested no approval")


async def wait_for_pause(run: Run) -> Pause:
    """Return the pause with which the run waits, as `Run.waiting` lists it."""
    async with asyncio.timeout(PATIENCE_S):
        async for event in run.events():
            if event.type == EventType.PAUSE_REQUESTED:
                break
    (pause,) = await run.waiting()
    return pause


def make_pause(**parts: object) -> Pause:
    """An open pause; `parts` replace its fields."""
    basis = {
        "token": "T",
        "reason": PauseReason.AWAIT_INPUT,
        "state": PauseState.PAUSED,
        "identity": Quadruple("acme", "ann", "s1", "r1"),
        "paused_at": NOON,
    }
    return Pause(**{**basis, **parts})  # type: ignore[arg-type]
