"""The store of record in this process's memory."""

from __future__ import annotations

from harborage.store.memory.store import MemoryStore

__all__ = ["MemoryStore"]
