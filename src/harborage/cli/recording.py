"""A store that tells what is written to the journals of its runs: a view can follow a run while it grows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from harborage.runtime.engines.bodies import filled
from harborage.runtime.journal import Entry, decode_entry
from harborage.state.storage import Storage

if TYPE_CHECKING:
    from harborage.store import Commit, Committed, RunRow, Store

__all__ = ["OnEntries", "WatchedStore", "watched"]

OnEntries: TypeAlias = Callable[[str, int, Sequence[Entry]], None]
"""Hears of a run, the place in its journal, counted from 0, and the entries that stand there now."""


class WatchedStore:
    """`inner` with a listener, told of the entries that this process writes once they are kept. Never: delays one."""

    def __init__(self, inner: Store, on_entries: OnEntries) -> None:
        self._inner = inner
        self._on_entries = on_entries
        self._fences: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def is_written_here(self, row: RunRow) -> bool:
        """Whether this process wrote to the run under the lease that it has now: then everything new was told."""
        return self._fences.get(row.run_id) == row.fence

    async def commit(self, commit: Commit) -> Committed:
        done = await self._inner.commit(commit)
        if done.is_again:
            return done
        for start in commit.starts:
            self._tell(start.run_id, 0, start.entries, commit)
        if commit.guard is not None and commit.entries:
            run_id, _, fence = commit.guard.lease
            self._fences[run_id] = fence
            self._tell(run_id, commit.guard.position, commit.entries, commit)
        return done

    def _tell(self, run_id: str, place: int, stored: Sequence[bytes], commit: Commit) -> None:
        entries = [decode_entry(data, run_id, place + index) for index, data in enumerate(stored)]
        self._on_entries(run_id, place, [filled(entry, commit.bodies) for entry in entries])


def watched(storage: Storage, on_entries: OnEntries) -> tuple[Storage, WatchedStore]:
    """The same storage, with a listener to what is recorded of runs; closing it closes `storage`."""
    store = WatchedStore(storage.store, on_entries)
    return Storage(state=storage.state, store=cast("Store", store), events=storage.events, beneath=storage), store
