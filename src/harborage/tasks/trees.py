"""Trees of tasks: what is below one, what cancels it with all that goes along, and what a wait would close.

A task that a run works on is ended by its run, which is sent a CANCEL; any other is ended by the commit itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from harborage.events import unix_ns
from harborage.store import LIVE, Commit, Move, RunQuery, SendControl, Status
from harborage.store.errors import RowNotFoundError
from harborage.tasks import announcements
from harborage.tasks.errors import InvalidTransitionError
from harborage.tasks.model import Task, TaskStatus
from harborage.tasks.rows import task_of

if TYPE_CHECKING:
    from harborage.events import Event
    from harborage.store import RunRow, Store
    from harborage.tasks.changes import Runs

CANCELLED: Final = "cancelled"
"""The reason in the row of a task that was cancelled."""


class Cancellation(NamedTuple):
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
    """The living tasks below those given, level by level. The walk does not go below a task that has ended."""
    found: list[RunRow] = []
    level = [row.run_id for row in roots]
    trees = {(row.who, row.root or row.run_id) for row in roots}
    children: defaultdict[str, list[RunRow]] = defaultdict(list)
    for who, root in trees:
        tree = RunQuery(
            tenant=who.tenant_id,
            user=who.user_id,
            session=who.session_id,
            root=root,
            statuses=LIVE,
            oldest_first=True,
            is_whole=True,
        )
        for row in await rows_of(store, tree):
            children[row.parent].append(row)
    while level:
        rows = [row for parent in level for row in children.get(parent, ())]
        found += rows
        level = [row.run_id for row in rows]
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
