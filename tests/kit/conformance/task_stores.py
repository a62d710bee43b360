"""Stores in memory that behave as others do: one whose commits take time, and one that refuses them."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from harborage.state.errors import DatabaseError
from harborage.store.memory import MemoryStore

if TYPE_CHECKING:
    from harborage.store import Commit, Committed, GroupQuery, GroupRow, Page, RunQuery, RunRow


class RemoteStore(MemoryStore):
    """A store whose calls take some turns of the loop, so that other callers come in between, as over a network.

    `commits` are those that were sent. The next `fails` of them are refused, as by a server that is gone.
    """

    def __init__(self, seed: int = 0, **options: Any) -> None:
        super().__init__(**options)
        self._random = random.Random(seed)
        self.commits: list[Commit] = []
        self.fails = 0

    async def commit(self, commit: Commit) -> Committed:
        await self._wander()
        if self.fails:
            self.fails -= 1
            raise DatabaseError("the server is gone")
        self.commits.append(commit)
        done = await super().commit(commit)
        await self._wander()
        return done

    async def runs(self, query: RunQuery) -> Page[RunRow]:
        await self._wander()
        return await super().runs(query)

    async def groups(self, query: GroupQuery) -> Page[GroupRow]:
        await self._wander()
        return await super().groups(query)

    async def _wander(self) -> None:
        for _ in range(self._random.randrange(4)):
            await asyncio.sleep(0)
