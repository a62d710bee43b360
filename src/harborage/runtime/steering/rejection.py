"""The audit of controls that an inbox refused: one `control.rejected` event each.

The event has texts of our own only: the caller's payload was refused, so none of it is quoted.
"""

from __future__ import annotations

from enum import StrEnum

from harborage.events import ControlRejectedPayload, Event, EventBus, EventType
from harborage.identity import IdentityError, Quadruple
from harborage.runtime.steering.controls import ControlType, Scope
from harborage.runtime.steering.errors import (
    InvalidScopeError,
    ScopeMismatchError,
    SteeringError,
    UnknownControlTypeError,
)

_TYPES = frozenset(ControlType)
_SCOPES = frozenset(Scope)


class RejectionReason(StrEnum):
    """The reason in the event of a refused control."""

    UNKNOWN_TYPE = "unknown_type"
    SCOPE_MISMATCH = "scope_mismatch"
    IDENTITY_INVALID = "identity_invalid"
    PAYLOAD_INVALID = "payload_invalid"


def rejection_reason(error: BaseException) -> RejectionReason:
    """Return the reason for `error`, or for its cause if the error itself has none."""
    link: BaseException | None = error
    while link is not None:
        match link:
            case UnknownControlTypeError():
                return RejectionReason.UNKNOWN_TYPE
            case ScopeMismatchError() | InvalidScopeError():
                return RejectionReason.SCOPE_MISMATCH
            case IdentityError():
                return RejectionReason.IDENTITY_INVALID
            case _:
                link = link.__cause__
    return RejectionReason.PAYLOAD_INVALID


async def emit_rejection(
    bus: EventBus | None,
    run_quadruple: Quadruple,
    type: ControlType | str,
    caller_scope: Scope | str,
    error: BaseException | None,
) -> Event:
    """Publish `control.rejected` for the run, and return the event as it was published.

    A type or scope that is not one of ours is reported as the empty string.

    Raises:
        SteeringError: there is no bus, or no error to report.
        EventError: the bus refused the event; whether that fails the request is the caller's decision.
    """
    if bus is None:
        raise SteeringError("cannot report a refused control: no event bus was given")
    if error is None:
        raise SteeringError("cannot report a refused control: no error was given")
    payload = ControlRejectedPayload(
        type=str(type) if type in _TYPES else "",
        reason=str(rejection_reason(error)),
        caller_scope=str(caller_scope) if caller_scope in _SCOPES else "",
    )
    return await bus.publish(Event(type=EventType.CONTROL_REJECTED, identity=run_quadruple, payload=payload))
