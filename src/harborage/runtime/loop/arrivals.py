"""The values between the loop and its host: what reaches a run, and why a step is interrupted."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from harborage.planner import BackgroundResult
from harborage.runtime.loop.controls import ControlEvent
from harborage.runtime.loop.errors import SteeringError
from harborage.runtime.loop.pauses import PauseDecision


class Interrupt(StrEnum):
    """Why a step was cut short; a soft cancel and a pause do so only to a step that merely waits. One that waits to be
    begun again is given up when something arrives, and taken anew after that."""

    HARD_CANCEL = "hard_cancel"
    SOFT_CANCEL = "soft_cancel"
    DEADLINE = "deadline"
    PAUSE = "pause"
    ARRIVAL = "arrival"


class StepInterruptedError(SteeringError):
    """A step in flight was interrupted; `reason` is that of the interrupt."""

    def __init__(self, name: str, reason: Interrupt) -> None:
        self.name = name
        self.reason = reason
        super().__init__(f"step {name!r} interrupted: {reason}")


class WaitPutOffError(SteeringError):
    """A pause came while the run waited for the task or group `target`; after its resume the run waits again."""

    def __init__(self, target: str = "") -> None:
        self.target = target
        super().__init__(f"the wait for {target!r} is put off until the run is resumed")


class Arrivals(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything that reached a run since its last step boundary, in arrival order."""

    controls: tuple[ControlEvent, ...] = ()
    background: tuple[BackgroundResult, ...] = ()
    is_past_deadline: bool = False


NOTHING = Arrivals()


class Hold(msgspec.Struct, frozen=True):
    """Park the run until its pause `token` is resolved, a control arrives, or `until` has passed."""

    token: str
    until: datetime | None = None


class Woken(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a parked run resumes: a control is queued, its pause was resolved (`decision`), or its deadline passed."""

    decision: PauseDecision | None = None
    payload: dict[str, Any] | None = None
    at: datetime | None = None
    is_past_deadline: bool = False
