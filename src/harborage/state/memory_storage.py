"""A storage in memory: every part of it ends with the process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.artifacts.memory import MemoryArtifactStore
from harborage.state.errors import StorageUrlError
from harborage.state.memory import MemoryStateStore
from harborage.state.storage import Storage
from harborage.store.memory import MemoryStore

if TYPE_CHECKING:
    from harborage.clock import Timers


async def open_memory(url: str, clock: Timers) -> Storage:
    """An empty storage of its own.

    Raises:
        StorageUrlError: something follows `memory:`.
    """
    if url.partition(":")[2]:
        raise StorageUrlError(f"nothing may follow memory: in {url!r}; a file is sqlite:PATH")
    return Storage(
        state=MemoryStateStore(clock=clock),
        store=MemoryStore(clock=clock),
        artifacts=MemoryArtifactStore(),
    )
