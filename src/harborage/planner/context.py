"""Everything a planner sees of its run, what a planner is, and the few things each one does.

A run context is one value, made anew for each step. What a planner writes into its copy is lost; state that must
outlive the step goes back through the callbacks (`on_…`). This file must not reach into the runtime: fields are values,
read-only views and callables.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import msgspec
from msgspec.structs import force_setattr

from harborage.callables import require_sync
from harborage.events import Event, EventType, Payload
from harborage.identity import IdentityMissingError, Quadruple, missing_parts
from harborage.planner.decisions import ChunkKind, ReasoningReplayMode, WakeMode
from harborage.planner.errors import InvalidConfigError
from harborage.planner.trajectory import ToolContext, Trajectory
from harborage.planner.views import (
    ArtifactManifestEntry,
    InputArtifactView,
    MemoryBlocks,
    MemoryView,
    PlanningHints,
    PlanningNudges,
    SkillLookup,
    ToolCallDeferred,
    ToolCatalogView,
)

if TYPE_CHECKING:
    from harborage.artifacts import ArtifactStore
    from harborage.planner.decisions import Decision
    from harborage.tasks import TaskRegistry

OnChunk: TypeAlias = Callable[[str, bool, ChunkKind], None]
"""Receives `(delta, done, kind)` for each streamed piece."""


class ControlSignals(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The controls that arrived since the last step. A snapshot: each signal is delivered once."""

    cancelled: bool = False
    pause_requested: bool = False
    injected_context: tuple[dict[str, Any], ...] = ()
    user_messages: tuple[str, ...] = ()
    redirect_goal: str = ""

    def __post_init__(self) -> None:
        for field in ("injected_context", "user_messages"):
            if not isinstance(getattr(self, field), tuple):
                force_setattr(self, field, tuple(getattr(self, field) or ()))


