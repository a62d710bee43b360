"""The audit event of a refused control."""

from __future__ import annotations

import pytest

from harborage.events import (
    BusClosedError,
    ControlRejectedPayload,
    Event,
    EventType,
    Filter,
    MemoryEventBus,
)
from harborage.identity import IdentityIncompleteError, IdentityRequiredError, Quadruple
from harborage.runtime.steering import (
    ControlType,
    InboxNotFoundError,
    InvalidScopeError,
    PayloadInvalidError,
    RejectionReason,
    Scope,
    ScopeMismatchError,
    SteeringError,
    UnknownControlTypeError,
    UnsupportedPayloadValueError,
    emit_rejection,
    rejection_reason,
)
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

RUN = Quadruple("t", "u", "s", "r")


def caused(cause: Exception) -> Exception:
    """An error that says nothing by itself, raised because of `cause`."""
    error = RuntimeError("submitting failed")
    error.__cause__ = cause
    return error


@each_row(
    "error, reason",
    [
        (UnknownControlTypeError(), "unknown_type"),
        (ScopeMismatchError(), "scope_mismatch"),
        (InvalidScopeError(), "scope_mismatch"),
        (IdentityRequiredError(), "identity_invalid"),
        (IdentityIncompleteError(), "identity_invalid"),
        (PayloadInvalidError(), "payload_invalid"),
        (UnsupportedPayloadValueError(), "payload_invalid"),
        (InboxNotFoundError(), "payload_invalid"),
        (ValueError(), "payload_invalid"),
        (caused(ScopeMismatchError()), "scope_mismatch"),
        (caused(caused(IdentityRequiredError())), "identity_invalid"),
        (caused(ValueError()), "payload_invalid"),
    ],
)
def test_an_error_has_one_reason(error: Exception, reason: str) -> None:
    """The reason comes from an error's type, or from its cause; everything unknown counts as a bad payload."""
    assert rejection_reason(error) == reason
    assert rejection_reason(error) in RejectionReason


async def test_a_rejection_is_published_for_the_run() -> None:
    """The run's subscribers see which control was refused, why, and with which scope it came."""
    bus = MemoryEventBus()
    subscription = bus.subscribe(Filter.of(RUN, types=(EventType.CONTROL_REJECTED,)))
    published = await emit_rejection(bus, RUN, ControlType.CANCEL, Scope.SESSION_USER, ScopeMismatchError())
    event = await anext(aiter(subscription))
    assert event == published
    assert event.identity == RUN
    assert event.payload == ControlRejectedPayload(type="CANCEL", reason="scope_mismatch", caller_scope="session_user")
    await bus.aclose()


async def test_words_of_the_caller_are_not_repeated() -> None:
    """An unknown type, an unknown scope and the text of the error stay out of the event."""
    bus = MemoryEventBus()
    event = await emit_rejection(bus, RUN, "s3cret", "s3cret", UnknownControlTypeError("s3cret"))
    assert event.payload == ControlRejectedPayload(type="", reason="unknown_type", caller_scope="")
    assert "s3cret" not in repr(event)
    await bus.aclose()


async def test_reporting_needs_a_bus_and_an_error() -> None:
    """A report that cannot be made is an error of its own, never a silent nothing."""
    bus = MemoryEventBus()
    with pytest.raises(SteeringError, match="bus"):
        await emit_rejection(None, RUN, ControlType.CANCEL, Scope.ADMIN, ScopeMismatchError())
    with pytest.raises(SteeringError, match="error"):
        await emit_rejection(bus, RUN, ControlType.CANCEL, Scope.ADMIN, None)
    await bus.aclose()


async def test_a_bus_that_refuses_fails_the_call() -> None:
    """Whatever the bus raises reaches the caller: a closed bus, or an identity that is no identity."""
    bus = MemoryEventBus()
    with pytest.raises(IdentityRequiredError):
        await emit_rejection(bus, Quadruple("t", "u"), ControlType.CANCEL, Scope.ADMIN, IdentityRequiredError())
    await bus.aclose()
    with pytest.raises(BusClosedError):
        await emit_rejection(bus, RUN, ControlType.CANCEL, Scope.ADMIN, ScopeMismatchError())


def test_the_event_is_the_buss_own_kind() -> None:
    """The payload of `control.rejected` needs no redaction."""
    event = Event(EventType.CONTROL_REJECTED, RUN, ControlRejectedPayload(type="", reason="unknown_type"))
    assert event.type == "control.rejected"
