"""Sessions: conversations that are opened, seen, closed for good, listed, and swept up when they were left.

Read `model` for the values and the rule of the sweeper, `registry` for the verbs, `rows` for how they lie in a store.
"""

from __future__ import annotations

from harborage.sessions.errors import (
    SessionAlreadyOpenError,
    SessionBusRequiredError,
    SessionBusyError,
    SessionClosedError,
    SessionCorruptError,
    SessionError,
    SessionIDReuseError,
    SessionMismatchError,
    SessionNotFoundError,
    SessionRegistryClosedError,
    SessionReopenForbiddenError,
    SessionScopeRequiredError,
    SessionStoreRequiredError,
)
from harborage.sessions.model import (
    Reaped,
    Session,
    SessionFilter,
    SessionInspection,
    SessionLimits,
    SessionPolicy,
    Sweep,
)
from harborage.sessions.registry import FLEET_SCOPES, SessionRegistry
from harborage.sessions.rows import CATALOG_SESSION

__all__ = [
    "CATALOG_SESSION",
    "FLEET_SCOPES",
    "Reaped",
    "Session",
    "SessionAlreadyOpenError",
    "SessionBusRequiredError",
    "SessionBusyError",
    "SessionClosedError",
    "SessionCorruptError",
    "SessionError",
    "SessionFilter",
    "SessionIDReuseError",
    "SessionInspection",
    "SessionLimits",
    "SessionMismatchError",
    "SessionNotFoundError",
    "SessionPolicy",
    "SessionRegistry",
    "SessionRegistryClosedError",
    "SessionReopenForbiddenError",
    "SessionScopeRequiredError",
    "SessionStoreRequiredError",
    "Sweep",
]
