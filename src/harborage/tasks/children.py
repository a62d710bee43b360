"""The tasks that runs have spawned, asked for by many at once: the runs of a tree that ends all look for their own."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from harborage.concurrency import Crew
from harborage.errors import error_reason
from harborage.store import RunQuery
from harborage.tasks.errors import RegistryClosedError
from harborage.tasks.trees import rows_of

if TYPE_CHECKING:
    from harborage.identity import Identity
    from harborage.store import RunRow, Store

_MOST: Final = 200
"""For how many runs one read looks."""

_log = logging.getLogger(__name__)

_Asked = dict[str, "asyncio.Future[list[RunRow]]"]


class Children:
    """Reads the tasks below runs, one read of a session at a time: those who ask meanwhile share the next one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._asked: dict[Identity, _Asked] = {}
        self._crew = Crew(lambda name, error: _log.error("%s: %s", name, error_reason(error)))

    async def of(self, who: Identity, parent: str) -> list[RunRow]:
        """The tasks of this session that the run has spawned, oldest first, as they are after this call.

        Raises:
            RegistryClosedError: the registry was closed meanwhile.
            DatabaseError: the database refused.
        """
        asked = self._asked.get(who)
        if asked is None:
            asked = self._asked[who] = {}
            self._crew.start(self._read(who), f"children of runs of {who}")
        if (found := asked.get(parent)) is None:
            found = asked[parent] = asyncio.get_running_loop().create_future()
        return list(await asyncio.shield(found))  # one who is cut short takes nothing from the others

    async def aclose(self) -> None:
        """Turn away those who wait."""
        await self._crew.aclose()
        for who in list(self._asked):  # whose read had not begun
            _fail(self._asked.pop(who), RegistryClosedError())

    async def _read(self, who: Identity) -> None:
        try:
            while self._asked[who]:
                await self._read_some(who)
        finally:
            _fail(self._asked.pop(who), RegistryClosedError())  # none are left, unless this was cut short

    async def _read_some(self, who: Identity) -> None:
        asked = list(self._asked[who].items())
        some, self._asked[who] = dict(asked[:_MOST]), dict(asked[_MOST:])
        try:
            children = await self._children(who, tuple(some))
        except Exception as error:  # noqa: BLE001 - raised to the callers
            _fail(some, error)
        except BaseException:
            _fail(some, RegistryClosedError())
            raise
        else:
            for parent, found in some.items():
                found.set_result(children[parent])

    async def _children(self, who: Identity, parents: tuple[str, ...]) -> defaultdict[str, list[RunRow]]:
        query = RunQuery(
            tenant=who.tenant_id, user=who.user_id, session=who.session_id, parents=parents, oldest_first=True
        )
        children: defaultdict[str, list[RunRow]] = defaultdict(list)
        for row in await rows_of(self._store, query):
            children[row.parent].append(row)
        return children


def _fail(asked: _Asked, error: Exception) -> None:
    for found in asked.values():
        found.set_exception(error)
