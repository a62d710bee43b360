"""The waits that a workflow may call beside tools: for a time, and for the answer of a person. Pure above `io`.

Each is a step of its own, which holds no memory while it waits.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harborage import codec
from harborage.runtime.loop.arrivals import StepInterruptedError
from harborage.runtime.loop.outcome import OutcomeStatus, ToolOutcome, failed

if TYPE_CHECKING:
    from harborage.planner import CallTool
    from harborage.runtime.loop.seam import Durable

SLEEP: Final = "workflow.sleep"
"""The call that waits for a time; no tool can have its name, and no model can call it."""

ASK: Final = "workflow.ask"
"""The call that waits for the answer of a person."""

WAITS: Final = frozenset({SLEEP, ASK})

TIMER_STEP: Final = "timer"
ASK_STEP: Final = "ask"


class Sleep(msgspec.Struct, frozen=True):
    """Until when a workflow sleeps."""

    until: datetime


class Question(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a workflow asks a person. `schema` is the JSON schema of the answer, `expires` until when it may come."""

    question: str
    schema: dict[str, Any] = {}
    expires: datetime | None = None


class Answered(msgspec.Struct, frozen=True, omit_defaults=True):
    """What came of a question: the value of the answer, or that a person refused to give one, or nobody in time."""

    value: Any = None
    is_expired: bool = False
    is_rejected: bool = False
    reason: str = ""


async def wait_in_workflow(call: CallTool, io: Durable) -> ToolOutcome:
    """Wait for what the call names; its observation is None after a sleep, else an `Answered`."""
    try:
        if call.tool == SLEEP:
            return ToolOutcome(OutcomeStatus.DONE, await io.step(TIMER_STEP, codec.decode(call.args, Sleep)))
        answered: Answered = await io.step(ASK_STEP, codec.decode(call.args, Question))
    except StepInterruptedError as cut:
        return failed(f"cancelled: {cut.reason}", OutcomeStatus.CANCELLED)
    return ToolOutcome(OutcomeStatus.DONE, codec.to_plain(answered))
