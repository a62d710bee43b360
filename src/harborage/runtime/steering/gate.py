"""May the run take a step? Pure: the answer depends on the run's state alone."""

from __future__ import annotations

from typing import Any

import msgspec

from harborage.planner import Finish, FinishReason
from harborage.runtime.steering.arrivals import Hold
from harborage.runtime.steering.errors import MaxStepsExceededError
from harborage.runtime.steering.state import Cancelling, RunState


class Go(msgspec.Struct, frozen=True):
    """Take a step."""


class Stop(msgspec.Struct, frozen=True):
    """The run is over, with this finish."""

    finish: Finish


Gate = Go | Hold | Stop
GO = Go()


def gate(run: RunState) -> Gate:
    """Return whether the run steps, waits or ends. An end outranks a wait, and a wait outranks a step.

    Raises:
        MaxStepsExceededError: the planner has used up its steps.
    """
    if run.finish is not None:
        return Stop(run.finish)
    if run.cancelling is Cancelling.HARD:
        return Stop(steering_finish(run, FinishReason.CANCELLED, "hard_cancel"))
    if run.is_past_deadline:
        return Stop(steering_finish(run, FinishReason.DEADLINE_EXCEEDED, "deadline"))
    if run.pause is not None:
        if run.cancelling is not Cancelling.NO:
            return Stop(steering_finish(run, FinishReason.CANCELLED, "cancel_while_paused"))
        return Hold(run.pause.token, run.pause.deadline)
    if run.cancelling is Cancelling.TOLD:
        return Stop(steering_finish(run, FinishReason.CANCELLED, "cancel_ignored"))
    if run.put_off is None and run.steps >= run.max_steps + run.has_last_word:
        raise too_many_steps(run)
    return GO


def too_many_steps(run: RunState) -> MaxStepsExceededError:
    """Return the error of a run whose planner has used up its steps."""
    return MaxStepsExceededError(f"{run.max_steps} steps without a finish; raise max_steps or let the planner finish")


def steering_finish(run: RunState, reason: FinishReason, why: str, **more: Any) -> Finish:
    """Return the finish of a run that its steering ended, with the run and the cause in its metadata."""
    return Finish(reason=reason, metadata={"run_id": run.who.run_id, **more, "steering_reason": why})
