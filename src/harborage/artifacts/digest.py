"""The SHA-256 of content, and where to compute it so that the event loop is not held up."""

from __future__ import annotations

import asyncio
import hashlib

__all__ = ["sha256_hex", "sha256_of"]

# About a quarter of a millisecond of hashing; a thread hop costs a good part of that.
_INLINE_BYTES = 256 * 1024


def sha256_hex(data: bytes) -> str:
    """The 64 hex digits of `data`."""
    return hashlib.sha256(data).hexdigest()


async def sha256_of(data: bytes) -> str:
    """The 64 hex digits of `data`; large data is hashed in a thread."""
    if len(data) <= _INLINE_BYTES:
        return sha256_hex(data)
    return await asyncio.to_thread(sha256_hex, data)
