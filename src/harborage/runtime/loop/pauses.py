"""A pause: a run, or one of its calls, that waits for an answer. Values only, without I/O and without a clock.

A request for a pause names its deadline and its default answer, so that no run waits for ever.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import force_setattr

from harborage.errors import all_of, names_of
from harborage.identity import Identity, Quadruple
from harborage.planner.decisions import PauseReason
from harborage.planner.trajectory import Trajectory

Who: TypeAlias = Identity | Quadruple


class PauseState(StrEnum):
    """The state of a pause; a resolved pause never opens again."""

    PAUSED = "paused"
    RESUMED = "resumed"


class PauseDecision(StrEnum):
    """How a pause was resolved."""

    APPROVE = "approve"
    REJECT = "reject"
    RESUME = "resume"
    TIMEOUT = "timeout"

    @property
    def goes_on(self) -> bool:
        """Whether the waiting work resumes: after an approval or an answer it does, otherwise it ends."""
        return self in {PauseDecision.APPROVE, PauseDecision.RESUME}


class PauseRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a pause. `identity` is the owner; without a run in it, the run comes from the context.

    At `deadline` the pause resolves itself with `default`; None waits until a person decides. `key` makes the request
    repeatable: while a pause of this owner and run with this key exists, a second request returns that one. `step` and
    `call_id` name the call that waits; 0 and "" where there is none. `is_masked` says that the payload shows a secret
    as a mask.
    """

    identity: Who
    reason: PauseReason
    payload: dict[str, Any] | None = None
    trajectory: Trajectory | None = None
    deadline: datetime | None = None
    default: PauseDecision = PauseDecision.TIMEOUT
    key: str = ""
    step: int = 0
    call_id: str = ""
    is_masked: bool = False


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """One pause. `payload` is the question, with the answer merged over it once the pause is resolved.

    `trajectory` is the serialised history of the request; only the call that resolves the pause returns it, so that the
    run can be rebuilt from it. `sealed` is the part of the answer that only the waiting call may read; no list and no
    status contains it. `resolved_by` is the user who resolved the pause, "" if its deadline or the end of its run did.
    `answering` is the event id of the control with the pending answer, or with the answer that resolved it;
    `answered_by` is the principal who sent the latter, None where that is not known or no principal did. `step`,
    `call_id` and `is_masked` are those of the request.
    """

    token: str
    reason: PauseReason
    state: PauseState
    identity: Quadruple
    paused_at: datetime
    payload: dict[str, Any] | None = None
    resumed_at: datetime | None = None
    decision: PauseDecision | None = None
    deadline: datetime | None = None
    default: PauseDecision = PauseDecision.TIMEOUT
    key: str = ""
    trajectory: bytes | None = None
    sealed: bytes | None = None
    resolved_by: str = ""
    answering: str = ""
    answered_by: Identity | None = None
    step: int = 0
    call_id: str = ""
    is_masked: bool = False

    @property
    def is_paused(self) -> bool:
        """Whether it can still be resolved."""
        return self.state is PauseState.PAUSED

    @property
    def is_approval(self) -> bool:
        """Whether a call waits to be approved: it is approved or rejected, and nothing else answers it."""
        is_of_call = {"tool", "fingerprint"} <= (self.payload or {}).keys()
        return is_of_call and self.reason is PauseReason.APPROVAL_REQUIRED  # an interrupted call awaits input

    def is_due(self, now: datetime) -> bool:
        """Return whether its deadline has passed and it is open; at the deadline itself it has."""
        return self.is_paused and self.deadline is not None and now >= self.deadline

    def resolve(
        self,
        decision: PauseDecision,
        payload: dict[str, Any] | None,
        now: datetime,
        *,
        sealed: bytes | None = None,
        by: str = "",
        sender: Identity | None = None,
        event_id: str = "",
    ) -> Pause:
        """Return this pause resolved with `decision` at `now`, the answer's `payload` merged over the question's.

        `by` is the user who did it; `sender` and `event_id` are those of the control with the answer.
        """
        answer = self.payload if payload is None else {**(self.payload or {}), **payload}
        return msgspec.structs.replace(
            self,
            state=PauseState.RESUMED,
            decision=decision,
            payload=answer,
            resumed_at=now,
            sealed=sealed,
            resolved_by=by,
            answering=event_id or self.answering,
            answered_by=sender,
        )

    def without_trajectory(self) -> Pause:
        """Return this pause without its trajectory."""
        return self if self.trajectory is None else msgspec.structs.replace(self, trajectory=None)

    def shown(self) -> Pause:
        """Return this pause without the parts that only the waiting call may read."""
        if self.trajectory is None and self.sealed is None:
            return self
        return msgspec.structs.replace(self, trajectory=None, sealed=None)


class PauseFilter(msgspec.Struct, frozen=True, kw_only=True):
    """The pauses to list. No `states` means the open ones, no `tenants` the caller's; other empty parts do not narrow.

    `since` and `until` are inclusive bounds on `paused_at`.
    """

    states: tuple[PauseState, ...] = ()
    tenants: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    reasons: tuple[PauseReason, ...] = ()
    since: datetime | None = None
    until: datetime | None = None

    def __post_init__(self) -> None:
        force_setattr(self, "states", all_of(PauseState, self.states, "states"))
        force_setattr(self, "reasons", all_of(PauseReason, self.reasons, "reasons"))
        for names in ("tenants", "users", "sessions", "runs"):
            force_setattr(self, names, names_of(getattr(self, names), names))


OPEN = PauseFilter()
"""The open pauses of the caller's tenant."""


class PausePage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a list, newest first. `truncated`: resolved pauses were asked for, but none is stored any more."""

    rows: tuple[Pause, ...]
    page: int
    page_size: int
    page_count: int
    total: int
    truncated: bool = False
