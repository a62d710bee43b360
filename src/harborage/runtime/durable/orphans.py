"""Collects the pending work of all users of a storage, and ends orphans: work that no worker, timer or person will end.

Collecting changes nothing. Each orphan is read again before it is ended, so both are safe while workers run.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Awaitable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar, assert_never

import msgspec

from harborage.clock import Clock
from harborage.errors import HarborageError
from harborage.runtime.durable.engine import RunPhase
from harborage.runtime.durable.pauses.coordinator import Coordinator
from harborage.runtime.durable.pauses.errors import PauseNotFoundError
from harborage.runtime.durable.pending import (
    PendingItem,
    PendingKind,
    pending_group,
    pending_pause,
    pending_run,
    pending_session,
    pending_task,
)
from harborage.runtime.durable.reader import RunReader, phase_of
from harborage.sessions import SessionRegistry
from harborage.state.errors import DatabaseError
from harborage.store import LIVE, Commit, GroupQuery, GroupRow, RunQuery, RunRow, Status, Store
from harborage.store import GroupStatus as RowStatus
from harborage.tasks import (
    GroupNotFoundError,
    GroupStatus,
    InProcessTaskRegistry,
    TaskNotFoundError,
)

if TYPE_CHECKING:
    from harborage.runtime.loop.pauses import Pause

_LIVE_GROUPS = tuple(status for status in RowStatus if not status.is_final)
_PAGE = 200

T = TypeVar("T")
_log = logging.getLogger(__name__)


class PendingSources(msgspec.Struct, frozen=True, kw_only=True):
    """What is read to find pending work; without `sessions`, open sessions are not listed."""

    store: Store
    pauses: Coordinator
    tasks: InProcessTaskRegistry
    sessions: SessionRegistry | None = None
    clock: Clock


class EndedItem(msgspec.Struct, frozen=True, kw_only=True):
    """An orphan or overdue item that was ended; `done` says how."""

    item: PendingItem
    done: str


async def collect_pending(sources: PendingSources) -> list[PendingItem]:
    """Return all pending work: runs, then pauses, approvals, tasks, groups and sessions, each kind oldest first.

    What cannot be read is logged and left out.
    """
    now = sources.clock.now()
    # Pauses and groups are read before runs: a run is older than its pauses, so no pause seems to lack its run.
    pauses = await _read_or_log("the open pauses", sources.pauses.list_all_open())
    groups = await _groups(sources.store)
    rows = await RunReader(sources.store).rows(RunQuery(statuses=LIVE, oldest_first=True))
    statuses = {row.run_id: row.status for row in rows}
    named = {
        *(pause.identity.run_id for pause in pauses),
        *(run_id for row in rows for run_id in (row.awaits, row.parent)),
        *(group.owner for group in groups),
    }
    statuses |= await _statuses(sources.store, named - statuses.keys())
    found = [
        *_runs([row for row in rows if row.position], statuses, pauses, now),
        *(pending_pause(pause, statuses=statuses, now=now) for pause in pauses),
        *_drop_none(pending_task(row, statuses=statuses) for row in rows if not row.position),
    ]
    living = {(row.who, row.group): row.run_id for row in reversed(rows) if row.group}
    found += _drop_none(pending_group(group, statuses=statuses, living=living, now=now) for group in groups)
    if sources.sessions is not None:
        policy = sources.sessions.policy
        found += _drop_none(
            pending_session(one, policy, now=now)
            for one in await _read_or_log("the sessions", sources.sessions.list_all_open())
        )
    order = list(PendingKind)
    return sorted(found, key=lambda item: (order.index(item.kind), item.since, item.id))


async def end_orphaned_work(sources: PendingSources, items: Iterable[PendingItem] | None = None) -> list[EndedItem]:
    """End the orphans and the overdue pauses among `items`, by default all pending work; return each with how it ended.

    Pauses past their deadline take their default, and pauses of ended runs are rejected. Parked runs without timer are
    woken. Tasks without a run are cancelled once the run that spawned them has ended. A group ends if its members have
    ended, or if no run can seal it any more.
    """
    found = await collect_pending(sources) if items is None else list(items)
    done: list[EndedItem] = []
    overdue = {item.id: item for item in found if item.kind in {PendingKind.PAUSE, PendingKind.APPROVAL}}
    for pause in await sources.pauses.expire_due():
        if pause.token in overdue:
            what = f"its deadline had passed, so it took its default: {pause.decision}"
            done.append(EndedItem(item=overdue[pause.token], done=what))
    ended = {one.item.id for one in done}
    for item in found:
        if not item.is_orphan or item.id in ended:
            continue
        try:
            what = await _end(sources, item)
        except HarborageError as error:
            _log.warning("%s %s is orphaned, and could not be ended: %s", item.kind, item.id, error)
            continue
        if what:
            done.append(EndedItem(item=item, done=what))
    return done


async def _end(sources: PendingSources, item: PendingItem) -> str:
    """End an orphan and return how; "" if it has ended meanwhile or is no orphan any more."""
    match item.kind:
        case PendingKind.RUN:
            return await _wake(sources, item)
        case PendingKind.PAUSE | PendingKind.APPROVAL:
            return await _withdraw(sources, item)
        case PendingKind.TASK:
            return await _end_task(sources, item)
        case PendingKind.GROUP:
            return await _end_group(sources, item)
        case PendingKind.SESSION:
            return ""
        case _:
            assert_never(item.kind)


async def _wake(sources: PendingSources, item: PendingItem) -> str:
    row = await _row(sources.store, item.id)
    if row is None or phase_of(row) is not RunPhase.PARKED:
        return ""
    await sources.store.commit(Commit(wakes=(item.id,)))
    return "woken, to be looked at again"


async def _withdraw(sources: PendingSources, item: PendingItem) -> str:
    row = await _row(sources.store, item.who.run_id)
    if row is not None and not row.status.is_final:
        return ""
    try:
        return "rejected" if await sources.pauses.withdraw(item.id, who=item.who) else ""
    except PauseNotFoundError:
        return ""


async def _end_task(sources: PendingSources, item: PendingItem) -> str:
    try:
        return "cancelled" if await sources.tasks.cancel(item.id, item.orphan, who=item.who) else ""
    except TaskNotFoundError:
        return ""


async def _end_group(sources: PendingSources, item: PendingItem) -> str:
    who = item.who.identity
    try:
        group = await sources.tasks.group(item.id, who=who)
        if group.status is GroupStatus.OPEN:
            return "cancelled" if await sources.tasks.cancel_group(item.id, item.orphan, False, who=who) else ""
        await sources.tasks.settle_group(item.id, who=who)
        return str((await sources.tasks.group(item.id, who=who)).status)
    except GroupNotFoundError:
        return ""


def _runs(
    rows: list[RunRow], statuses: dict[str, Status], pauses: Iterable[Pause], now: datetime
) -> Iterable[PendingItem]:
    of_each: defaultdict[str, list[Pause]] = defaultdict(list)
    for pause in pauses:
        of_each[pause.identity.run_id].append(pause)
    return _drop_none(pending_run(one, statuses=statuses, pauses=of_each.get(one.run_id, []), now=now) for one in rows)


async def _groups(store: Store) -> list[GroupRow]:
    """Return the groups that have not ended."""
    found: list[GroupRow] = []
    query: GroupQuery | None = GroupQuery(statuses=_LIVE_GROUPS, limit=_PAGE)
    while query is not None:
        page = await store.groups(query)
        found += page.rows
        query = None if page.cursor is None else msgspec.structs.replace(query, after=page.cursor)
    return found


async def _read_or_log(what: str, reading: Awaitable[Sequence[T]]) -> Sequence[T]:
    """Return what `reading` returns; if it is damaged, log that and return nothing, so that the rest is listed.

    Raises:
        DatabaseError: the database failed.
    """
    try:
        return await reading
    except DatabaseError:
        raise
    except HarborageError as error:
        _log.warning("%s cannot be read: %s", what, error)
        return ()


async def _statuses(store: Store, named: Iterable[str]) -> dict[str, Status]:
    """Return the status of each named run or group that is stored."""
    wanted = sorted(one for one in named if one)
    found: dict[str, Status] = {}
    for start in range(0, len(wanted), _PAGE):
        some = tuple(wanted[start : start + _PAGE])
        for row in (await store.runs(RunQuery(run_ids=some, limit=len(some)))).rows:
            found[row.run_id] = row.status
        rest = tuple(one for one in some if one not in found)
        for group in (await store.groups(GroupQuery(group_ids=rest, limit=len(rest)))).rows if rest else ():
            found[group.group_id] = Status.COMPLETE if group.status.is_final else Status.RUNNING
    return found


async def _row(store: Store, run_id: str) -> RunRow | None:
    if not run_id:
        return None
    found = (await store.runs(RunQuery(run_ids=(run_id,), limit=1))).rows
    return found[0] if found else None


def _drop_none(items: Iterable[PendingItem | None]) -> list[PendingItem]:
    return [item for item in items if item is not None]
