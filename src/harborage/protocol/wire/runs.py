"""The recorded history of runs on the wire: what happened step by step, forks, replays, frozen runs, comparisons.

An absent field has no value; every other stands in each answer.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from harborage.protocol.wire.common import Answer, Request, WireIdentity

DEFAULT_LIMIT: Final = 200
MAX_LIMIT: Final = 1000


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an answer."""


# ── Requests ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class StepsRequest(Request, frozen=True, kw_only=True):
    """Which steps of a run: those after `after`, at most `limit` (0 is 200, the most is 1,000)."""

    id: str = ""
    after: int = 0
    limit: int = 0


class StepRequest(Request, frozen=True, kw_only=True):
    """Which step of a run; `full` gives prompts whole, not as what is new in them."""

    id: str = ""
    step: int = 0
    full: bool = False


class ForkRequest(Request, frozen=True, kw_only=True):
    """A new run whose steps before `step` are those of the run `id`."""

    id: str = ""
    step: int = 0
    goal: str = ""
    model: str = ""
    instructions: str = ""
    agent: str = ""
    max_steps: int = 0
    live: bool = False
    idempotency_key: str = ""


class AgentRequest(Request, frozen=True, kw_only=True):
    """A run that is to be replayed or frozen, by another agent than its own where one is named."""

    id: str = ""
    agent: str = ""


class CompareRequest(Request, frozen=True, kw_only=True):
    """Two runs, and which of their steps that are not alike: as for the steps of one."""

    id: str = ""
    other: str = ""
    after: int = 0
    limit: int = 0


# ── Parts of answers ──────────────────────────────────────────────────────────────────────────────────────────────────


class StepOf(_Part, frozen=True, kw_only=True):
    """A step of another run."""

    id: str
    step: int


class ErrorOf(_Part, frozen=True, kw_only=True):
    """What went wrong, by the name of its class and in words."""

    class_: str = msgspec.field(name="class", default="")
    message: str = ""


class RunLimits(_Part, frozen=True, kw_only=True):
    """What a run may take; absent where nothing is set."""

    steps: int | UnsetType = UNSET
    calls: int | UnsetType = UNSET
    tokens: int | UnsetType = UNSET
    usd: float | UnsetType = UNSET
    seconds: float | UnsetType = UNSET


class RunTotals(_Part, frozen=True, kw_only=True):
    """What a run has taken."""

    steps: int
    tool_calls: int
    model_calls: int
    prompt_tokens: int
    completion_tokens: int
    reasoning_tokens: int
    cached_tokens: int
    usd: float


class RunHeader(_Part, frozen=True, kw_only=True):
    """A run as a whole. `active_ms` is how long it did not wait."""

    id: str
    identity: WireIdentity
    goal: str
    agent_name: str
    model: str
    status: str
    condition: str | UnsetType = UNSET
    error_class: str | UnsetType = UNSET
    started_at: datetime
    ended_at: datetime
    active_ms: int
    rehearsal: bool
    forked_from: StepOf | UnsetType = UNSET
    parent: StepOf | UnsetType = UNSET
    limits: RunLimits
    totals: RunTotals


class Tokens(_Part, frozen=True, kw_only=True):
    """Tokens by kind."""

    prompt: int = 0
    completion: int = 0
    reasoning: int = 0
    cached: int = 0


class ReferenceOf(_Part, frozen=True, kw_only=True):
    """A stored artifact that holds the whole of a value."""

    id: str
    mime: str = ""
    size: int = 0


class CutValue(_Part, frozen=True, kw_only=True):
    """What stands for a value that is too large to be shown. `bytes` is the length of its JSON."""

    preview: str
    bytes: int
    artifact_ref: ReferenceOf | UnsetType = UNSET


class CallRow(_Part, frozen=True, kw_only=True):
    """A call of a tool; `branch` counts from 1 in a parallel step. The whole values are there in a single step only."""

    call_id: str
    tool: str
    branch: int | UnsetType = UNSET
    side_effect: str
    status: str
    attempts: int
    key: str | UnsetType = UNSET
    started_at: datetime
    ended_at: datetime
    error: ErrorOf | UnsetType = UNSET
    args_preview: str
    result_preview: str | UnsetType = UNSET
    args: Any = UNSET
    args_cut: CutValue | UnsetType = UNSET
    result: Any = UNSET
    result_cut: CutValue | UnsetType = UNSET
    masked: bool | UnsetType = UNSET


class ChildRow(_Part, frozen=True, kw_only=True):
    """A run that a step started."""

    id: str
    kind: str
    agent_name: str
    description: str


class WaitRow(_Part, frozen=True, kw_only=True):
    """What a step waited or waits for: a reason of pauses, or `child`, `timer`, `worker`."""

    reason: str
    token: str | UnsetType = UNSET
    call_id: str | UnsetType = UNSET
    opened_at: datetime
    settled_at: datetime
    decision: str | UnsetType = UNSET
    by: WireIdentity | UnsetType = UNSET
    deadline: datetime | UnsetType = UNSET
    default: str | UnsetType = UNSET


