"""Identifiers: ULIDs, 26 characters of Crockford base32 that sort by time of creation."""

from __future__ import annotations

from ulid import ULID


def new_id() -> str:
    """A fresh ULID. Ids made in one process sort in the order they were made, to the millisecond."""
    return str(ULID())
