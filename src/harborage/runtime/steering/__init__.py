"""Steering: what one can say to a run while it works, who may say it, the inbox it goes through, and the run loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.clock import Clock
from harborage.events import ControlLifecyclePayload, ControlRejectedPayload
from harborage.runtime.steering.controls import AppliedControl, ControlEvent, ControlType, Scope, control_types
from harborage.runtime.steering.errors import (
    DecisionShapeUnsupportedError,
    IdentityRequiredError,
    InboxExistsError,
    InboxNotFoundError,
    InvalidScopeError,
    MaxStepsExceededError,
    NoOutstandingPauseError,
    NoPlannerError,
    PayloadInvalidError,
    RunCancelledError,
    RunLoopMisconfiguredError,
    ScopeMismatchError,
    SteeringError,
    UnknownControlTypeError,
    UnsupportedPayloadValueError,
)
from harborage.runtime.steering.history import MAX_CONTROL_HISTORY, ControlHistory
from harborage.runtime.steering.inbox import Inbox, InboxRegistry
from harborage.runtime.steering.payload import (
    MAX_PAYLOAD_DEPTH,
    MAX_PAYLOAD_KEYS,
    MAX_PAYLOAD_LIST_ITEMS,
    MAX_PAYLOAD_STRING_LEN,
    MAX_PAYLOAD_TOTAL_BYTES,
    validate_payload,
)
from harborage.runtime.steering.rejection import RejectionReason, emit_rejection, rejection_reason
from harborage.runtime.steering.run_spec import DEFAULT_MAX_STEPS, RunSpec, ToolExecutor
from harborage.runtime.steering.scopes import check_scope, required_scope
from harborage.runtime.steering.state import ControlErrors

if TYPE_CHECKING:
    from harborage.runtime.steering.run_loop import RunLoop as RunLoop

__all__ = [
    "DEFAULT_MAX_STEPS",
    "MAX_CONTROL_HISTORY",
    "MAX_PAYLOAD_DEPTH",
    "MAX_PAYLOAD_KEYS",
    "MAX_PAYLOAD_LIST_ITEMS",
    "MAX_PAYLOAD_STRING_LEN",
    "MAX_PAYLOAD_TOTAL_BYTES",
    "AppliedControl",
    "Clock",
    "ControlErrors",
    "ControlEvent",
    "ControlHistory",
    "ControlLifecyclePayload",
    "ControlRejectedPayload",
    "ControlType",
    "DecisionShapeUnsupportedError",
    "IdentityRequiredError",
    "Inbox",
    "InboxExistsError",
    "InboxNotFoundError",
    "InboxRegistry",
    "InvalidScopeError",
    "MaxStepsExceededError",
    "NoOutstandingPauseError",
    "NoPlannerError",
    "PayloadInvalidError",
    "RejectionReason",
    "RunCancelledError",
    "RunLoop",
    "RunLoopMisconfiguredError",
    "RunSpec",
    "Scope",
    "ScopeMismatchError",
    "SteeringError",
    "ToolExecutor",
    "UnknownControlTypeError",
    "UnsupportedPayloadValueError",
    "check_scope",
    "control_types",
    "emit_rejection",
    "rejection_reason",
    "required_scope",
    "validate_payload",
]


def __getattr__(name: str) -> object:
    """`RunLoop`, which stands on everything else in the runtime and is imported when it is first asked for."""
    if name != "RunLoop":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from harborage.runtime.steering.run_loop import RunLoop

    return RunLoop
