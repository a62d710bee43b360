"""What is kept: records by slot, runs with their entries and controls, and the storage that holds them all.

`store` and `runs` are the ports, `storage` opens everything at once by a url. Drivers load when they are opened.
"""

from __future__ import annotations

from harborage.state.drivers import STATE_DRIVERS, StateConfig, StateFactory, open_state
from harborage.state.errors import (
    DatabaseCorruptError,
    DatabaseError,
    DatabaseFullError,
    DatabaseLockedError,
    DatabaseReadOnlyError,
    DatabaseUnreachableError,
    IdempotencyConflictError,
    IdentityRequiredError,
    InvalidRecordError,
    MigrationChangedError,
    MigrationError,
    NetworkFileSystemError,
    NotFoundError,
    SchemaNewerError,
    StateError,
    StorageUrlError,
    StoreClosedError,
)
from harborage.state.memory import MemoryStateStore
from harborage.state.memory_runs import MemoryRuns
from harborage.state.runs import (
    BodyMismatchError,
    Claim,
    EntryMissingError,
    Lease,
    LeaseLostError,
    RunFilter,
    RunQueue,
    RunRecord,
    RunRecordNotFoundError,
    RunStore,
    RunStoreError,
    Sent,
    Stand,
    Standing,
    Write,
)
from harborage.state.storage import STORAGE_DRIVERS, Storage, StorageFactory, open_storage
from harborage.state.store import StateRecord, StateStore

__all__ = [
    "STATE_DRIVERS",
    "STORAGE_DRIVERS",
    "BodyMismatchError",
    "Claim",
    "DatabaseCorruptError",
    "DatabaseError",
    "DatabaseFullError",
    "DatabaseLockedError",
    "DatabaseReadOnlyError",
    "DatabaseUnreachableError",
    "EntryMissingError",
    "IdempotencyConflictError",
    "IdentityRequiredError",
    "InvalidRecordError",
    "Lease",
    "LeaseLostError",
    "MemoryRuns",
    "MemoryStateStore",
    "MigrationChangedError",
    "MigrationError",
    "NetworkFileSystemError",
    "NotFoundError",
    "RunFilter",
    "RunQueue",
    "RunRecord",
    "RunRecordNotFoundError",
    "RunStore",
    "RunStoreError",
    "SchemaNewerError",
    "Sent",
    "Stand",
    "Standing",
    "StateConfig",
    "StateError",
    "StateFactory",
    "StateRecord",
    "StateStore",
    "Storage",
    "StorageFactory",
    "StorageUrlError",
    "StoreClosedError",
    "Write",
    "open_state",
    "open_storage",
]
