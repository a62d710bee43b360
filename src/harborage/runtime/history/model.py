"""A run's history as values: decisions, observations, controls, pauses, costs.

`builder` makes them from the journal. They can be encoded as JSON.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from harborage import codec
from harborage.identity import Identity, Quadruple
from harborage.planner import Decision, Finish, PauseReason, SpawnSpec
from harborage.runtime.durable.model_records import Failure, RecordedAnswer
from harborage.runtime.loop.controls import ControlType
from harborage.runtime.loop.seam import RunRequest


class CallStatus(StrEnum):
    """How a call ended. `CUT` was ended by a hard cancel or the deadline, `OPEN` has no recorded outcome.

    `HELD_BACK` was not made because its run is a rehearsal.
    """

    DONE = "done"
    FAILED = "failed"
    REJECTED = "rejected"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"
    CUT = "cut"
    HELD_BACK = "held_back"
    OPEN = "open"


class ModelAsked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call of the model: the number of messages of its prompt, and its answer or error."""

    messages: int = 0
    answer: RecordedAnswer | None = None
    failure: Failure | None = None


class CallMade(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call of a tool. `args` are its arguments as JSON text; `branch` counts from 0 in a parallel call.

    `refusal` is why an approval gate rejected it; such a call was never made. `child` is the run that answers a call of
    an agent. `attempts` counts how often it was begun: more than once when its worker died. `call_id` is the model's.
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
    child: str = ""
    attempts: int = 0
    call_id: str = ""
    begun_at: datetime | None = None
    ended_at: datetime | None = None


class ChildSpawned(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task that the run spawned; `task_id` is also the id of its run. `error` is why it was not spawned."""

    task_id: str = ""
    kind: str = ""
    spec: SpawnSpec = SpawnSpec()
    error: str = ""


class PauseTaken(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pause of the run: its reason and start, its decision and end; `by` is `planner` or `steering`.

    `step` is the one that asked for it, or the one before which a control did.
    """

    token: str
    reason: PauseReason
    by: str
    step: int = 0
    opened_at: datetime
    deadline: datetime | None = None
    payload: dict[str, Any] | None = None
    decision: str = ""
    answer: dict[str, Any] | None = None
    resolved_at: datetime | None = msgspec.field(default=None, name="settled_at")


class ControlTaken(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A control that reached the run, before step `before_step`; `error` is the error's code if it was not applied.

    `by` is the principal who sent it, where that is recorded.
    """

    type: ControlType
    at: datetime
    before_step: int
    payload: dict[str, Any] | None = None
    scope: str = ""
    event_id: str = ""
    error: str = ""
    by: Identity | None = None


class StepTaken(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call of the planner and its results. `number` counts from 1; `history` counts the rollovers before it.

    `error` is the planner's error, `cut` why its call was interrupted; then there is no decision. `observation` is the
    result of a step without a call of a tool: the end of an awaited task, or the refusal of a decision.
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
    """Sums over the recorded steps of a run. `cost` is by currency; a model without a price adds none."""

    steps: int = 0
    tool_calls: int = 0
    model_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    cached_tokens: int = 0
    cost: dict[str, float] = {}

    @property
    def tokens(self) -> int:
        """The tokens of all model calls, in and out."""
        return self.prompt_tokens + self.completion_tokens

    def __add__(self, other: Totals) -> Totals:
        currencies = self.cost.keys() | other.cost.keys()
        return Totals(
            steps=self.steps + other.steps,
            tool_calls=self.tool_calls + other.tool_calls,
            model_calls=self.model_calls + other.model_calls,
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            cost={one: self.cost.get(one, 0.0) + other.cost.get(one, 0.0) for one in sorted(currencies)},
        )


class RunHistory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run from its beginning to its last recorded entry.

    `ended_at` is None until it ends; then either `finish` or `error` is set. `seconds` is from its start to its end, or
    to its last entry.
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
        """Return the whole history as JSON."""
        return codec.encode(self, "history")
