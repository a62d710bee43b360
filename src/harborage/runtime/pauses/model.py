"""A pause: a run, or one call of it, that waits for somebody. The values, and the port that keeps them.

Whoever opens a pause says until when it may wait and what happens then, so that nothing waits for ever. This file
holds values and what follows from them alone: no I/O, no clock.
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
from harborage.planner.enums import PauseReason
from harborage.planner.trajectory import Trajectory

__all__ = [
    "OPEN",
    "Pause",
    "PauseCoordinator",
    "PauseDecision",
    "PauseFilter",
    "PausePage",
    "PauseReason",
    "PauseRequest",
    "PauseState",
    "Who",
]

Who: TypeAlias = Identity | Quadruple


class PauseState(StrEnum):
    """Where a pause stands; a settled one never opens again."""

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
        """Whether the work that waited goes on: after an approval or an answer it does, otherwise it ends."""
        return self in {PauseDecision.APPROVE, PauseDecision.RESUME}


class PauseRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to pause. `identity` is the owner; the run is taken from the context where `identity` names none.

    `deadline` is when the pause settles itself with `default`; None waits until somebody decides. `key` makes the
    request repeatable: while a pause of this owner and run with this key is known, asking again returns that one.
    """

    identity: Who
    reason: PauseReason
    payload: dict[str, Any] | None = None
    trajectory: Trajectory | None = None
    deadline: datetime | None = None
    default: PauseDecision = PauseDecision.TIMEOUT
    key: str = ""


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """One pause. `payload` is what was asked, with the answer merged over it once it is settled.

    `trajectory` is the serialised history that was handed in; it comes only with the answer of the call that settles
    the pause, so that the run can be rebuilt from it. `sealed` is a part of the answer that only whoever waits may
    read: it comes with the settled pause, and is in no list and no status. `settled_by` is the user who did,
    "" where its deadline did, or the end of its run. `answering` is the event id of the control that is on its way to
    answer it, or that did.
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
        """Whether somebody may still settle it."""
        return self.state is PauseState.PAUSED

    def is_due(self, now: datetime) -> bool:
        """Whether its deadline has passed and nobody settled it; at the deadline itself it has."""
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
        """This pause, settled with `decision` at `now`, the answer's `payload` merged over the question's."""
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
        """This pause as it is remembered."""
        return self if self.trajectory is None else msgspec.structs.replace(self, trajectory=None)

    def shown(self) -> Pause:
        """This pause as anybody may see it who may see it at all."""
        if self.trajectory is None and self.sealed is None:
            return self
        return msgspec.structs.replace(self, trajectory=None, sealed=None)


class PauseFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which pauses to list. No `states` means the open ones, no `tenants` the caller's; no other empty part narrows.

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
    """One page of a list, newest first. `truncated`: settled ones were asked for and none is remembered any more."""

    rows: tuple[Pause, ...]
    page: int
    page_size: int
    page_count: int
    total: int
    truncated: bool = False


class PauseCoordinator(Protocol):
    """Opens, settles, shows and lists pauses: the one place in a process that does.

    `who` is the caller; None takes the ambient identity. `scopes` are the caller's verified claims; None takes the
    ambient ones for `list`, and none for the other verbs.
    """

    async def request(self, request: PauseRequest) -> Pause:
        """Open a pause.

        Raises:
            IdentityRequiredError, InvalidReasonError, InvalidDecisionError, InvalidDeadlineError: in this order.
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
        """Settle a pause. Exactly one caller ever does; its owner may, and an admin of its tenant.

        `sealed` reaches whoever waits for the pause, and nobody else.

        Raises:
            InvalidDecisionError, IdentityRequiredError, PauseNotFoundError, AlreadyResumedError, ScopeMismatchError:
                in this order. Who may see the pause learns how it was settled, when and by whom.
            ToolContextLostError: the run needs a live handle that this process does not hold; the pause stays open.
            UnserializableError: the payload cannot be kept; the pause stays open.
            DatabaseError, StoreError: the store refused; the pause stays open.
        """
        ...

    async def withdraw(self, token: str, *, who: Who | None = None) -> bool:
        """Settle a pause that nobody waits for any more, as rejected; False for one that was settled before.

        Raises:
            IdentityRequiredError, PauseNotFoundError, ScopeMismatchError: in this order.
            DatabaseError, StoreError: the store refused; the pause stays open.
        """
        ...

    async def drop_answer(self, token: str, event_id: str) -> None:
        """The answer that was sent with this event id came to nothing: another one may be sent.

        Raises:
            DatabaseError, StoreError: the store refused.
        """
        ...

    async def check_handles(self, token: str) -> None:
        """Accept a pause after which its run could go on in this process.

        Raises:
            PauseNotFoundError: there is no such pause.
            ToolContextLostError: the run needs a live handle that this process does not hold.
        """
        ...

    async def status(self, token: str, *, who: Who | None = None, scopes: frozenset[str] | None = None) -> Pause:
        """The pause as it stands. Without any identity, explicit or ambient, the token itself is the capability.

        Whoever waits here for a pause that another process has settled is woken.

        Raises:
            PauseNotFoundError, ScopeMismatchError: in this order.
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
        """A page of the caller's own pauses; with the admin scope of its tenant's, or the tenants named; newest first.

        Without `scopes` the ambient ones count.

        Raises:
            IdentityRequiredError, InvalidPageError, CrossTenantScopeError, CrossUserScopeError: in this order.
        """
        ...

    async def expire(self, token: str) -> Pause:
        """Settle a pause whose deadline has passed with its default; one that is not due comes back unchanged.

        Raises:
            PauseNotFoundError: there is no such pause.
        """
        ...

    def on_resolved(self, token: str, wake: Callable[[Pause], None]) -> Callable[[], None]:
        """Call `wake` once when the pause is settled, at once if it was; the returned function calls it off."""
        ...