class Budget(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The run's hard limits, which the runtime enforces and a planner may read.

    `hop_budget` is the number of steps left, this one included, negative for no limit. Costs are micro-dollars,
    `cost_cap` 0 for no limit; `token_cap` and `call_cap` limit the tokens of model calls and the number of tool calls
    in the same way. Usage counts for the run and all runs that share its limits. A run without limits sees its own
    cost. `token_budget` is the estimated size of the history, in tokens, above which it is compressed; 0
    switches that off.
    """

    deadline: datetime | None = None
    hop_budget: int = -1
    cost_cap: int = 0
    cost_spent: int = 0
    token_budget: int = 0
    token_cap: int = 0
    tokens_spent: int = 0
    call_cap: int = 0
    calls_made: int = 0


class RepairCounters(msgspec.Struct):
    """How often in a row the model's output had to be repaired: finishes, arguments, several actions at once.

    One object a run, shared by all of its steps; never shared between runs, never held by a planner.
    """

    finish_repair: int = 0
    args_repair: int = 0
    multi_action: int = 0


class RunContext(msgspec.Struct, kw_only=True):
    """What a planner reads to decide its next step.

    `query` is the request that started the run, `goal` what it now aims at. `instructions` are those that a function of
    the agent, or who started this run, gave for it, beside the planner's own. `system_prompt` takes the place of the
    planner's own. `tool_context` is never shown to the model.
    `pictures` are those that results refer to, by the ids of their artifacts.
    `input_artifacts` are what the user attached, the same at every step; `session_artifacts` what the session holds
    now, `artifacts_at_start` what it held at the run's first step, None where that is unknown: a prompt that begins
    with those keeps its beginning. A callback that is None is not called; with `on_chunk` the answer is streamed.
    `steps_left` is how many steps the run's own cap leaves, negative where there is none; at 0 only a finish is
    accepted. `emit` publishes an event under this run's identity. `started_at` is when this step began, as its `Step`
    has it afterwards.
    """

    quadruple: Quadruple
    query: str = ""
    goal: str = ""
    instructions: str = ""
    system_prompt: str = ""
    llm_context: Mapping[str, Any] = {}
    tool_context: ToolContext = ToolContext()
    trajectory: Trajectory | None = None
    hints: PlanningNudges = PlanningNudges()
    repair_counters: RepairCounters | None = None
    planning_hints: PlanningHints | None = None
    catalog: ToolCatalogView | None = None
    memory: MemoryView | None = None
    skills: SkillLookup | None = None
    artifacts: ArtifactStore | None = None
    input_artifacts: Sequence[InputArtifactView] = ()
    pictures: Mapping[str, InputArtifactView] = {}
    session_artifacts: Sequence[ArtifactManifestEntry] = ()
    artifacts_at_start: Sequence[ArtifactManifestEntry] | None = None
    control: ControlSignals = ControlSignals()
    budget: Budget = Budget()
    steps_left: int = -1
    clock: Callable[[], datetime] | None = None
    started_at: datetime | None = None
    emit: Callable[[Event], None] | None = None
    reasoning_replay: ReasoningReplayMode | str | None = None
    memory_blocks: MemoryBlocks | None = None
    skills_context: Sequence[Any] = ()
    discovered_tools: Sequence[str] = ()
    pending_tool_calls: Sequence[ToolCallDeferred] = ()
    on_pending_tool_calls: Callable[[Sequence[ToolCallDeferred]], None] | None = None
    on_reasoning: Callable[[str], None] | None = None
    on_assistant_content: Callable[[str], None] | None = None
    on_chunk: OnChunk | None = None

    def now(self) -> datetime:
        """Return the time of the run's clock, or of the wall clock when it has none, in UTC."""
        at = datetime.now(UTC) if self.clock is None else self.clock()
        return at if at.tzinfo is UTC else at.astimezone(UTC)


@runtime_checkable
class Planner(Protocol):
    """Decides the next step of a run. One instance serves many runs at once, so it keeps nothing about any of them.

    Never: calls a tool, spawns a task or pauses by itself; it returns a decision and the runtime acts.
    """

    async def next(self, run: RunContext) -> Decision:
        """The one decision for this step.

        Raises:
            asyncio.CancelledError: the caller was cancelled; reported before anything else is done.
            Exception: the planner failed, and with it the run. None is no decision.
        """
        ...


def ends_at_step_limit(planner: object) -> bool:
    """Whether a planner declares that it finishes when it is called once more after its last step; most do not."""
    return getattr(planner, "ends_at_step_limit", False) is True


def effective_reasoning_replay(run: RunContext, configured: ReasoningReplayMode | str) -> ReasoningReplayMode:
    """The replay mode of this step: the run's own when it has one, else `configured`. All but `text` means `never`."""
    chosen = configured if run.reasoning_replay is None else run.reasoning_replay
    return ReasoningReplayMode.TEXT if chosen == ReasoningReplayMode.TEXT else ReasoningReplayMode.NEVER


@runtime_checkable
class RegistryAware(Protocol):
    """A planner that reads task groups itself, in the registry of the runtime that it decides for."""

    def attach_registry(self, registry: TaskRegistry | None) -> None:
        """Use this registry; the runtime calls it when it opens, and with None when it closes."""
        ...


@runtime_checkable
class WakeAware(Protocol):
    """A planner that declares how it is woken. Never: returns another mode later in its life."""

    def wake_mode(self) -> WakeMode:
        """How this planner learns that a group of tasks has ended."""
        ...


def resolve_wake_mode(planner: object) -> WakeMode:
    """The planner's own wake mode when it declares one, as a method or as a plain attribute, else `push`.

    Raises:
        InvalidConfigError: it declares an unknown mode.
    """
    declared = getattr(planner, "wake_mode", None)
    if declared is None:
        return WakeMode.PUSH
    mode = declared
    if callable(declared):
        require_sync(declared, f"{type(planner).__name__}.wake_mode")
        mode = declared()
    if mode not in WakeMode:
        raise InvalidConfigError(f"{type(planner).__name__}.wake_mode is {mode!r}; use one of {', '.join(WakeMode)}")
    return WakeMode(mode)


def raise_if_cancelled() -> None:
    """Raise if the calling task was cancelled.

    A task learns of its cancellation only at its next wait, which may come after work that costs money.

    Raises:
        asyncio.CancelledError: the task has been asked to stop.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


_log = logging.getLogger(__name__)


def require_identity(run: RunContext, what: str) -> None:
    """Accept a run whose four parts of identity are all set; `what` is the actor that the message names.

    Raises:
        IdentityMissingError: a part is empty; the message names it.
    """
    who = run.quadruple
    if not (who.tenant_id and who.user_id and who.session_id and who.run_id):
        missing = ", ".join(missing_parts(who, run=True))
        raise IdentityMissingError(f"{what} needs the run's whole identity; empty: {missing}")


def publish(run: RunContext, type: EventType, payload: Payload) -> None:
    """Emit an event of this run; do nothing without `run.emit`.

    Never: fails. An event that cannot be published is logged, because publishing must not change a decision.
    """
    if run.emit is None:
        return
    try:
        run.emit(Event(type, run.quadruple, payload, getattr(payload, "occurred_at", None)))
    except Exception:  # noqa: BLE001 - logged; a subscriber's failure is not the planner's
        _log.exception("planner event not published", extra={"action": "planner.emit", "event_type": str(type)})
