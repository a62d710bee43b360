"""Bodies of the events of planners, trajectories and compression.

None of them quotes tool arguments or messages.
"""

from __future__ import annotations

from datetime import datetime

from msgspec import UNSET, UnsetType

from harborage.events.event import SafePayload
from harborage.identity import Quadruple


class DecisionPayload(SafePayload, frozen=True, kw_only=True):
    """The planner decided at `step`, from 1. `tool` is set for a `CallTool` alone; `reasoning_chars` counts code
    points."""

    identity: Quadruple
    decision_kind: str
    tool: str = ""
    reasoning_chars: int = 0
    reasoning_trace: str = ""
    occurred_at: datetime
    step: int | UnsetType = UNSET


class PlannerFinishPayload(SafePayload, frozen=True, kw_only=True):
    """The planner ended the run, for this reason."""

    identity: Quadruple
    reason: str
    occurred_at: datetime


class PlannerErrorPayload(SafePayload, frozen=True, kw_only=True):
    """The planner failed at a step. `error_message` is at most 256 characters."""

    identity: Quadruple
    error_code: str
    error_message: str = ""
    step: int = 0
    occurred_at: datetime


class MaxStepsExceededPayload(SafePayload, frozen=True, kw_only=True):
    """The planner's own step cap fired."""

    identity: Quadruple
    max_steps: int
    steps_observed: int
    last_tool: str = ""
    occurred_at: datetime


class RepairExhaustedPayload(SafePayload, frozen=True, kw_only=True):
    """The repair loop gave up. Each of `reasons` is at most 256 characters."""

    identity: Quadruple
    attempts: int
    consecutive_arg_failures: int
    reasons: tuple[str, ...] = ()
    occurred_at: datetime


class RepairGuidanceInjectedPayload(SafePayload, frozen=True, kw_only=True):
    """A guidance block went into the prompt: `tier` of `counter`, which had reached `count`."""

    identity: Quadruple
    tier: str
    counter: str
    count: int
    occurred_at: datetime


class ActionExtraFieldDroppedPayload(SafePayload, frozen=True, kw_only=True):
    """The model sent a field that actions do not have; it was ignored."""

    identity: Quadruple
    field: str
    occurred_at: datetime


class TrajectoryCompressedPayload(SafePayload, frozen=True, kw_only=True):
    """A summary replaced the older steps of the trajectory in the prompt."""

    identity: Quadruple
    steps_before: int
    steps_after: int
    token_estimate: int
    occurred_at: datetime


class TrajectoryCompressionFailedPayload(SafePayload, frozen=True, kw_only=True):
    """No summary could be made. `error_code` is estimator_error, summariser_error or empty_summary."""

    identity: Quadruple
    steps_observed: int
    token_estimate: int
    error_code: str
    error_message: str = ""
    occurred_at: datetime
