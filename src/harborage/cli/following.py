"""Following runs wherever they are carried: what this process records is told at once, what others record is read.

Each entry is told once, in the order of its record. No terminal, and no runtime: only the store.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

from harborage import codec
from harborage.cli.records import Recorded
from harborage.runtime.engines.bodies import read_whole
from harborage.runtime.history import all_runs
from harborage.runtime.journal import Done, Entry
from harborage.store import RunQuery, RunRow

if TYPE_CHECKING:
    from harborage.cli.recording import WatchedStore
    from harborage.identity import Identity
    from harborage.store import Store

__all__ = ["Following"]

_SPAWN = "task.spawn"


class Following:
    """The record of the run `root` and of the tasks below it, as far as it was told. They share the session of `who`.

    Where other runs may be in that session too (`may_be_shared`), those that are there at the first look are strangers.
    After a look `record` is the root's, `unfinished` are the runs that are not over, and `is_elsewhere` says whether
    another process carries one of them.
    """

    def __init__(self, store: WatchedStore, root: str, who: Identity, *, may_be_shared: bool = False) -> None:
        self.root = root
        self.strangers: set[str] = set()
        self.record: RunRow | None = None
        self.unfinished: list[RunRow] = []
        self.is_elsewhere = False
        self._store = store
        self._who = who
        self._told: dict[str, int] = {}
        self._behind: set[str] = set()
        self._family = {root}
        self._has_looked = False
        self._may_be_shared = may_be_shared

    def heard(self, run_id: str, place: int, entries: Sequence[Entry]) -> list[Recorded]:
        """What is new in these entries, which stand at `place` of a run; a gap before them is read at the next look."""
        told = self._told.get(run_id, 0)
        if run_id in self.strangers:
            return []
        if place > told:
            self._behind.add(run_id)
            return []
        self._told[run_id] = max(told, place + len(entries))
        self._behind.discard(run_id)
        news = entries[told - place :]
        self._family.update(child for entry in news if (child := _child(entry)))
        self.strangers -= self._family
        return [Recorded(run_id, entry) for entry in news]

    async def look(self) -> list[Recorded]:
        """What was recorded and not told yet, in the order of its making; of several runs, by time.

        Raises:
            StateError, JournalCorruptError: a record cannot be read.
        """
        mine = RunQuery(tenant=self._who.tenant_id, user=self._who.user_id, session=self._who.session_id)
        records = {one.run_id: one for one in await all_runs(cast("Store", self._store), mine)}
        news: list[Recorded] = []
        if not self._has_looked:
            news += await self._look_first(records)
        for record in records.values():
            news += await self._news_of(record)
        self.unfinished = [one for one in records.values() if self._is_mine(one) and not one.status.is_final]
        self.is_elsewhere = any(one.owner and not self._store.is_written_here(one) for one in self.unfinished)
        self.record = records.get(self.root)
        return sorted(news, key=lambda one: one.entry.at)

    async def _look_first(self, records: dict[str, RunRow]) -> list[Recorded]:
        """The family of the root; whatever else is in the session by now is none of it."""
        self._has_looked = True
        news: list[Recorded] = []
        seen: set[str] = set()
        while waiting := (self._family & records.keys()) - seen:
            for run_id in waiting:
                seen.add(run_id)
                news += await self._news_of(records[run_id])
        if self._may_be_shared:
            self.strangers = set(records) - seen
        return news

    async def _news_of(self, record: RunRow) -> list[Recorded]:
        run_id, told = record.run_id, self._told.get(record.run_id, 0)
        is_told_here = self._store.is_written_here(record) and run_id not in self._behind
        if record.position <= told or is_told_here or not self._is_mine(record):
            return []
        stored = await self._store.entries(run_id, after=told)
        entries = await read_whole(run_id, stored, partial(self._store.body, run_id), first=told)
        return self.heard(run_id, told, entries)

    def _is_mine(self, record: RunRow) -> bool:
        return record.run_id not in self.strangers


def _child(entry: Entry) -> str:
    """The task that an entry tells the spawning of; "" for any other entry."""
    if not isinstance(entry, Done) or entry.name != _SPAWN:
        return ""
    handle = codec.decode(bytes(entry.result))
    return str(handle.get("task_id", "")) if isinstance(handle, dict) else ""
