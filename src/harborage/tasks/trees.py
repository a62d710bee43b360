"""Trees of tasks: what is below one, what cancels it with all that goes along, and what a wait would close.

A task that a run works on is ended by its run, which is sent a CANCEL; any other is ended by the commit itself. The
children of many runs are asked for at once: the runs of a tree that ends all look for their own.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from harborage.concurrency import Crew
from harborage.errors import error_reason
from harborage.events import Event, unix_ns
from harborage.store import LIVE, Commit, Move, RunQuery, SendControl, Status
from harborage.store.errors import RowNotFoundError
from harborage.tasks import announcements
from harborage.tasks.errors import InvalidTransitionError, RegistryClosedError
from harborage.tasks.model import Task, TaskStatus
from harborage.tasks.rows import task_of

if TYPE_CHECKING:
    from harborage.identity import Identity
    from harborage.store import RunRow, Store
    from harborage.tasks.changes import Runs


CANCELLED: Final = "cancelled"
"""The reason in the row of a task that was cancelled."""


_LEVEL_PAGE: Final = 1_000
"""How many tasks of one level of a tree are read at a time."""


class Cancellation(msgspec.Struct, frozen=True):
    """What cancels some tasks: the change, its events, and the tasks that have ended by it."""

    commit: Commit
    events: tuple[Event, ...]
    ended: tuple[Task, ...]


async def rows_of(store: Store, query: RunQuery) -> list[RunRow]:
    """Every row of a query, page by page."""
    rows: list[RunRow] = []
    while True:
        page = await store.runs(query)
        rows += page.rows
        if page.cursor is None:
            return rows
        query = replace(query, after=page.cursor)


async def below(store: Store, roots: Sequence[RunRow]) -> list[RunRow]:
    """The living tasks below those given, of one session, level by level. The walk does not go below a task that has
    ended."""
    found: list[RunRow] = []
    level = list(roots)
    while level:
        who = level[0].who
        children = RunQuery(
            tenant=who.tenant_id,
            user=who.user_id,
            session=who.session_id,
            parents=tuple(row.run_id for row in level),
            statuses=LIVE,
            oldest_first=True,
            is_whole=True,
            limit=_LEVEL_PAGE,
        )
        level = await rows_of(store, children)
        found += level
    return found


def cancellation(rows: Sequence[tuple[RunRow, bool]], reason: str, at: datetime, runs: Runs | None) -> Cancellation:
    """What cancels these living tasks; the second part of each says whether it goes along with another.

    Raises:
        InvalidTransitionError: one is worked on by a run, and this registry knows no host of runs.
    """
    moves: list[Move] = []
    sends: list[SendControl] = []
    events: list[Event] = []
    ended: list[Task] = []
    for row, is_cascaded in rows:
        if not row.position:
            task = replace(task_of(row), status=TaskStatus.CANCELLED, updated_at=unix_ns(at))
            moves.append(Move(run_id=row.run_id, expected=(row.status,), status=Status.CANCELLED, reason=CANCELLED))
            events.append(announcements.cancelled(task, reason, is_cascaded, at))
            ended.append(task)
        elif runs is None:
            why = "a run works on it; cancel it through the tasks of a runtime"
            raise InvalidTransitionError(row.status, TaskStatus.CANCELLED, row.run_id, why)
        else:
            sends.append(runs.cancellation(row, reason, is_cascaded=is_cascaded))
    return Cancellation(Commit(moves=tuple(moves), sends=tuple(sends)), tuple(events), tuple(ended))


async def circle(store: Store, waiter: RunRow, target: str) -> list[str]:
    """The circle that a refused wait would have closed, from the run that waits to itself; for the error's text."""
    came_from = {target: waiter.run_id}
    left = [target]
    while left and waiter.run_id not in came_from:
        one = left.pop()
        for following in await _followed(store, waiter, one):
            if following not in came_from:
                came_from[following] = one
                left.append(following)
    path = [waiter.run_id]
    while path[-1] in came_from and (len(path) == 1 or path[-1] != waiter.run_id):
        path.append(came_from[path[-1]])
    return path[::-1]


async def _followed(store: Store, waiter: RunRow, one: str) -> Sequence[str]:
    """What has to end before this task or group ends."""
    rows = (await store.runs(RunQuery(run_ids=(one,), limit=1))).rows
    if rows:
        return [rows[0].awaits] if rows[0].awaits else []
    try:
        _, members = await store.group(one, who=waiter.who)
    except RowNotFoundError:
        return ()
    return [member.run_id for member in members if not member.status.is_final]


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
