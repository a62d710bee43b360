"""The memory of a session's earlier turns: strategies, sizes and health, over the key-value state store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.exports import lazy_exports

if TYPE_CHECKING:
    from harborage.memory.state import HealthReason as HealthReason
    from harborage.memory.store import STATE_KIND as STATE_KIND
    from harborage.memory.store import ConversationSummariser as ConversationSummariser
    from harborage.memory.store import SessionMemory as SessionMemory
    from harborage.memory.values import VERBATIM_TURNS as VERBATIM_TURNS
    from harborage.memory.values import InvalidSnapshotError as InvalidSnapshotError
    from harborage.memory.values import Memory as Memory
    from harborage.memory.values import MemoryClosedError as MemoryClosedError
    from harborage.memory.values import MemoryCorruptError as MemoryCorruptError
    from harborage.memory.values import MemoryHealth as MemoryHealth
    from harborage.memory.values import MemoryHealthError as MemoryHealthError
    from harborage.memory.values import MemoryIdentityError as MemoryIdentityError
    from harborage.memory.values import MemoryPatch as MemoryPatch
    from harborage.memory.values import MemorySnapshot as MemorySnapshot
    from harborage.memory.values import MemoryStrategy as MemoryStrategy
    from harborage.memory.values import SessionMemoryError as SessionMemoryError
    from harborage.memory.values import Turn as Turn
    from harborage.memory.values import TurnDigest as TurnDigest
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "harborage.memory.state": "HealthReason",
            "harborage.memory.store": "ConversationSummariser STATE_KIND SessionMemory",
            "harborage.memory.values": (
                "InvalidSnapshotError Memory MemoryClosedError MemoryCorruptError MemoryHealth MemoryHealthError "
                "MemoryIdentityError MemoryPatch MemorySnapshot MemoryStrategy SessionMemoryError Turn TurnDigest "
                "VERBATIM_TURNS"
            ),
        },
    )
