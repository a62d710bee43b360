"""A pause: a run, or one call of it, that waits for an answer. The values, and the port of the coordinator.

A request for a pause names its deadline and its default answer, so that no run waits for ever. No I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol, TypeAlias

import msgspec
from msgspec.structs import force_setattr

from harborage.errors import all_of, names_of
from harborage.identity import Identity, Quadruple
from harborage.planner.decisions import PauseReason
from harborage.planner.trajectory import Trajectory

Who: TypeAlias = Identity | Quadruple


class PauseState(StrEnum):
    """The state of a pause; a settled one never opens again."""

    PAUSED = "paused"
    RESUMED = "resumed"


class PauseDecision(StrEnum):
    """How a pause was settled."""

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

    At `deadline` the pause settles itself with `default`; None waits until a person decides. `key` makes the request
    repeatable: while a pause of this owner and run with this key exists, a second request returns that one.
    """

    identity: Who
    reason: PauseReason
    payload: dict[str, Any] | None = None
    trajectory: Trajectory | None = None
    deadline: datetime | None = None
    default: PauseDecision = PauseDecision.TIMEOUT
    key: str = ""


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """One pause. `payload` is the question, with the answer merged over it once the pause is settled.

    `trajectory` is the serialised history of the request; only the call that settles the pause returns it, so that the
    run can be rebuilt from it. `sealed` is a part of the answer that only the waiting call may read: it comes with the
    settled pause, and is in no list and no status. `settled_by` is the user who settled it, "" for its deadline and the
    end of its run. `answering` is the event id of the control with the pending answer, or with the one that counted.
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
    settled_by: str = ""
    answering: str = ""

    @property
    def is_paused(self) -> bool:
        """Whether it can still be settled."""
        return self.state is PauseState.PAUSED

    def is_due(self, now: datetime) -> bool:
        """Return whether its deadline has passed and it is open; at the deadline itself it has."""
        return self.is_paused and self.deadline is not None and now >= self.deadline

    def settled(
        self,
        decision: PauseDecision,
        payload: dict[str, Any] | None,
        now: datetime,
        *,
        sealed: bytes | None = None,
        by: str = "",
    ) -> Pause:
        """Return this pause settled with `decision` at `now`, the answer's `payload` merged over the question's."""
        answer = self.payload if payload is None else {**(self.payload or {}), **payload}
        return msgspec.structs.replace(
            self,
            state=PauseState.RESUMED,
            decision=decision,
            payload=answer,
            resumed_at=now,
            sealed=sealed,
            settled_by=by,
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
    """One page of a list, newest first. `truncated`: it includes settled pauses, and none is stored any more."""

    rows: tuple[Pause, ...]
    page: int
    page_size: int
    page_count: int
    total: int
    truncated: bool = False


class PauseCoordinator(Protocol):
    """Opens, settles, shows and lists the pauses of a process.

    `who` is the caller; None takes the ambient identity. `scopes` are the caller's verified claims; None takes the
    ambient ones for `list`, and none for the other verbs.
    """

    async def request(self, request: PauseRequest) -> Pause:
        """Open a pause.

        Raises:
            IdentityRequiredError, InvalidReasonError, PauseDecisionError, InvalidOptionError: in this order.
            UnserializableError: the payload or the trajectory cannot be kept.
            DatabaseError, StoreError: the store refused. In every case nothing is recorded.
        """
        ...

    async def resume(
        self,
        token: str,
        decision: PauseDecision,
        payload: dict[str, Any] | None = None,
        *,
        sealed: bytes | None = None,
        who: Who | None = None,
        scopes: frozenset[str] | None = None,
    ) -> Pause:
        """Settle a pause, as its owner or an admin of its tenant. Exactly one caller succeeds.

        Only the call that waits for the pause gets `sealed`.

        Raises:
            PauseDecisionError, IdentityRequiredError, PauseNotFoundError, AlreadyResumedError, PauseScopeMismatchError:
                in this order. The error tells callers who may see the pause how it was settled, when and by whom.
            ToolContextLostError: the run needs a live handle that this process does not hold; the pause stays open.
            UnserializableError: the payload cannot be kept; the pause stays open.
            DatabaseError, StoreError: the store refused; the pause stays open.
        """
        ...

    async def withdraw(self, token: str, *, who: Who | None = None) -> bool:
        """Reject a pause that no call waits for any more; return False if it was settled before.

        Raises:
            IdentityRequiredError, PauseNotFoundError, PauseScopeMismatchError: in this order.
            DatabaseError, StoreError: the store refused; the pause stays open.
        """
        ...

    async def drop_answer(self, token: str, event_id: str) -> None:
        """Drop the pending answer with this event id, so that another one may be sent.

        Raises:
            DatabaseError, StoreError: the store refused.
        """
        ...

    async def check_handles(self, token: str) -> None:
        """Accept a pause whose run this process could resume.

        Raises:
            PauseNotFoundError: there is no such pause.
            ToolContextLostError: the run needs a live handle that this process does not hold.
        """
        ...

    async def status(self, token: str, *, who: Who | None = None, scopes: frozenset[str] | None = None) -> Pause:
        """Return the pause. Without any identity, explicit or ambient, the token itself is the capability.

        If another process has settled it, calls of this process that wait for it are woken.

        Raises:
            PauseNotFoundError, PauseScopeMismatchError: in this order.
            CheckpointCorruptError, UnsupportedFormatVersionError: it cannot be read.
        """
        ...

    async def list(
        self,
        filter: PauseFilter = OPEN,
        *,
        page: int = 0,
        page_size: int = 0,
        who: Who | None = None,
        scopes: frozenset[str] | None = None,
    ) -> PausePage:
        """Return a page of the caller's pauses, newest first; with the admin scope, those of its or the named tenants.

        Without `scopes` the ambient ones count.

        Raises:
            IdentityRequiredError, InvalidPageError, CrossTenantScopeError, AdminScopeRequiredError: in this order.
        """
        ...

    async def expire(self, token: str) -> Pause:
        """Settle a pause whose deadline has passed with its default; return one that is not due unchanged.

        Raises:
            PauseNotFoundError: there is no such pause.
        """
        ...

    def on_resolved(self, token: str, wake: Callable[[Pause], None]) -> Callable[[], None]:
        """Call `wake` once when the pause is settled, at once if it was; the returned function cancels that."""
        ...
