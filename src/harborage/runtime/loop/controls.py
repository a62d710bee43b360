"""The nine controls of a run, who may send which, and the record of an applied control.

Values and one check. A sender's scope is a claim that the edge has verified before; there is no authentication here.
`payload` has the rules of their payloads, `apply` what they do to a run.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any, Final, assert_never

import msgspec

from harborage.identity import Identity, Quadruple
from harborage.runtime.loop.errors import InvalidScopeError, ScopeMismatchError, UnknownControlTypeError


class ControlType(StrEnum):
    """The kinds of control; the value is what travels on the wire."""

    INJECT_CONTEXT = "INJECT_CONTEXT"
    """Give the planner context from an operator, visible at its next step."""
    REDIRECT = "REDIRECT"
    """Give the run another goal."""
    CANCEL = "CANCEL"
    """End the run: at the next step boundary, or at once when hard."""
    PRIORITIZE = "PRIORITIZE"
    """Change the priority of the run's task."""
    PAUSE = "PAUSE"
    """Park the run at the next step boundary."""
    RESUME = "RESUME"
    """Resume a parked run."""
    APPROVE = "APPROVE"
    """Approve the pause that the run waits for."""
    REJECT = "REJECT"
    """Reject the pause that the run waits for."""
    USER_MESSAGE = "USER_MESSAGE"
    """Send the planner a message of the user, visible at its next step."""


class Scope(StrEnum):
    """The power of a caller, weakest first: `SESSION_USER < OWNER_USER < ADMIN`. Compared by power, not by name."""

    SESSION_USER = "session_user"
    """A user who is signed in to the session of the run."""
    OWNER_USER = "owner_user"
    """The user who started the run or owns its agent."""
    ADMIN = "admin"
    """An administrator, across tenants too."""

    @property
    def rank(self) -> int:
        """Its place in the order, from 0."""
        match self:
            case Scope.SESSION_USER:
                return 0
            case Scope.OWNER_USER:
                return 1
            case Scope.ADMIN:
                return 2
            case _ as unreachable:
                assert_never(unreachable)

    def __lt__(self, other: str) -> bool:
        return self.rank < _rank(other)

    def __le__(self, other: str) -> bool:
        return self.rank <= _rank(other)

    def __gt__(self, other: str) -> bool:
        return self.rank > _rank(other)

    def __ge__(self, other: str) -> bool:
        return self.rank >= _rank(other)


def _rank(other: str) -> int:
    # Left to `str`, "admin" < "session_user": a comparison with a plain string must not fall back to the alphabet.
    if isinstance(other, Scope):
        return other.rank
    raise TypeError(f"a Scope compares with a Scope only, not with {type(other).__name__}; convert it with Scope(…)")


class Remember(StrEnum):
    """How long an approval holds beyond the call that it is for."""

    RUN = "run"
    """The same tool, until the run ends."""
    ALWAYS = "always"
    """The same tool with the same arguments, in all runs of the principal."""


ANSWERS: Final = frozenset({ControlType.APPROVE, ControlType.REJECT, ControlType.RESUME})
"""The controls that resolve a pause."""


_TASK_CANCELLED: Final = "task_cancelled"


def control_types() -> list[ControlType]:
    """The nine control types, sorted by name."""
    return sorted(ControlType)


class ControlEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """One control for one run, as a caller submits it.

    `identity` is the run it is for. `event_id` makes it unique within that run: one that comes twice counts once; empty
    makes no such promise. `enqueued_at` belongs to the inbox, which stamps it; leave it None. `by` is the principal who
    sent it, None for one of the runtime's own.
    """

    type: ControlType
    identity: Quadruple
    caller_scope: Scope
    caller_tenant: str
    payload: dict[str, Any] | None = None
    event_id: str = ""
    enqueued_at: datetime | None = None
    by: Identity | None = None


class TaskCancelled(msgspec.Struct, frozen=True):
    """Why the task of a run was cancelled, whether it went along with a task above it, and whether those below it are
    left alone."""

    reason: str = ""
    is_cascaded: bool = False
    is_isolated: bool = False

    def payload(self) -> dict[str, Any]:
        """Return the payload of the CANCEL for the run."""
        cancelled = {"reason": self.reason, "cascaded": self.is_cascaded, "isolated": self.is_isolated}
        return {"hard": True, _TASK_CANCELLED: cancelled}

    @staticmethod
    def of(control: ControlEvent) -> TaskCancelled | None:
        """Return the cancellation of the run's task in a CANCEL; None for one of the run alone."""
        cancelled = (control.payload or {}).get(_TASK_CANCELLED)
        if not isinstance(cancelled, dict):
            return None
        is_cascaded, is_isolated = (cancelled.get(name) is True for name in ("cascaded", "isolated"))
        return TaskCancelled(str(cancelled.get("reason", "")), is_cascaded, is_isolated)


def answered_pause(control: ControlEvent) -> str:
    """Return the token of the pause that a control answers; empty for one that names none."""
    token = (control.payload or {}).get("token") if control.type in ANSWERS else None
    return token if isinstance(token, str) else ""


class AppliedControl(msgspec.Struct, frozen=True):
    """One line of a session's history of applied controls; `err` is why it failed, None if it did not.

    The payload is left out: this is an audit trail, not an archive.
    """

    type: ControlType
    run_id: str
    applied_at: datetime
    err: Exception | None = None


_REQUIRED: dict[str, Scope] = {
    ControlType.INJECT_CONTEXT: Scope.SESSION_USER,
    ControlType.USER_MESSAGE: Scope.SESSION_USER,
    ControlType.REDIRECT: Scope.OWNER_USER,
    ControlType.CANCEL: Scope.OWNER_USER,
    ControlType.PAUSE: Scope.OWNER_USER,
    ControlType.RESUME: Scope.OWNER_USER,
    ControlType.APPROVE: Scope.OWNER_USER,
    ControlType.REJECT: Scope.OWNER_USER,
    ControlType.PRIORITIZE: Scope.ADMIN,
}
_SCOPES: dict[str, Scope] = {scope: scope for scope in Scope}


def required_scope(type: ControlType | str) -> Scope | None:
    """Return the lowest scope that may send a control of this type, or None for a type that is not one of the nine."""
    return _REQUIRED.get(type)


def check_scope(
    type: ControlType | str, caller_scope: Scope | str, caller_tenant: str, run_quadruple: Quadruple
) -> None:
    """Accept a caller who may send this control to this run; another tenant's run takes an admin.

    Raises:
        UnknownControlTypeError, InvalidScopeError, ScopeMismatchError: in this order; an empty tenant is a foreign one.
    """
    required = _REQUIRED.get(type)
    if required is None:
        raise UnknownControlTypeError()
    presented = _SCOPES.get(caller_scope)
    if presented is None:
        raise InvalidScopeError()
    if caller_tenant != run_quadruple.tenant_id and presented is not Scope.ADMIN:
        raise ScopeMismatchError(
            f"steering another tenant's run takes scope {Scope.ADMIN}; the caller has {presented}",
            required=Scope.ADMIN,
            presented=presented,
        )
    if presented < required:
        raise ScopeMismatchError(
            f"{type} takes scope {required}; the caller has {presented}", required=required, presented=presented
        )
