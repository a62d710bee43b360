"""The live side of a run that this process carries: objects that cannot be recorded, and are not part of its state."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from harborage.concurrency import Crew
from harborage.events import Event, EventType, Redactor
from harborage.planner import ArtifactManifestEntry, Budget, CompressionRunner, Planner, RunContext, ToolCallDeferred
from harborage.runtime.agent.hard_cancel import HardCancel
from harborage.runtime.agent.ledger import RunLedger
from harborage.runtime.agent.reasoning import without_secrets
from harborage.runtime.agent.session_artifacts import SessionArtifacts
from harborage.runtime.durable import GatedTools, RunRequest
from harborage.runtime.effects import StepCall, Waiting
from harborage.runtime.engines.mailbox import Mailbox
from harborage.runtime.model_records import ExchangeRecorder
from harborage.runtime.steering.run_spec import ToolExecutor
from harborage.runtime.steering.state import RunState


class LiveRun(msgspec.Struct, kw_only=True):
    """What a run's effects work with. `base` is the template of each step's context, `context` that of the last step,
    `state` the run itself, `unanswered` the approvals that it asked for and waits for no more; `was_cut_at_gate` says
    that there may be others, from before this process carried it. `transcript` and
    `manifest` are what its record holds of model calls, and of artifacts that its planner was shown, `first_manifest`
    those of its first step. A rehearsal calls
    no tool that has effects. `nonce` tells a run that is not recorded from another one of the same id. `retained` are
    the tasks that the run spawned to wait for, each with the id or name of its group. `has_children` says that it has
    spawned tasks, `named_groups` are the groups that its spawns named, `followed` those it is told the end of;
    `waiting` is what its steps in flight wait for, by position, `between_attempts` the positions of those that wait to
    try a tool again. `ledger` is what it draws from the limits of its tree,
    None where nothing is limited; `shown` is the budget that a replay shows its planner,
    `hard_cancel` the hook that a hard cancel fires; `listing` lists the session's artifacts before each step."""

    base: RunContext
    planner: Planner
    mailbox: Mailbox
    crew: Crew
    tool_executor: ToolExecutor | None = None
    compression: CompressionRunner | None = None
    on_dispatched: Callable[[], Awaitable[None]] | None = None
    context: RunContext | None = None
    state: RunState | None = None
    unanswered: list[str] = []
    was_cut_at_gate: bool = False
    transcript: ExchangeRecorder | None = None
    manifest: tuple[ArtifactManifestEntry, ...] = ()
    first_manifest: tuple[ArtifactManifestEntry, ...] | None = None
    is_rehearsal: bool = False
    nonce: str = ""
    retained: dict[str, str] = msgspec.field(default_factory=dict)
    has_children: bool = False
    named_groups: list[str] = []
    followed: set[str] = set()
    waiting: dict[str, Waiting] = {}
    between_attempts: set[str] = set()
    request: RunRequest | None = None
    ledger: RunLedger | None = None
    shown: Budget | None = None
    hard_cancel: HardCancel | None = None
    listing: SessionArtifacts | None = None

    def key(self, call: StepCall) -> str:
        """The idempotency key of a step; no two runs share one."""
        return f"{call.run_id}/{self.nonce}/{call.position}" if self.nonce else call.key

    @contextmanager
    def retrying(self, call: StepCall) -> Iterator[None]:
        """While a step only waits to try its tool again: what forbids waiting cuts it short, now or later."""
        self.between_attempts.add(call.position)
        self.mailbox.begin_wait()
        yield
        self.between_attempts.discard(call.position)  # not when it is cut short there: that must be seen to be why

    @property
    def gated(self) -> Container[str]:
        """The tools whose calls its loop has approved before they are made."""
        return GatedTools(is_all=True) if self.state is None else self.state.gated_tools

    def told(self) -> ExchangeRecorder:
        """The transcript, made when it is first needed: a run without a model has none."""
        if self.transcript is None:
            self.transcript = ExchangeRecorder()
        return self.transcript


class StepNotes:
    """What a planner says beside its decision: reasoning, prose, calls it put off, whether it announced itself.

    Reasoning and prose are kept without secrets, so that neither the record nor a later prompt holds them.
    """

    __slots__ = ("_emit", "_redactor", "has_announced", "pending", "preamble", "reasoning")

    def __init__(self, emit: Callable[[Event], None] | None, redactor: Redactor) -> None:
        self._emit = emit
        self._redactor = redactor
        self.reasoning = ""
        self.preamble = ""
        self.pending: tuple[ToolCallDeferred, ...] | None = None
        self.has_announced = False

    def on_reasoning(self, text: str) -> None:
        """Keep the step's reasoning, redacted."""
        self.reasoning = without_secrets(self._redactor, text)

    def on_assistant_content(self, text: str) -> None:
        """Keep the prose that came with the decision, redacted."""
        self.preamble = without_secrets(self._redactor, text)

    def on_pending_tool_calls(self, calls: Sequence[ToolCallDeferred]) -> None:
        """Keep the calls that wait for later steps; an empty list empties the queue."""
        self.pending = tuple(calls)

    def emit(self, event: Event) -> None:
        """Pass an event on, and remember that the planner announced its own decision."""
        if event.type == EventType.PLANNER_DECISION:
            self.has_announced = True
        if self._emit is not None:
            self._emit(event)
