"""What a client reads of the answers of a server, and the values of the runtime that they stand for. Pure.

Only the keys that are used are here, and each may be absent, so that a client works with a server that has more or
fewer: the shapes with which a server answers are in `harborage.protocol.wire`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Generic

import msgspec
from typing_extensions import TypeVar

from harborage.errors import one_of
from harborage.identity import Identity, Quadruple
from harborage.planner import Finish, FinishReason, PauseReason
from harborage.protocol.wire.common import NO_TIME
from harborage.runtime.durable.engine import RunFailedError, RunPhase, RunStatus
from harborage.runtime.effects.heavy import heavy_answer
from harborage.runtime.history.model import Totals
from harborage.runtime.loop.pauses import Pause, PauseDecision, PauseState

OutT_co = TypeVar("OutT_co", covariant=True, default=Any)

_REASONS: Final = frozenset(map(str, FinishReason))
_CURRENCY: Final = "USD"


class Owner(msgspec.Struct, frozen=True):
    """Whose something is."""

    tenant: str = ""
    user: str = ""
    session: str = ""
    run: str = ""

    def identity(self, asked: Identity) -> Identity:
        """Return the triple; a part that the server left out is the one that was asked for."""
        return Identity(self.tenant or asked.tenant_id, self.user or asked.user_id, self.session or asked.session_id)


class Started(msgspec.Struct, frozen=True):
    """The answer to `start`."""

    task_id: str
    reused: bool = False


class Accepted(msgspec.Struct, frozen=True):
    """The answer to a control: it is queued."""

    accepted: bool = True


class TaskRow(msgspec.Struct, frozen=True):
    """A run as a list has it. `condition` says what `status` leaves out: `interrupted` or `blocked`."""

    id: str
    status: str = ""
    kind: str = ""
    identity: Owner = Owner()
    parent_task_id: str = ""
    description: str = ""
    query: str = ""
    priority: int = 0
    started_at: datetime = NO_TIME
    updated_at: datetime = NO_TIME
    duration_ms: int = 0
    error_class: str = ""
    condition: str = ""
    agent_name: str = ""
    tool_count: int = 0
    cost_usd: float | None = None
    has_pending_approval: bool = False
    tags: list[str] = []

    @property
    def is_final(self) -> bool:
        """Whether the run has ended."""
        return self.status in ("complete", "failed", "cancelled")

    @property
    def word(self) -> str:
        """Where the run is, in one of the eight words that a person reads."""
        if self.condition:
            return self.condition
        if self.status == "failed" and self.error_class == FinishReason.CANCELLED:
            return "cancelled"
        return {"paused": "waiting"}.get(self.status, self.status)

    @property
    def phase(self) -> RunPhase:
        """Where the run is, as a local runtime says it."""
        match self.status:
            case "complete" | "cancelled":
                return RunPhase.FINISHED
            case "failed":
                return RunPhase.FINISHED if self.error_class in _REASONS else RunPhase.FAILED
            case _ if self.condition == "blocked":
                return RunPhase.BLOCKED
            case "paused":
                return RunPhase.PARKED
            case "pending":
                return RunPhase.PENDING
            case _:
                return RunPhase.RUNNING

    def status_for(self, asked: Identity) -> RunStatus:
        """Return the status of the run; `asked` fills in what the server left out of its identity."""
        reason = self.error_class or self.condition or ("goal" if self.status == "complete" else "")
        return RunStatus(
            run_id=self.id,
            who=self.identity.identity(asked).with_run(self.id),
            goal=self.query,
            phase=self.phase,
            reason="cancelled" if self.status == "cancelled" else reason,
            agent=self.agent_name,
            tags=dict(tag.partition("=")[::2] for tag in self.tags),
            started_at=_moment(self.started_at),
        )


class _Place(msgspec.Struct, frozen=True):
    next_page_token: str = ""


class TaskPage(msgspec.Struct, frozen=True):
    """The answer to `tasks.list`."""

    rows: list[TaskRow] = []
    cursor: _Place = _Place()


class _Cost(msgspec.Struct, frozen=True):
    prompt_tokens: int = 0
    output_tokens: int = 0
    usd: float = 0.0


class ArtifactRef(msgspec.Struct, frozen=True):
    """A reference to an artifact."""

    id: str
    size_bytes: int = 0


class TaskDetail(msgspec.Struct, frozen=True):
    """The answer to `tasks.get`: the run, what it used, and what it gave."""

    task: TaskRow
    cost: _Cost = _Cost()
    result_inline: str = ""
    result_ref: ArtifactRef | None = None

    @property
    def usage(self) -> Totals:
        """What the run used, as far as the server says it."""
        cost = {_CURRENCY: self.cost.usd} if self.cost.usd else {}
        return Totals(
            tool_calls=self.task.tool_count,
            prompt_tokens=self.cost.prompt_tokens,
            completion_tokens=self.cost.output_tokens,
            cost=cost,
        )

    def finish(self) -> Finish:
        """Return how the run finished; its payload is the typed output of an agent that has one, else its answer.

        Raises:
            RunFailedError: it ended with an error.
        """
        task = self.task
        if task.status == "cancelled":
            return Finish(FinishReason.CANCELLED)
        if task.status == "failed":
            if task.error_class in _REASONS:
                return Finish(FinishReason(task.error_class))
            raise RunFailedError(task.id, task.error_class or "failed")
        return Finish(FinishReason.GOAL, self._payload())

    @property
    def kept_answer(self) -> str:
        """The artifact that holds the whole answer, where it is too large for a list; else ""."""
        summary = heavy_answer(self._envelope())
        return "" if summary is None else str(summary["artifact_ref"])

    def _payload(self) -> Any:
        found = self._envelope()
        if not isinstance(found, dict) or "answer" not in found:
            return found
        return found.get("output", found["answer"])

    def _envelope(self) -> Any:
        try:
            return msgspec.json.decode(self.result_inline)
        except msgspec.DecodeError:
            return self.result_inline or None


class PauseSnapshot(msgspec.Struct, frozen=True):
    """A pause as a list has it."""

    token: str
    reason: str = ""
    state: str = PauseState.PAUSED
    identity: Owner = Owner()
    paused_at: datetime = NO_TIME
    resumed_at: datetime = NO_TIME
    payload: dict[str, Any] | None = None
    deadline: datetime = NO_TIME
    default: str = ""
    decision: str = ""
    by: Owner = Owner()
    agent_name: str = ""
    step: int = 0
    call_id: str = ""
    masked: bool = False

    def pause_for(self, asked: Identity) -> Pause:
        """Return the pause; `asked` fills in what the server left out of its identity."""
        return Pause(
            token=self.token,
            reason=one_of(PauseReason, self.reason, "reason"),
            state=one_of(PauseState, self.state, "state"),
            identity=self.identity.identity(asked).with_run(self.identity.run),
            paused_at=self.paused_at,
            payload=self.payload,
            resumed_at=_moment(self.resumed_at),
            decision=one_of(PauseDecision, self.decision, "decision") if self.decision else None,
            deadline=_moment(self.deadline),
            default=one_of(PauseDecision, self.default, "default") if self.default else PauseDecision.TIMEOUT,
            resolved_by=self.by.user,
            step=self.step,
            call_id=self.call_id,
            is_masked=self.masked,
        )


class PausePage(msgspec.Struct, frozen=True):
    """The answer to `pause.list`."""

    snapshots: list[PauseSnapshot] = []
    page: int = 1
    page_count: int = 0


class RemoteResult(msgspec.Struct, Generic[OutT_co], frozen=True, kw_only=True):
    """What a run on a server gave that reached its goal. `usage` is what the server says that it used."""

    output: OutT_co
    run_id: str
    usage: Totals
    finish: Finish


def owner_of_token(claims: Mapping[str, Any]) -> Quadruple:
    """Return the principal that the claims of a token name; parts that it does not name are blank."""
    named = (claims.get(key) for key in ("tenant", "user", "session"))
    return Quadruple(*(one.strip() if isinstance(one, str) else "" for one in named))


def _moment(found: datetime) -> datetime | None:
    return None if found == NO_TIME else found
