"""The store of record in one SQLite file: nothing to install or to start, and several processes may share it."""

from __future__ import annotations

from harborage.store.sqlite.store import SQLiteStore

__all__ = ["SQLiteStore"]
