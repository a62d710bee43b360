"""Pauses: work that waits for a person, an event or a deadline, stored so that it outlives the process.

`loop.pauses` has the values, `durable.pauses.coordinator` the order of checks, `rows` the form in the store, `record`
the form of exports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.exports import lazy_exports

if TYPE_CHECKING:
    from harborage.codec import UnserializableError as UnserializableError
    from harborage.identity import IdentityRequiredError as IdentityRequiredError
    from harborage.planner.decisions import PauseReason as PauseReason
    from harborage.planner.errors import ToolContextLostError as ToolContextLostError
    from harborage.runtime.durable.pauses.coordinator import Coordinator as Coordinator
    from harborage.runtime.durable.pauses.errors import AlreadyAnsweredError as AlreadyAnsweredError
    from harborage.runtime.durable.pauses.errors import AlreadyResumedError as AlreadyResumedError
    from harborage.runtime.durable.pauses.errors import CheckpointCorruptError as CheckpointCorruptError
    from harborage.runtime.durable.pauses.errors import CrossTenantScopeError as CrossTenantScopeError
    from harborage.runtime.durable.pauses.errors import InvalidPageError as InvalidPageError
    from harborage.runtime.durable.pauses.errors import InvalidReasonError as InvalidReasonError
    from harborage.runtime.durable.pauses.errors import PauseAmbiguousError as PauseAmbiguousError
    from harborage.runtime.durable.pauses.errors import PauseDecisionError as PauseDecisionError
    from harborage.runtime.durable.pauses.errors import PauseError as PauseError
    from harborage.runtime.durable.pauses.errors import PauseNotFoundError as PauseNotFoundError
    from harborage.runtime.durable.pauses.errors import PauseScopeMismatchError as PauseScopeMismatchError
    from harborage.runtime.durable.pauses.errors import UnsupportedFormatVersionError as UnsupportedFormatVersionError
    from harborage.runtime.durable.pauses.listing import DEFAULT_PAGE_SIZE as DEFAULT_PAGE_SIZE
    from harborage.runtime.durable.pauses.listing import HEAVY_PAYLOAD_BYTES as HEAVY_PAYLOAD_BYTES
    from harborage.runtime.durable.pauses.listing import MAX_PAGE_SIZE as MAX_PAGE_SIZE
    from harborage.runtime.durable.pauses.listing import ProjectedPayload as ProjectedPayload
    from harborage.runtime.durable.pauses.listing import project_payload as project_payload
    from harborage.runtime.durable.pauses.record import FORMAT_VERSION as FORMAT_VERSION
    from harborage.runtime.durable.pauses.record import decode_pause as decode_pause
    from harborage.runtime.durable.pauses.record import encode_pause as encode_pause
    from harborage.runtime.loop.pauses import OPEN as OPEN
    from harborage.runtime.loop.pauses import Pause as Pause
    from harborage.runtime.loop.pauses import PauseDecision as PauseDecision
    from harborage.runtime.loop.pauses import PauseFilter as PauseFilter
    from harborage.runtime.loop.pauses import PausePage as PausePage
    from harborage.runtime.loop.pauses import PauseRequest as PauseRequest
    from harborage.runtime.loop.pauses import PauseState as PauseState
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "harborage.codec": "UnserializableError",
            "harborage.identity": "IdentityRequiredError",
            "harborage.planner.decisions": "PauseReason",
            "harborage.planner.errors": "ToolContextLostError",
            "harborage.runtime.durable.pauses.coordinator": "Coordinator",
            "harborage.runtime.durable.pauses.errors": (
                "AlreadyAnsweredError AlreadyResumedError CheckpointCorruptError CrossTenantScopeError "
                "InvalidPageError InvalidReasonError PauseAmbiguousError "
                "PauseDecisionError PauseError PauseNotFoundError PauseScopeMismatchError UnsupportedFormatVersionError"
            ),
            "harborage.runtime.durable.pauses.listing": (
                "DEFAULT_PAGE_SIZE HEAVY_PAYLOAD_BYTES MAX_PAGE_SIZE ProjectedPayload project_payload"
            ),
            "harborage.runtime.durable.pauses.record": "FORMAT_VERSION decode_pause encode_pause",
            "harborage.runtime.loop.pauses": ("OPEN Pause PauseDecision PauseFilter PausePage PauseRequest PauseState"),
        },
    )
