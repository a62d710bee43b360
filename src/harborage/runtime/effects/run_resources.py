"""The live side of a run that this process executes: objects that cannot be recorded, and are not part of its state.

The session's artifacts are listed again only when they may differ: a store that tracks its changes is asked for a
number at each step; one that others may change as well is listed again after a second, too; every other one at each
step.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from harborage.artifacts import ArtifactScope, ArtifactStore, TracksChanges
from harborage.concurrency import Crew
from harborage.errors import error_reason
from harborage.events import DecisionPayload, Event, EventType, LLMCostRecordedPayload, Redactor
from harborage.planner import (
    ArtifactManifestEntry,
    Budget,
    CompressionRunner,
    InputArtifactView,
    Planner,
    RunContext,
    ToolCallDeferred,
    build_artifact_manifest,
)
from harborage.planner.views import pictures_of
from harborage.runtime.durable.mailbox import Mailbox
from harborage.runtime.durable.model_records import ExchangeRecorder
from harborage.runtime.durable.steps import StepCall, Waiting
from harborage.runtime.effects.hard_cancel import HardCancel
from harborage.runtime.effects.ledger import RunLedger
from harborage.runtime.effects.model_recording import without_secrets
from harborage.runtime.effects.user_code import STORE_TIMEOUT_S, bounded
from harborage.runtime.loop.outcome import call_id
from harborage.runtime.loop.run_spec import ToolExecutor
from harborage.runtime.loop.seam import GatedTools, RunRequest
from harborage.runtime.loop.state import RunState
from harborage.state.errors import DatabaseError

if TYPE_CHECKING:
    from harborage.clock import Timers
    from harborage.events.bus import RunWriter
    from harborage.identity import Quadruple
    from harborage.planner import Trajectory

Manifest: TypeAlias = tuple[ArtifactManifestEntry, ...]

_STALE_S: Final = 1.0
LONG_WAIT_S: Final = 5.0
"""Seconds up to which a call waits in memory for its next attempt."""


def tracker_of(store: ArtifactStore) -> TracksChanges | None:
    """Return `store` if it tracks its changes, else None. This check is slow compared to a step: make it once a run."""
    return store if isinstance(store, TracksChanges) else None


class SessionArtifacts:
    """What the session of one run holds, newest first. `tracker` is `tracker_of` its store."""

    __slots__ = ("_clock", "_count", "_listed_at", "_logger", "_scope", "_shown", "_store", "_tracker", "_who")

    def __init__(
        self,
        store: ArtifactStore,
        who: Quadruple,
        *,
        tracker: TracksChanges | None,
        clock: Timers,
        logger: logging.Logger,
    ) -> None:
        self._store = store
        self._tracker = tracker
        self._who = who
        self._scope = ArtifactScope(who.tenant_id, who.user_id, who.session_id)
        self._clock = clock
        self._logger = logger
        self._shown: Manifest = ()
        self._count: int | None = None
        self._listed_at = 0.0

    async def current(self) -> Manifest:
        """The artifacts as of now; the very same tuple as long as none came or went. Without any when listing fails.

        Raises:
            DatabaseError: the database cannot be read; the step is to be taken again.
        """
        known = self.unchanged()
        if known is not None:
            return known
        count = None if self._tracker is None else self._tracker.changes(self._scope)
        try:
            listing = self._store.list(self._scope)
            listed = await bounded(listing, STORE_TIMEOUT_S, clock=self._clock, on_left=self._was_left)
            shown = tuple(build_artifact_manifest(listed) or ())
        except DatabaseError:
            raise
        except Exception as error:  # noqa: BLE001 - logged; a planner can decide without the list
            self._logger.warning(
                "run %s: the session's artifacts are not listed: %s", self._who.run_id, error_reason(error)
            )
            self._shown, self._count = (), None
            return self._shown
        self._count, self._listed_at = count, self._clock.monotonic()
        if shown != self._shown:
            self._shown = shown
        return self._shown

    def _was_left(self, _: BaseException | None) -> None:
        self._logger.warning("run %s: its artifact store was abandoned: it ignored its cancellation", self._who.run_id)

    def unchanged(self) -> Manifest | None:
        """Return the last listing if the store reports no change since; else None."""
        tracker = self._tracker
        if tracker is None or self._count is None or tracker.changes(self._scope) != self._count:
            return None
        is_stale = tracker.is_shared and self._clock.monotonic() - self._listed_at >= _STALE_S
        return None if is_stale else self._shown


def recorded_of(known: Manifest, shown: Manifest) -> tuple[Manifest | None, Manifest]:
    """What a record that has `known` needs to have `shown`: the whole list or None, and the new ones before it."""
    if shown is known or shown == known:
        return None, ()
    fresh = len(shown) - len(known)
    if known and fresh > 0 and shown[fresh:] == known:
        return None, shown[:fresh]
    return shown, ()


class LiveRun(msgspec.Struct, kw_only=True):
    """What the effects of one run share, while a worker executes it.

    `base` is the template of each step's context, `context` that of the last step, `state` the run itself.

    - Approvals: `unanswered` are those that the run requested and no longer waits for; with `was_cut_at_gate` there may
      be more, of an earlier worker.
    - Record: `transcript` has the recorded model calls, `manifest` the artifacts that the planner was shown,
      `first_manifest` those of its first step; `listing` lists the session's artifacts before each step. `pictures` are
      those that the results of its first `pictured` steps refer to, for a model that `takes_pictures`.
    - Tasks: `has_children` if it has spawned any. `retained` are those that it waits for, each with the id or name of
      its group, `named_groups` the groups that its spawns named, `followed` those whose end it receives.
    - Waits: `waiting` is what its steps in flight wait for, by position; `between_attempts` are the positions of the
      steps that wait to retry a tool, `retries_at` when those do that wait long.
    - Limits: `ledger` draws from the limits of its tree, None without limits; `shown` is the budget that a replay shows
      its planner.

    A rehearsal calls no tool that has effects. `nonce` distinguishes runs without a record that have the same id.
    `hard_cancel` is the hook that a hard cancel calls.
    """

    base: RunContext
    planner: Planner
    mailbox: Mailbox
    crew: Crew
    tool_executor: ToolExecutor | None = None
    compression: CompressionRunner | None = None
    on_dispatched: Callable[[], Awaitable[None]] | None = None
    context: RunContext | None = None
    state: RunState | None = None
    unanswered: tuple[str, ...] = ()
    was_cut_at_gate: bool = False
    transcript: ExchangeRecorder | None = None
    manifest: tuple[ArtifactManifestEntry, ...] = ()
    first_manifest: tuple[ArtifactManifestEntry, ...] | None = None
    takes_pictures: bool = True
    pictures: dict[str, InputArtifactView] = msgspec.field(default_factory=dict)
    pictured: int = 0
    is_rehearsal: bool = False
    nonce: str = ""
    retained: dict[str, str] = msgspec.field(default_factory=dict)
    has_children: bool = False
    named_groups: tuple[str, ...] = ()
    followed: frozenset[str] = frozenset()
    waiting: dict[str, Waiting] = {}
    between_attempts: frozenset[str] = frozenset()
    retries_at: dict[str, datetime] = msgspec.field(default_factory=dict)
    request: RunRequest | None = None
    ledger: RunLedger | None = None
    shown: Budget | None = None
    hard_cancel: HardCancel | None = None
    listing: SessionArtifacts | None = None

    def key(self, call: StepCall) -> str:
        """The idempotency key of a step; no two runs share one."""
        return f"{call.run_id}/{self.nonce}/{call.position}" if self.nonce else call.key

    @property
    def step(self) -> tuple[str, int] | None:
        """The run and its step, from 1, in which calls are made now; None where that is not known."""
        return None if self.state is None else (self.base.quadruple.run_id, self.state.steps)

    def named(self, call: StepCall) -> tuple[int, str]:
        """The run's step, from 1, that a call is made in, and the call's id in events; 0 and "" where unknown."""
        if self.state is None:
            return 0, ""
        parts = call.position.rsplit(".", 2)
        branch = int(parts[1]) if len(parts) == 3 and parts[1].isdigit() else None
        return self.state.steps, call_id(self.state.steps, branch)

    @contextmanager
    def retrying(self, call: StepCall, asked_s: float = 0.0, now: datetime | None = None) -> Iterator[None]:
        """While a step only waits to try its tool again: what forbids waiting cuts it short, now or later.

        A wait of more than a few seconds that a peer asked for needs no process: the run may leave memory, and the call
        is begun again at that time. A policy's own wait stays in this process, which counts the attempts.
        """
        self.between_attempts |= {call.position}
        if now is not None and asked_s > LONG_WAIT_S:
            self.retries_at[call.position] = now + timedelta(seconds=asked_s)
        self.mailbox.begin_wait()
        yield
        self.retries_at.pop(call.position, None)
        self.between_attempts -= {call.position}  # not when it is cut short there: that must be seen to be why

    @property
    def write(self) -> RunWriter | None:
        """How the run commits what its steps change; None for a run without a record."""
        return None if self.mailbox.outbox is None else self.mailbox.outbox.write

    @property
    def gated(self) -> Container[str]:
        """The tools whose calls its loop has approved before they are made."""
        return GatedTools(is_all=True) if self.state is None else self.state.gated_tools

    @property
    def hooks(self) -> tuple[str, ...]:
        """The hooks that its loop asks."""
        return () if self.state is None else self.state.hooks

    def open_transcript(self) -> ExchangeRecorder:
        """Return the transcript, made when it is first needed: a run without a model has none."""
        if self.transcript is None:
            self.transcript = ExchangeRecorder()
        return self.transcript


class StepNotes:
    """What a planner returns beside its decision: reasoning, prose, deferred calls, whether it published the decision.

    Reasoning and prose are kept without secrets, so that neither the record nor a later prompt holds them.
    """

    __slots__ = ("_emit", "_redactor", "has_announced", "pending", "preamble", "reasoning", "step")

    def __init__(self, emit: Callable[[Event], None] | None, redactor: Redactor, step: int = 0) -> None:
        self._emit = emit
        self.step = step
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
        payload = event.payload
        if self.step and isinstance(payload, DecisionPayload | LLMCostRecordedPayload) and payload.step is UNSET:
            event = replace(event, payload=replace(payload, step=self.step))
        if self._emit is not None:
            self._emit(event)


NO_TASKS: Final = "no task was spawned: this run is a rehearsal; a task of it would not be one"
"""Why a rehearsal's task was not spawned."""


