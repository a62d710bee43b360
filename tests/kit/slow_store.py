"""A store that takes its time, and a storage over any store in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from harborage.artifacts.memory import MemoryArtifactStore
from harborage.clock import SYSTEM_CLOCK, Timers
from harborage.state.memory import MemoryStateStore
from harborage.state.storage import Storage
from harborage.store.memory import MemoryStore
from harborage.testing.clock import settle

if TYPE_CHECKING:
    from harborage.identity import Identity
    from harborage.store import Claimed, Commit, Committed, GroupRow, RunRow
    from harborage.store.queries import GroupQuery, Page, RunQuery


class AwaitedStore(MemoryStore):
    """A store in memory that is written with an await only, as one over a disk or a network is."""

    commit_now: Any = None

    async def commit(self, commit: Commit) -> Committed:
        return MemoryStore.commit_now(self, commit)


class SlowStore(AwaitedStore):
    """Takes turns of the loop over everything, before and after it is done."""

    before, after = 2, 3

    async def commit(self, commit: Commit) -> Committed:
        await settle(self.before)
        done = await super().commit(commit)
        await settle(self.after)
        return done

    async def entries(self, run_id: str, *, after: int = 0) -> list[bytes]:
        await settle(self.before)
        found = await super().entries(run_id, after=after)
        await settle(self.after)
        return found

    async def claim(self, worker: str, *, agents: Sequence[str] = (), limit: int = 100) -> list[Claimed]:
        await settle(self.before)
        found = await super().claim(worker, agents=agents, limit=limit)
        await settle(self.after)
        return found

    async def groups(self, query: GroupQuery) -> Page[GroupRow]:
        await settle(self.before)
        found = await super().groups(query)
        await settle(self.after)
        return found

    async def group(self, group_id: str, *, who: Identity) -> tuple[GroupRow, list[RunRow]]:
        await settle(self.before)
        found = await super().group(group_id, who=who)
        await settle(self.after)
        return found

    async def runs(self, query: RunQuery) -> Page[RunRow]:
        await settle(self.before)
        found = await super().runs(query)
        await settle(self.after)
        return found


def storage_over(store: MemoryStore, clock: Timers = SYSTEM_CLOCK) -> Storage:
    """A storage in memory with this store of runs."""
    return Storage(
        state=MemoryStateStore(clock=clock),
        store=store,
        artifacts=MemoryArtifactStore(),
    )
