"""What the suites over a storage share: a fresh storage, and a second way into it.

Part of the suite in `event_log`; a driver's author hands in a `StorageBench` of their own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

from harborage.clock import SYSTEM_CLOCK
from harborage.state.memory_storage import open_memory

if TYPE_CHECKING:
    from harborage.state.storage import Storage

__all__ = ["MemoryStorageBench", "OpenStorageBench", "StorageBench", "open_memory_bench"]


class StorageBench(Protocol):
    """A fresh, empty storage and what a test needs around it. The storage reads the system's clock."""

    storage: Storage

    async def another(self) -> Storage:
        """A second connection to the same data, as another process would have it; the same one where there is none."""
        ...

    async def aclose(self) -> None:
        """Close every connection that was handed out, and remove the data."""
        ...


OpenStorageBench: TypeAlias = Callable[[], Awaitable[StorageBench]]


class MemoryStorageBench:
    """The bench of the storage in memory, which has one connection."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    async def another(self) -> Storage:
        return self.storage

    async def aclose(self) -> None:
        await self.storage.aclose()


async def open_memory_bench() -> StorageBench:
    """The bench of a fresh storage in memory."""
    return MemoryStorageBench(await open_memory("memory:", SYSTEM_CLOCK))