def new_pictures(live: LiveRun, trajectory: Trajectory) -> list[str]:
    """The ids of the pictures that the results of the last steps refer to, and that were not read yet."""
    fresh, live.pictured = trajectory.steps[live.pictured :], len(trajectory.steps)
    if not live.takes_pictures:
        return []
    return [one for step in fresh for one in pictures_of(step) if one not in live.pictures]


async def load_pictures(live: LiveRun, ids: Iterable[str]) -> None:
    """Read pictures, to be shown to the model; one that is gone is not shown."""
    store, scope = live.base.artifacts, ArtifactScope.of(live.base.quadruple)
    if store is None:
        return
    for artifact_id in ids:
        ref, data = await store.get_ref(scope, artifact_id), await store.get(scope, artifact_id)
        if ref is not None and data is not None:
            live.pictures[artifact_id] = InputArtifactView(
                id=ref.id, mime=ref.mime_type, size_bytes=ref.size_bytes, filename=ref.filename, bytes=data
            )


def withheld(live: LiveRun, name: str) -> str:
    """Why a rehearsal may not call the tool of that name; empty when it may, and for every other run."""
    if not live.is_rehearsal or live.base.catalog is None:
        return ""
    tool = live.base.catalog.resolve(name)
    if tool is None or not tool.has_effects:
        return ""
    return f'tool "{name}" was not called: this run is a rehearsal, and the tool has effects ({tool.side_effects})'
