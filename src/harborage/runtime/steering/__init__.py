"""Steering: the controls of a run, who may send them, the inbox that they go through, and the run loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.exports import lazy_exports

if TYPE_CHECKING:
    from harborage.clock import Clock as Clock
    from harborage.events.payloads.control import ControlLifecyclePayload as ControlLifecyclePayload
    from harborage.events.payloads.control import ControlRejectedPayload as ControlRejectedPayload
    from harborage.identity import IdentityRequiredError as IdentityRequiredError
    from harborage.runtime.steering.controls import AppliedControl as AppliedControl
    from harborage.runtime.steering.controls import ControlEvent as ControlEvent
    from harborage.runtime.steering.controls import ControlType as ControlType
    from harborage.runtime.steering.controls import Scope as Scope
    from harborage.runtime.steering.controls import control_types as control_types
    from harborage.runtime.steering.errors import DecisionShapeUnsupportedError as DecisionShapeUnsupportedError
    from harborage.runtime.steering.errors import InboxExistsError as InboxExistsError
    from harborage.runtime.steering.errors import InboxFullError as InboxFullError
    from harborage.runtime.steering.errors import InboxNotFoundError as InboxNotFoundError
    from harborage.runtime.steering.errors import InvalidScopeError as InvalidScopeError
    from harborage.runtime.steering.errors import MaxStepsExceededError as MaxStepsExceededError
    from harborage.runtime.steering.errors import NoOutstandingPauseError as NoOutstandingPauseError
    from harborage.runtime.steering.errors import NoPlannerError as NoPlannerError
    from harborage.runtime.steering.errors import PayloadInvalidError as PayloadInvalidError
    from harborage.runtime.steering.errors import RunCancelledError as RunCancelledError
    from harborage.runtime.steering.errors import RunLoopMisconfiguredError as RunLoopMisconfiguredError
    from harborage.runtime.steering.errors import ScopeMismatchError as ScopeMismatchError
    from harborage.runtime.steering.errors import SteeringError as SteeringError
    from harborage.runtime.steering.errors import UnknownControlTypeError as UnknownControlTypeError
    from harborage.runtime.steering.errors import UnsupportedPayloadValueError as UnsupportedPayloadValueError
    from harborage.runtime.steering.history import MAX_CONTROL_HISTORY as MAX_CONTROL_HISTORY
    from harborage.runtime.steering.history import ControlHistory as ControlHistory
    from harborage.runtime.steering.inbox import Inbox as Inbox
    from harborage.runtime.steering.inbox import InboxRegistry as InboxRegistry
    from harborage.runtime.steering.payload import MAX_PAYLOAD_DEPTH as MAX_PAYLOAD_DEPTH
    from harborage.runtime.steering.payload import MAX_PAYLOAD_KEYS as MAX_PAYLOAD_KEYS
    from harborage.runtime.steering.payload import MAX_PAYLOAD_LIST_ITEMS as MAX_PAYLOAD_LIST_ITEMS
    from harborage.runtime.steering.payload import MAX_PAYLOAD_STRING_LEN as MAX_PAYLOAD_STRING_LEN
    from harborage.runtime.steering.payload import MAX_PAYLOAD_TOTAL_BYTES as MAX_PAYLOAD_TOTAL_BYTES
    from harborage.runtime.steering.payload import validate_payload as validate_payload
    from harborage.runtime.steering.rejection import RejectionReason as RejectionReason
    from harborage.runtime.steering.rejection import emit_rejection as emit_rejection
    from harborage.runtime.steering.rejection import rejection_reason as rejection_reason
    from harborage.runtime.steering.run_loop import RunLoop as RunLoop
    from harborage.runtime.steering.run_spec import DEFAULT_MAX_STEPS as DEFAULT_MAX_STEPS
    from harborage.runtime.steering.run_spec import RunSpec as RunSpec
    from harborage.runtime.steering.run_spec import ToolExecutor as ToolExecutor
    from harborage.runtime.steering.scopes import check_scope as check_scope
    from harborage.runtime.steering.scopes import required_scope as required_scope
    from harborage.runtime.steering.state import ControlErrors as ControlErrors
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "harborage.clock": "Clock",
            "harborage.events.payloads.control": "ControlLifecyclePayload ControlRejectedPayload",
            "harborage.identity": "IdentityRequiredError",
            "harborage.runtime.steering.controls": "AppliedControl ControlEvent ControlType Scope control_types",
            "harborage.runtime.steering.errors": (
                "DecisionShapeUnsupportedError InboxExistsError InboxFullError InboxNotFoundError "
                "InvalidScopeError MaxStepsExceededError NoOutstandingPauseError NoPlannerError "
                "PayloadInvalidError RunCancelledError RunLoopMisconfiguredError ScopeMismatchError SteeringError "
                "UnknownControlTypeError UnsupportedPayloadValueError"
            ),
            "harborage.runtime.steering.history": "ControlHistory MAX_CONTROL_HISTORY",
            "harborage.runtime.steering.inbox": "Inbox InboxRegistry",
            "harborage.runtime.steering.payload": (
                "MAX_PAYLOAD_DEPTH MAX_PAYLOAD_KEYS MAX_PAYLOAD_LIST_ITEMS MAX_PAYLOAD_STRING_LEN "
                "MAX_PAYLOAD_TOTAL_BYTES validate_payload"
            ),
            "harborage.runtime.steering.rejection": "RejectionReason emit_rejection rejection_reason",
            "harborage.runtime.steering.run_loop": "RunLoop",
            "harborage.runtime.steering.run_spec": "DEFAULT_MAX_STEPS RunSpec ToolExecutor",
            "harborage.runtime.steering.scopes": "check_scope required_scope",
            "harborage.runtime.steering.state": "ControlErrors",
        },
    )
