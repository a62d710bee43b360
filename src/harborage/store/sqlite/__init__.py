"""The store of record in one SQLite file: nothing to install or to start, and several processes may share it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.exports import lazy_exports

if TYPE_CHECKING:
    from harborage.store.sqlite.database import Database as Database
    from harborage.store.sqlite.store import SQLiteStore as SQLiteStore
    from harborage.store.sqlite.workers import LEASE as LEASE
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "harborage.store.sqlite.database": "Database",
            "harborage.store.sqlite.store": "SQLiteStore",
            "harborage.store.sqlite.workers": "LEASE",
        },
    )
