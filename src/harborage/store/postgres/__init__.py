"""The store of record in Postgres, for processes on several machines: a change is one call, and one transaction.

Needs the extra `postgres`, which is imported when a store is opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.exports import lazy_exports

if TYPE_CHECKING:
    from harborage.store.postgres.store import PostgresStore as PostgresStore
    from harborage.store.postgres.workers import LEASE as LEASE
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "harborage.store.postgres.store": "PostgresStore",
            "harborage.store.postgres.workers": "LEASE",
        },
    )