class StepRow(_Part, frozen=True, kw_only=True):
    """One step; `decision` is absent while the planner decides."""

    step: int
    status: str
    decision: str | UnsetType = UNSET
    preview: str
    started_at: datetime
    decided_at: datetime
    ended_at: datetime
    latency_ms: int
    tokens: Tokens
    usd: float
    error: ErrorOf | UnsetType = UNSET
    calls: list[CallRow]
    children: list[ChildRow]
    waits: list[WaitRow]


class ControlRow(_Part, frozen=True, kw_only=True):
    """A control that was sent to the run; `step` is the one before which it was applied."""

    type: str
    event_id: str
    at: datetime
    by: WireIdentity | UnsetType = UNSET
    outcome: str
    err: str | UnsetType = UNSET
    step: int | UnsetType = UNSET


class MessagePart(_Part, frozen=True, kw_only=True):
    """A part of a message: its text, what stands for a text that is too large, or a reference."""

    type: str
    text: str | UnsetType = UNSET
    cut: CutValue | UnsetType = UNSET
    artifact_ref: ReferenceOf | UnsetType = UNSET


class CallOfModel(_Part, frozen=True, kw_only=True):
    """A call that a model wants made."""

    id: str
    name: str
    args: Any


class PromptMessage(_Part, frozen=True, kw_only=True):
    """A message of a prompt."""

    role: str
    name: str | UnsetType = UNSET
    tool_call_id: str | UnsetType = UNSET
    parts: list[MessagePart]
    tool_calls: list[CallOfModel] | UnsetType = UNSET
    tokens: int | UnsetType = UNSET


class PromptTool(_Part, frozen=True, kw_only=True):
    """A tool that a model is offered."""

    name: str
    description: str
    schema: Any


class ModelAnswer(_Part, frozen=True, kw_only=True):
    """What a model answered."""

    content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    tool_calls: list[CallOfModel]
    finish_reason: str


class AskRow(_Part, frozen=True, kw_only=True):
    """One call of the model: `messages` are those after the first `unchanged`, which are those of the call before."""

    model: str
    unchanged: int
    messages: list[PromptMessage]
    tools: list[PromptTool] | UnsetType = UNSET
    settings: dict[str, Any]
    window_tokens: int | UnsetType = UNSET
    tokens: Tokens
    usd: float
    latency_ms: int
    answer: ModelAnswer | UnsetType = UNSET
    error: ErrorOf | UnsetType = UNSET


class Saw(_Part, frozen=True, kw_only=True):
    """What the planner asked its model."""

    asks: list[AskRow]


class Said(_Part, frozen=True, kw_only=True):
    """What the planner decided; `decision` is its kind, "" where it failed or was cut short."""

    decision: str
    value: Any
    reasoning: str | UnsetType = UNSET
    preamble: str | UnsetType = UNSET


class DifferenceRow(_Part, frozen=True, kw_only=True):
    """The first difference between two runs, or a run and its replay; step 0 is before the first."""

    step: int
    kind: str
    what: str
    path: str | UnsetType = UNSET
    diff: str | UnsetType = UNSET


class FrozenFile(_Part, frozen=True, kw_only=True):
    """A file of a frozen run."""

    path: str
    content: str


class Change(_Part, frozen=True, kw_only=True):
    """A value that two steps do not have in common; absent on the side that lacks it."""

    path: str
    left: Any = UNSET
    right: Any = UNSET


class ComparedRow(_Part, frozen=True, kw_only=True):
    """The steps of the same number of two runs."""

    left: StepRow | UnsetType = UNSET
    right: StepRow | UnsetType = UNSET
    same: bool
    changes: list[Change]


# ── Answers ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class StepsAnswer(Answer, frozen=True, kw_only=True):
    """A page of the steps of a run; `more` says that others follow."""

    run: RunHeader
    steps: list[StepRow]
    controls: list[ControlRow]
    more: bool


class StepAnswer(Answer, frozen=True, kw_only=True):
    """One step: what the planner saw, what it said, and what that brought."""

    step: StepRow
    saw: Saw | UnsetType = UNSET
    said: Said
    observation: Any = UNSET


class ForkAnswer(Answer, frozen=True, kw_only=True):
    """The new run; `reused` says that an earlier request with the same key had started it."""

    task_id: str
    reused: bool
    forked_from: StepOf


class ReplayAnswer(Answer, frozen=True, kw_only=True):
    """How a replay came out; `is_whole` says that the record goes to the run's end."""

    id: str
    is_same: bool
    is_whole: bool
    steps: int
    model_calls: int
    difference: DifferenceRow | UnsetType = UNSET


class FreezeAnswer(Answer, frozen=True, kw_only=True):
    """The files of a test of a run."""

    name: str
    files: list[FrozenFile]


class CompareAnswer(Answer, frozen=True, kw_only=True):
    """Two runs side by side, from the first step that they do not share; `diff` is for people."""

    runs: list[RunHeader]
    shared_steps: int
    difference: DifferenceRow | UnsetType = UNSET
    rows: list[ComparedRow]
    more: bool
    diff: str
