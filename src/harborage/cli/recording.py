"""A journal, or a store of runs, that tells what is written to it: a view can follow the record while it grows."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence

from harborage.runtime.journal import Journal
from harborage.state.runs import Lease, RunFilter, RunRecord, RunStore, Write
from harborage.state.storage import Storage

__all__ = ["WatchedJournal", "WatchedRuns", "watched"]


class WatchedJournal:
    """`inner` with a listener: told the run and the entries once they are kept. Never: delays or changes one."""

    def __init__(self, inner: Journal, on_entries: Callable[[str, Sequence[bytes]], None]) -> None:
        self._inner = inner
        self._on_entries = on_entries

    async def append(self, run_id: str, entries: Sequence[bytes]) -> None:
        await self._inner.append(run_id, entries)
        self._on_entries(run_id, entries)

    async def read(self, run_id: str) -> list[bytes]:
        return await self._inner.read(run_id)

    async def runs(self) -> list[str]:
        return await self._inner.runs()

    async def forget(self, run_id: str) -> None:
        await self._inner.forget(run_id)


class WatchedRuns:
    """`inner` with a listener, like `WatchedJournal`; a large value of an entry is told by its digest."""

    def __init__(self, inner: RunStore, on_entries: Callable[[str, Sequence[bytes]], None]) -> None:
        self._inner = inner
        self._on_entries = on_entries

    async def create(self, record: RunRecord, write: Write) -> bool:
        is_new = await self._inner.create(record, write)
        if is_new and write.entries:
            self._on_entries(record.run_id, write.entries)
        return is_new

    async def append(self, lease: Lease, write: Write) -> None:
        await self._inner.append(lease, write)
        if write.entries:
            self._on_entries(lease.run_id, write.entries)

    async def read(self, run_id: str, *, after: int = 0) -> builtins.list[bytes]:
        return await self._inner.read(run_id, after=after)

    async def body(self, run_id: str, digest: str) -> bytes:
        return await self._inner.body(run_id, digest)

    async def list(self, filter: RunFilter, *, after: str = "", limit: int = 100) -> builtins.list[RunRecord]:
        return await self._inner.list(filter, after=after, limit=limit)

    async def forget(self, run_id: str) -> None:
        await self._inner.forget(run_id)

    async def aclose(self) -> None:
        await self._inner.aclose()


def watched(storage: Storage, on_entries: Callable[[str, Sequence[bytes]], None]) -> Storage:
    """The same storage, with a listener to what is recorded of runs; closing it closes `storage`."""
    runs = WatchedRuns(storage.runs, on_entries)
    return Storage(state=storage.state, runs=runs, queue=storage.queue, events=storage.events, beneath=storage)
