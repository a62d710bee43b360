"""What a session remembers of its earlier turns: strategies, sizes, health, over the key-value state store."""

from __future__ import annotations

from harborage.memory.errors import (
    InvalidSnapshotError,
    MemoryClosedError,
    MemoryConfigError,
    MemoryCorruptError,
    MemoryHealthError,
    MemoryIdentityError,
    SessionMemoryError,
)
from harborage.memory.health import HealthReason
from harborage.memory.store import STATE_KIND, ConversationSummariser, SessionMemory
from harborage.memory.values import (
    VERBATIM_TURNS,
    Memory,
    MemoryHealth,
    MemoryPatch,
    MemorySnapshot,
    MemoryStrategy,
    Turn,
    TurnDigest,
)

__all__ = [
    "STATE_KIND",
    "VERBATIM_TURNS",
    "ConversationSummariser",
    "HealthReason",
    "InvalidSnapshotError",
    "Memory",
    "MemoryClosedError",
    "MemoryConfigError",
    "MemoryCorruptError",
    "MemoryHealth",
    "MemoryHealthError",
    "MemoryIdentityError",
    "MemoryPatch",
    "MemorySnapshot",
    "MemoryStrategy",
    "SessionMemory",
    "SessionMemoryError",
    "Turn",
    "TurnDigest",
]
