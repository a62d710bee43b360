"""What is kept: records by slot, and the storage that holds them, runs, events and artifacts.

`store` is the port, `storage` opens everything at once by a url. Drivers load when they are opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.exports import lazy_exports

if TYPE_CHECKING:
    from harborage.identity import IdentityRequiredError as IdentityRequiredError
    from harborage.state.errors import AnswerLostError as AnswerLostError
    from harborage.state.errors import DatabaseCorruptError as DatabaseCorruptError
    from harborage.state.errors import DatabaseError as DatabaseError
    from harborage.state.errors import DatabaseFullError as DatabaseFullError
    from harborage.state.errors import DatabaseLockedError as DatabaseLockedError
    from harborage.state.errors import DatabasePlaceError as DatabasePlaceError
    from harborage.state.errors import DatabaseReadOnlyError as DatabaseReadOnlyError
    from harborage.state.errors import DatabaseUnreachableError as DatabaseUnreachableError
    from harborage.state.errors import EventIdConflictError as EventIdConflictError
    from harborage.state.errors import InvalidRecordError as InvalidRecordError
    from harborage.state.errors import MigrationChangedError as MigrationChangedError
    from harborage.state.errors import MigrationError as MigrationError
    from harborage.state.errors import RecordNotFoundError as RecordNotFoundError
    from harborage.state.errors import SchemaNewerError as SchemaNewerError
    from harborage.state.errors import StateError as StateError
    from harborage.state.errors import StorageUrlError as StorageUrlError
    from harborage.state.errors import StoreClosedError as StoreClosedError
    from harborage.state.memory import MemoryStateStore as MemoryStateStore
    from harborage.state.storage import STORAGE_DRIVERS as STORAGE_DRIVERS
    from harborage.state.storage import Storage as Storage
    from harborage.state.storage import StorageFactory as StorageFactory
    from harborage.state.storage import open_storage as open_storage
    from harborage.state.store import STATE_DRIVERS as STATE_DRIVERS
    from harborage.state.store import StateConfig as StateConfig
    from harborage.state.store import StateFactory as StateFactory
    from harborage.state.store import StateRecord as StateRecord
    from harborage.state.store import StateStore as StateStore
    from harborage.state.store import SwappingStateStore as SwappingStateStore
    from harborage.state.store import open_state as open_state
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "harborage.identity": "IdentityRequiredError",
            "harborage.state.errors": (
                "AnswerLostError DatabaseCorruptError DatabaseError DatabaseFullError DatabaseLockedError "
                "DatabasePlaceError DatabaseReadOnlyError DatabaseUnreachableError EventIdConflictError "
                "InvalidRecordError MigrationChangedError MigrationError RecordNotFoundError SchemaNewerError "
                "StateError StorageUrlError StoreClosedError"
            ),
            "harborage.state.memory": "MemoryStateStore",
            "harborage.state.storage": "STORAGE_DRIVERS Storage StorageFactory open_storage",
            "harborage.state.store": (
                "STATE_DRIVERS StateConfig StateFactory StateRecord StateStore SwappingStateStore open_state"
            ),
        },
    )
