"""Pauses: work that waits for a person, an event or a deadline, kept so that it outlives the process.

Read `model` for the values and the port, `coordinator` for the order of checks, `record` for the stored form.
"""

from __future__ import annotations

from harborage.runtime.pauses.coordinator import Coordinator
from harborage.runtime.pauses.errors import (
    AlreadyResumedError,
    CheckpointCorruptError,
    CrossTenantScopeError,
    CrossUserScopeError,
    IdentityRequiredError,
    InvalidDeadlineError,
    InvalidDecisionError,
    InvalidPageError,
    InvalidReasonError,
    PauseAmbiguousError,
    PauseError,
    PauseNotFoundError,
    ScopeMismatchError,
    ToolContextLostError,
    UnserializableError,
    UnsupportedFormatVersionError,
)
from harborage.runtime.pauses.ledger import RESOLVED_PER_TENANT
from harborage.runtime.pauses.listing import DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE
from harborage.runtime.pauses.model import (
    OPEN,
    Pause,
    PauseCoordinator,
    PauseDecision,
    PauseFilter,
    PausePage,
    PauseReason,
    PauseRequest,
    PauseState,
)
from harborage.runtime.pauses.projection import HEAVY_PAYLOAD_BYTES, ProjectedPayload, project_payload
from harborage.runtime.pauses.record import FORMAT_VERSION, decode_pause, encode_pause

__all__ = [
    "DEFAULT_PAGE_SIZE",
    "FORMAT_VERSION",
    "HEAVY_PAYLOAD_BYTES",
    "MAX_PAGE_SIZE",
    "OPEN",
    "RESOLVED_PER_TENANT",
    "AlreadyResumedError",
    "CheckpointCorruptError",
    "Coordinator",
    "CrossTenantScopeError",
    "CrossUserScopeError",
    "IdentityRequiredError",
    "InvalidDeadlineError",
    "InvalidDecisionError",
    "InvalidPageError",
    "InvalidReasonError",
    "Pause",
    "PauseAmbiguousError",
    "PauseCoordinator",
    "PauseDecision",
    "PauseError",
    "PauseFilter",
    "PauseNotFoundError",
    "PausePage",
    "PauseReason",
    "PauseRequest",
    "PauseState",
    "ProjectedPayload",
    "ScopeMismatchError",
    "ToolContextLostError",
    "UnserializableError",
    "UnsupportedFormatVersionError",
    "decode_pause",
    "encode_pause",
    "project_payload",
]
