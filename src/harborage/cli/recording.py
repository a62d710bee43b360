"""A store of runs that tells what is written to it, entry by entry: a view can follow a record while it grows."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from harborage.runtime.engines.bodies import filled
from harborage.runtime.journal import Entry, decode_entry
from harborage.state.storage import Storage

if TYPE_CHECKING:
    from harborage.state.runs import Lease, RunFilter, RunRecord, RunStore, Write

__all__ = ["OnEntries", "WatchedRuns", "watched"]

OnEntries: TypeAlias = Callable[[str, int, Sequence[Entry]], None]
"""Hears of a run, the place in its record, counted from 0, and the entries that stand there now."""


class WatchedRuns:
    """`inner` with a listener, told of the entries that this process writes once they are kept. Never: delays one."""

    def __init__(self, inner: RunStore, on_entries: OnEntries) -> None:
        self._inner = inner
        self._on_entries = on_entries
        self._lengths: dict[str, int] = {}
        self._ends: dict[str, tuple[int, int]] = {}

    def is_written_here(self, record: RunRecord) -> bool:
        """Whether this process wrote to the run under the lease that it has now: then everything new was told."""
        fence, _ = self._ends.get(record.run_id, (-1, 0))
        return fence == record.fence

    async def create(self, record: RunRecord, write: Write) -> bool:
        is_new = await self._inner.create(record, write)
        if is_new:
            self._lengths[record.run_id] = len(write.entries)
            self._tell(record.run_id, 0, write)
        return is_new

    async def append(self, lease: Lease, write: Write) -> None:
        await self._inner.append(lease, write)
        fence, end = self._ends.get(lease.run_id, (-1, 0))
        if fence != lease.fence:
            # Whoever carries a run reads all of it first, under the same lease: so that is where it ends.
            end = self._lengths.get(lease.run_id, 0)
        self._ends[lease.run_id] = (lease.fence, end + len(write.entries))
        self._tell(lease.run_id, end, write)

    def _tell(self, run_id: str, place: int, write: Write) -> None:
        if write.entries:
            entries = [decode_entry(data, run_id, place + index) for index, data in enumerate(write.entries)]
            self._on_entries(run_id, place, [filled(entry, write.bodies) for entry in entries])

    async def read(self, run_id: str, *, after: int = 0) -> builtins.list[bytes]:
        entries = await self._inner.read(run_id, after=after)
        if entries:
            self._lengths[run_id] = max(after + len(entries), self._lengths.get(run_id, 0))
        return entries

    async def body(self, run_id: str, digest: str) -> bytes:
        return await self._inner.body(run_id, digest)

    async def list(self, filter: RunFilter, *, after: str = "", limit: int = 100) -> builtins.list[RunRecord]:
        return await self._inner.list(filter, after=after, limit=limit)

    async def forget(self, run_id: str) -> None:
        await self._inner.forget(run_id)

    async def aclose(self) -> None:
        await self._inner.aclose()


def watched(storage: Storage, on_entries: OnEntries) -> tuple[Storage, WatchedRuns]:
    """The same storage, with a listener to what is recorded of runs; closing it closes `storage`."""
    runs = WatchedRuns(storage.runs, on_entries)
    return Storage(state=storage.state, runs=runs, queue=storage.queue, events=storage.events, beneath=storage), runs
