"""Steering: the controls of a run, who may send them, the inbox that they go through, and the run loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.exports import lazy_exports

if TYPE_CHECKING:
    from harborage.clock import Clock as Clock
    from harborage.events.payloads.control import ControlLifecyclePayload as ControlLifecyclePayload
    from harborage.events.payloads.control import ControlRejectedPayload as ControlRejectedPayload
    from harborage.identity import IdentityRequiredError as IdentityRequiredError
    from harborage.runtime.durable.inbox import Inbox as Inbox
    from harborage.runtime.durable.inbox import InboxRegistry as InboxRegistry
    from harborage.runtime.durable.inbox import RejectionReason as RejectionReason
    from harborage.runtime.durable.inbox import emit_rejection as emit_rejection
    from harborage.runtime.durable.inbox import rejection_reason as rejection_reason
    from harborage.runtime.effects.control_history import MAX_CONTROL_HISTORY as MAX_CONTROL_HISTORY
    from harborage.runtime.effects.control_history import ControlHistory as ControlHistory
    from harborage.runtime.loop.controls import AppliedControl as AppliedControl
    from harborage.runtime.loop.controls import ControlEvent as ControlEvent
    from harborage.runtime.loop.controls import ControlType as ControlType
    from harborage.runtime.loop.controls import Scope as Scope
    from harborage.runtime.loop.controls import check_scope as check_scope
    from harborage.runtime.loop.controls import control_types as control_types
    from harborage.runtime.loop.controls import required_scope as required_scope
    from harborage.runtime.loop.errors import DecisionShapeUnsupportedError as DecisionShapeUnsupportedError
    from harborage.runtime.loop.errors import InboxExistsError as InboxExistsError
    from harborage.runtime.loop.errors import InboxFullError as InboxFullError
    from harborage.runtime.loop.errors import InboxNotFoundError as InboxNotFoundError
    from harborage.runtime.loop.errors import InvalidScopeError as InvalidScopeError
    from harborage.runtime.loop.errors import MaxStepsExceededError as MaxStepsExceededError
    from harborage.runtime.loop.errors import NoOutstandingPauseError as NoOutstandingPauseError
    from harborage.runtime.loop.errors import NoPlannerError as NoPlannerError
    from harborage.runtime.loop.errors import PayloadInvalidError as PayloadInvalidError
    from harborage.runtime.loop.errors import RunCancelledError as RunCancelledError
    from harborage.runtime.loop.errors import RunLoopMisconfiguredError as RunLoopMisconfiguredError
    from harborage.runtime.loop.errors import ScopeMismatchError as ScopeMismatchError
    from harborage.runtime.loop.errors import SteeringError as SteeringError
    from harborage.runtime.loop.errors import UnknownControlTypeError as UnknownControlTypeError
    from harborage.runtime.loop.errors import UnsupportedPayloadValueError as UnsupportedPayloadValueError
    from harborage.runtime.loop.payload import MAX_PAYLOAD_DEPTH as MAX_PAYLOAD_DEPTH
    from harborage.runtime.loop.payload import MAX_PAYLOAD_KEYS as MAX_PAYLOAD_KEYS
    from harborage.runtime.loop.payload import MAX_PAYLOAD_LIST_ITEMS as MAX_PAYLOAD_LIST_ITEMS
    from harborage.runtime.loop.payload import MAX_PAYLOAD_STRING_LEN as MAX_PAYLOAD_STRING_LEN
    from harborage.runtime.loop.payload import MAX_PAYLOAD_TOTAL_BYTES as MAX_PAYLOAD_TOTAL_BYTES
    from harborage.runtime.loop.payload import validate_payload as validate_payload
    from harborage.runtime.loop.run_spec import DEFAULT_MAX_STEPS as DEFAULT_MAX_STEPS
    from harborage.runtime.loop.run_spec import RunSpec as RunSpec
    from harborage.runtime.loop.run_spec import ToolExecutor as ToolExecutor
    from harborage.runtime.loop.state import ControlErrors as ControlErrors
    from harborage.runtime.run_loop import RunLoop as RunLoop
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "harborage.clock": "Clock",
            "harborage.events.payloads.control": "ControlLifecyclePayload ControlRejectedPayload",
            "harborage.identity": "IdentityRequiredError",
            "harborage.runtime.durable.inbox": "Inbox InboxRegistry RejectionReason emit_rejection rejection_reason",
            "harborage.runtime.effects.control_history": "ControlHistory MAX_CONTROL_HISTORY",
            "harborage.runtime.loop.controls": (
                "AppliedControl ControlEvent ControlType Scope check_scope control_types required_scope"
            ),
            "harborage.runtime.loop.errors": (
                "DecisionShapeUnsupportedError InboxExistsError InboxFullError InboxNotFoundError "
                "InvalidScopeError MaxStepsExceededError NoOutstandingPauseError NoPlannerError "
                "PayloadInvalidError RunCancelledError RunLoopMisconfiguredError ScopeMismatchError SteeringError "
                "UnknownControlTypeError UnsupportedPayloadValueError"
            ),
            "harborage.runtime.loop.payload": (
                "MAX_PAYLOAD_DEPTH MAX_PAYLOAD_KEYS MAX_PAYLOAD_LIST_ITEMS MAX_PAYLOAD_STRING_LEN "
                "MAX_PAYLOAD_TOTAL_BYTES validate_payload"
            ),
            "harborage.runtime.loop.run_spec": "DEFAULT_MAX_STEPS RunSpec ToolExecutor",
            "harborage.runtime.loop.state": "ControlErrors",
            "harborage.runtime.run_loop": "RunLoop",
        },
    )
