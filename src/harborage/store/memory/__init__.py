"""The store of record in this process's memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.exports import lazy_exports

if TYPE_CHECKING:
    from harborage.store.memory.store import MemoryStore as MemoryStore
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "harborage.store.memory.store": "MemoryStore",
        },
    )
