"""The state of a run at one moment, derived from its journal.

The loop owns its `RunState` and is the only one to change it, through the functions of `apply` and `gate`.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from harborage.identity import Quadruple
from harborage.planner import (
    ArtifactManifestEntry,
    AwaitTask,
    Budget,
    ControlSignals,
    Decision,
    Finish,
    PauseReason,
    ToolCallDeferred,
    Trajectory,
    TrajectorySummary,
)
from harborage.runtime.loop.controls import ControlEvent, TaskCancelled
from harborage.runtime.loop.limits import Spent
from harborage.runtime.loop.pauses import PauseDecision
from harborage.runtime.loop.sub_agents import SubAgent


class ControlErrors(StrEnum):
    """The effect of a control that cannot be applied: it ends the run, or is recorded as failed."""

    FAIL = "fail"
    REJECT = "reject"


class Cancelling(StrEnum):
    """The progress of a cancel: a soft one gives the planner one more call to finish, a hard one none."""

    NO = "no"
    ASKED = "asked"
    TOLD = "told"
    HARD = "hard"


class OpenPause(msgspec.Struct, frozen=True, omit_defaults=True):
    """The pause a run is parked on."""

    token: str
    reason: PauseReason
    deadline: datetime | None = None


_NOTHING = msgspec.Raw(b"")


class Planned(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of one call of the planner: its decision, and its notes.

    The rest is for a replay alone. `heard` has its model calls; `manifest` the session's artifacts in its context,
    if they differ from the step before, or `new_artifacts` those that are new in front of them; `budget` its limits in
    the context.
    `spent` is what its model calls took. `limit` names the limit that ended the run here: the planner did not decide.
    """

    decision: Decision
    reasoning: str = ""
    preamble: str = ""
    pending: tuple[ToolCallDeferred, ...] | None = None
    summary: TrajectorySummary | None = None
    started_at: datetime | None = None
    latency_ms: int = 0
    manifest: tuple[ArtifactManifestEntry, ...] | None = None
    new_artifacts: tuple[ArtifactManifestEntry, ...] = ()
    heard: msgspec.Raw = _NOTHING
    spent: Spent | None = None
    budget: Budget | None = None
    limit: str = ""

    def manifest_after(self, known: tuple[ArtifactManifestEntry, ...]) -> tuple[ArtifactManifestEntry, ...]:
        """Return the session's artifacts in the context of this step, given those of the step before."""
        if self.manifest is not None:
            return self.manifest
        return (*self.new_artifacts, *known) if self.new_artifacts else known


class SteerRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A batch of controls to apply before `step`, from 1, and what applying them depends on.

    `awaits_provider` says that the run waited for its provider, so that a RESUME has had its effect by arriving,
    `is_workflow` that its goal cannot change.
    """

    controls: tuple[ControlEvent, ...]
    task_id: str = ""
    pause: OpenPause | None = None
    awaits_provider: bool = False
    is_workflow: bool = False
    step: int = 0


_RECORDED_NAMES = {
    "resolved": "settled",
    "resolved_token": "settled_token",
    "resolved_payload": "settled_payload",
    "resolved_at": "settled_at",
}


class Steered(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename=_RECORDED_NAMES):
    """One control after it was applied. `error` is empty, or the short code of why it failed.

    `opened` is the pause it opened; `resolved` is how it resolved the open one, with the payload the planner will see.
    """

    control: ControlEvent
    error: str = ""
    opened: OpenPause | None = None
    resolved: PauseDecision | None = None
    resolved_token: str = ""
    resolved_payload: dict[str, Any] | None = None
    resolved_at: datetime | None = None


class PutOff(msgspec.Struct, frozen=True):
    """A step whose wait a pause has put off: the planner's result, and the wait to begin again after the resume."""

    planned: Planned
    awaits: AwaitTask


class RunState(msgspec.Struct, kw_only=True):
    """One run between two steps. `steps` counts planner calls; waiting costs none. `spent` is what their model calls
    took. `hooks` are asked, `new_hooks` are those that its agent has since the run was started. `guided` is how often a
    hook sent the planner's answer back.

    With `has_last_word` the planner is called once more when its steps are used up, and must finish then. A run that
    `is_workflow` may call the waits of workflows. `sub_agents` are those that it may call, by the name of the call;
    `agent_tasks` the tasks of such calls, and `in_background`
    those of whose end it was not notified yet.
    """

    who: Quadruple
    goal: str
    trajectory: Trajectory
    task_id: str = ""
    max_steps: int = 64
    has_last_word: bool = False
    gated_tools: Container[str] = frozenset()
    hooks: tuple[str, ...] = ()
    new_hooks: tuple[str, ...] = ()
    guided: int = 0
    is_parallel_atomic: bool = False
    steps: int = 0
    spent: Spent = Spent()
    signals: ControlSignals = msgspec.field(default_factory=ControlSignals)
    pause: OpenPause | None = None
    cancelling: Cancelling = Cancelling.NO
    task_cancelled: TaskCancelled | None = None
    is_past_deadline: bool = False
    awaits_provider: bool = False
    pending: tuple[ToolCallDeferred, ...] = ()
    finish: Finish | None = None
    put_off: PutOff | None = None
    is_workflow: bool = False
    sub_agents: Mapping[str, SubAgent] = {}
    agent_tasks: dict[str, SubAgent] = {}
    in_background: tuple[str, ...] = ()
