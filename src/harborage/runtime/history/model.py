"""A run's history as values: what was decided, what came of it, what steering did, what it cost.

Everything is folded from the record by `fold` and is plain enough to become JSON as it is.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from harborage import codec
from harborage.identity import Quadruple
from harborage.planner import Decision, Finish, PauseReason, SpawnSpec
from harborage.runtime.durable import RunRequest
from harborage.runtime.exchanges import Answered, Failure
from harborage.runtime.steering.controls import ControlType

__all__ = [
    "CallMade",
    "CallStatus",
    "ChildSpawned",
    "ControlTaken",
    "ModelAsked",
    "PauseTaken",
    "RunHistory",
    "StepTaken",
    "Totals",
]


class CallStatus(StrEnum):
    """How a call ended. `CUT` was cut short by a hard cancel or the deadline, `OPEN` has no outcome on record."""

    DONE = "done"
    FAILED = "failed"
    REJECTED = "rejected"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"
    CUT = "cut"
    OPEN = "open"


class ModelAsked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call of the model: how many messages it was asked with, and its answer or what it failed with."""

    messages: int = 0
    answer: Answered | None = None
    failure: Failure | None = None


class CallMade(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call of a tool. `args` are the JSON text it was made with; `branch` counts from 0 in a parallel call.

    `refusal` is why an approval gate did not let it through; such a call was never made.
    """

    tool: str
    position: str = ""
    branch: int | None = None
    args: str = ""
    key: str = ""
    status: CallStatus = CallStatus.OPEN
    observation: Any = None
    seen: Any = msgspec.UNSET
    error: str = ""
    refusal: str = ""
    approval_asked: bool = False
    begun_at: datetime | None = None
    ended_at: datetime | None = None


class ChildSpawned(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task that the run spawned; `task_id` is also the id of its run. `error` is why there is none."""

    task_id: str = ""
    kind: str = ""
    spec: SpawnSpec = SpawnSpec()
    error: str = ""


class PauseTaken(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pause of the run: why and since when, how it was settled and when; `by` is `planner` or `steering`."""

    token: str
    reason: PauseReason
    by: str
    opened_at: datetime
    deadline: datetime | None = None
    payload: dict[str, Any] | None = None
    decision: str = ""
    answer: dict[str, Any] | None = None
    settled_at: datetime | None = None


class ControlTaken(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A control that reached the run, before step `before_step`; `error` is the code of why it was not applied."""

    type: ControlType
    at: datetime
    before_step: int
    payload: dict[str, Any] | None = None
    scope: str = ""
    event_id: str = ""
    error: str = ""


class StepTaken(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call of the planner and what came of it. `number` counts from 1; `history` counts rollovers before.

    `error` is what the planner failed with, `cut` why it was cut short; then there is no decision. `observation` is
    what the step brought where that is no call of a tool: how an awaited task ended, why a decision was refused.
    """

    number: int
    position: str
    history: int = 0
    decided_at: datetime
    started_at: datetime | None = None
    latency_ms: int = 0
    decision: Decision | None = None
    reasoning: str = ""
    preamble: str = ""
    error: str = ""
    cut: str = ""
    calls: tuple[CallMade, ...] = ()
    children: tuple[ChildSpawned, ...] = ()
    observation: Any = None
    asked: tuple[ModelAsked, ...] = ()
    was_summarised: bool = False
    ended_at: datetime | None = None


class Totals(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Sums over a run, of what its record holds. `cost` is by currency; a model without a price adds none."""

    steps: int = 0
    tool_calls: int = 0
    model_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: dict[str, float] = {}


class RunHistory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run from its beginning to its last recorded entry.

    `ended_at` is None while it goes on; then either `finish` or `error` says how it ended. `seconds` is from its start
    to its end, or to the last thing on record.
    """

    run_id: str
    who: Quadruple
    goal: str
    request: RunRequest
    started_at: datetime
    ended_at: datetime | None = None
    seconds: float = 0.0
    finish: Finish | None = None
    error: str = ""
    message: str = ""
    steps: tuple[StepTaken, ...] = ()
    controls: tuple[ControlTaken, ...] = ()
    pauses: tuple[PauseTaken, ...] = ()
    background: tuple[Any, ...] = ()
    patches: tuple[str, ...] = ()
    totals: Totals = Totals()
    entries: int = 0

    @property
    def has_ended(self) -> bool:
        """Whether the run is over."""
        return self.ended_at is not None

    @property
    def children(self) -> tuple[ChildSpawned, ...]:
        """The tasks that it spawned, in order."""
        return tuple(child for step in self.steps for child in step.children)

    def to_json(self) -> bytes:
        """The whole history as JSON."""
        return codec.encode(self, "history")
