"""Looking over everything that waits in a storage, whoever's it is, and ending what nobody else would.

Reading changes nothing, except that a pause whose record leads nowhere leaves the list. Settling asks again about each
orphan before it ends it, and may be done while other processes work on the same storage.
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
from harborage.runtime.durable.pending import Wait, WaitKind, of_group, of_pause, of_run, of_session, of_task
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


class Places(msgspec.Struct, frozen=True, kw_only=True):
    """Where things wait. Without sessions none is looked at."""

    store: Store
    pauses: Coordinator
    tasks: InProcessTaskRegistry
    sessions: SessionRegistry | None = None
    clock: Clock


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """Something that nobody would have ended, and what was done about it."""

    wait: Wait
    done: str


async def survey(places: Places) -> list[Wait]:
    """Everything that waits: runs, then pauses and approvals, tasks, groups and sessions, each in order of age.

    What cannot be read is logged and left out.
    """
    now = places.clock.now()
    # Pauses and groups before runs: what they belong to was there before them, so none looks as if it had no run.
    pauses = await _readable("the open pauses", places.pauses.list_all_open())
    groups = await _groups(places.store)
    rows = await RunReader(places.store).rows(RunQuery(statuses=LIVE, oldest_first=True))
    statuses = {row.run_id: row.status for row in rows}
    named = {
        *(pause.identity.run_id for pause in pauses),
        *(run_id for row in rows for run_id in (row.awaits, row.parent)),
        *(group.owner for group in groups),
    }
    statuses |= await _statuses(places.store, named - statuses.keys())
    found = [
        *_runs([row for row in rows if row.position], statuses, pauses, now),
        *(of_pause(pause, statuses=statuses, now=now) for pause in pauses),
        *_given(of_task(row, statuses=statuses) for row in rows if not row.position),
    ]
    living = {(row.who, row.group): row.run_id for row in reversed(rows) if row.group}
    found += _given(of_group(group, statuses=statuses, living=living, now=now) for group in groups)
    if places.sessions is not None:
        policy = places.sessions.policy
        found += _given(
            of_session(one, policy, now=now) for one in await _readable("the sessions", places.sessions.list_all_open())
        )
    order = list(WaitKind)
    return sorted(found, key=lambda wait: (order.index(wait.kind), wait.since, wait.id))


async def settle(places: Places, waits: Iterable[Wait] | None = None) -> list[Settled]:
    """End what nobody else would, and what is overdue; returns what was done. `waits` are what to look at.

    Pauses past their deadline take their default, runs that nothing wakes are looked at again, pauses of ended runs are
    rejected, tasks without a run go with the run that spawned them. Groups end whose members have ended, or that
    nobody can seal any more.
    """
    looked_at = await survey(places) if waits is None else list(waits)
    done: list[Settled] = []
    overdue = {wait.id: wait for wait in looked_at if wait.kind in {WaitKind.PAUSE, WaitKind.APPROVAL}}
    for pause in await places.pauses.expire_due():
        if pause.token in overdue:
            what = f"its deadline had passed, so it took its default: {pause.decision}"
            done.append(Settled(wait=overdue[pause.token], done=what))
    ended = {one.wait.id for one in done}
    for wait in looked_at:
        if not wait.is_orphan or wait.id in ended:
            continue
        try:
            what = await _end(places, wait)
        except HarborageError as error:
            _log.warning("%s %s waits for nobody, and could not be ended: %s", wait.kind, wait.id, error)
            continue
        if what:
            done.append(Settled(wait=wait, done=what))
    return done


async def _end(places: Places, wait: Wait) -> str:
    """What was done about an orphan; "" when it had ended, or is none any more."""
    match wait.kind:
        case WaitKind.RUN:
            return await _wake(places, wait)
        case WaitKind.PAUSE | WaitKind.APPROVAL:
            return await _withdraw(places, wait)
        case WaitKind.TASK:
            return await _end_task(places, wait)
        case WaitKind.GROUP:
            return await _end_group(places, wait)
        case WaitKind.SESSION:
            return ""
        case _:
            assert_never(wait.kind)


async def _wake(places: Places, wait: Wait) -> str:
    row = await _row(places.store, wait.id)
    if row is None or phase_of(row) is not RunPhase.PARKED:
        return ""
    await places.store.commit(Commit(wakes=(wait.id,)))
    return "woken, to be looked at again"


async def _withdraw(places: Places, wait: Wait) -> str:
    row = await _row(places.store, wait.who.run_id)
    if row is not None and not row.status.is_final:
        return ""
    try:
        return "rejected" if await places.pauses.withdraw(wait.id, who=wait.who) else ""
    except PauseNotFoundError:
        return ""


async def _end_task(places: Places, wait: Wait) -> str:
    try:
        return "cancelled" if await places.tasks.cancel(wait.id, wait.orphan, who=wait.who) else ""
    except TaskNotFoundError:
        return ""


async def _end_group(places: Places, wait: Wait) -> str:
    who = wait.who.identity
    try:
        group = await places.tasks.group(wait.id, who=who)
        if group.status is GroupStatus.OPEN:
            return "cancelled" if await places.tasks.cancel_group(wait.id, wait.orphan, False, who=who) else ""
        await places.tasks.settle_group(wait.id, who=who)
        return str((await places.tasks.group(wait.id, who=who)).status)
    except GroupNotFoundError:
        return ""


def _runs(rows: list[RunRow], statuses: dict[str, Status], pauses: Iterable[Pause], now: datetime) -> Iterable[Wait]:
    of_each: defaultdict[str, list[Pause]] = defaultdict(list)
    for pause in pauses:
        of_each[pause.identity.run_id].append(pause)
    return _given(of_run(one, statuses=statuses, pauses=of_each.get(one.run_id, []), now=now) for one in rows)


async def _groups(store: Store) -> list[GroupRow]:
    """The groups that have not ended."""
    found: list[GroupRow] = []
    query: GroupQuery | None = GroupQuery(statuses=_LIVE_GROUPS, limit=_PAGE)
    while query is not None:
        page = await store.groups(query)
        found += page.rows
        query = None if page.cursor is None else msgspec.structs.replace(query, after=page.cursor)
    return found


async def _readable(what: str, reading: Awaitable[Sequence[T]]) -> Sequence[T]:
    """What is read; nothing where it is damaged, which is logged, so that everything else is shown.

    Raises:
        DatabaseError: the database itself does not serve.
    """
    try:
        return await reading
    except DatabaseError:
        raise
    except HarborageError as error:
        _log.warning("%s cannot be looked at: %s", what, error)
        return ()


async def _statuses(store: Store, named: Iterable[str]) -> dict[str, Status]:
    """How the runs and groups stand that something which waits names; what is not kept is not among them."""
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


def _given(waits: Iterable[Wait | None]) -> list[Wait]:
    return [wait for wait in waits if wait is not None]
