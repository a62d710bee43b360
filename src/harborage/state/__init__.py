"""Records by slot: the latest state of each kind for each run, behind a port of five methods."""

from __future__ import annotations

from harborage.state.drivers import STATE_DRIVERS, StateConfig, StateFactory, open_state
from harborage.state.errors import (
    IdempotencyConflictError,
    IdentityRequiredError,
    InvalidRecordError,
    NotFoundError,
    StateError,
    StoreClosedError,
)
from harborage.state.memory import MemoryStateStore
from harborage.state.store import StateRecord, StateStore

__all__ = [
    "STATE_DRIVERS",
    "IdempotencyConflictError",
    "IdentityRequiredError",
    "InvalidRecordError",
    "MemoryStateStore",
    "NotFoundError",
    "StateConfig",
    "StateError",
    "StateFactory",
    "StateRecord",
    "StateStore",
    "StoreClosedError",
    "open_state",
]
