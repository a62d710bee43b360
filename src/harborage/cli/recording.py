"""A journal that tells what is written to it, so that a view can follow the record while it grows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harborage.runtime.journal import Journal

__all__ = ["WatchedJournal"]


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
