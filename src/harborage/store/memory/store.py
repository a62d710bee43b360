"""The store of record in this process's memory: nothing of it outlives the process."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from harborage.clock import SYSTEM_CLOCK, Clock
from harborage.state.errors import StoreClosedError
from harborage.store.commit import Commit, Committed, NewEvent, OpenSession, check_commit, is_news
from harborage.store.errors import EntryDamagedError, RowNotFoundError, WorkerKnownError
from harborage.store.memory.conditions import check
from harborage.store.memory.tables import HeldRun, Tables
from harborage.store.memory.views import (
    count_events,
    events_near,
    find_events,
    find_groups,
    find_pauses,
    find_runs,
    find_sessions,
    has_event,
    has_pause,
    has_run,
    has_totals,
    list_sessions,
    total_sessions,
)
from harborage.store.port import MAX_ATTEMPTS, Claimed
from harborage.store.queries import (
    EventCount,
    EventCountQuery,
    EventQuery,
    GroupQuery,
    Orphan,
    Page,
    PauseQuery,
    RunCounts,
    RunQuery,
    RunTotals,
    SessionListQuery,
    SessionQuery,
    SessionTotals,
)
from harborage.store.rows import (
    ControlRow,
    EventRow,
    GroupRow,
    GroupStatus,
    Lease,
    PatchRow,
    PauseRow,
    RunRow,
    SessionChange,
    SessionRow,
    Status,
)
from harborage.store.times import micros

if TYPE_CHECKING:
    from harborage.identity import Identity
    from harborage.store.examining import Examined, Judges, Part, Place

_KEEP_ENDED: Final = 10_000
_KEEP_STRAYS: Final = 1_000


class MemoryStore:
    """A store in memory. The last `keep_ended` runs that ended stay readable; older ones are deleted.

    Pauses go with their run; of those that belong to none the last `keep_strays` settled ones of each tenant stay.
    A group that has ended goes with the last of its members; of those that have none as many stay. A session that
    was never opened goes with what was kept in it.
    """

    is_shared = False

    def __init__(
        self,
        *,
        clock: Clock = SYSTEM_CLOCK,
        keep_ended: int = _KEEP_ENDED,
        keep_strays: int = _KEEP_STRAYS,
        max_attempts: int = MAX_ATTEMPTS,
    ) -> None:
        self._clock = clock
        self._keep_ended = keep_ended
        self._max_attempts = max_attempts
        self._tables = Tables(keep_strays)
        self._workers: set[str] = set()
        self._listeners: list[tuple[asyncio.AbstractEventLoop, Callable[[], None]]] = []
        self._is_closed = False

    # ── Records ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def commit(self, commit: Commit) -> Committed:
        return self.commit_now(commit)

    def commit_now(self, commit: Commit, accepted: Callable[[], None] | None = None) -> Committed:
        """The same without an await: a step of a run that is kept in memory does not give up its turn for it.

        `accepted` is called once every condition holds, before anything has changed; what it raises is raised.
        """
        self._check_open()
        check_commit(commit)
        if not check(self._tables, commit):
            return Committed(is_again=True)
        if accepted is not None:
            accepted()
        opened = None if commit.session is None else self._open(commit.session)
        done = self._tables.apply(commit, self._now())
        if opened is not None:
            done = replace(done, session=opened)
        ended = self._tables.ended
        while len(ended) > self._keep_ended:
            self._tables.delete(ended.popleft())
        if is_news(commit):
            self._notify()
        return done

    def append_now(self, lease: Lease, position: int, entries: Sequence[bytes]) -> bool:
        """Add entries to the run of `lease`, which has `position` of them; a commit of them alone, without an await.

        Returns False where the run is not held under that lease, or stands elsewhere: a commit says why.
        """
        held = self._tables.runs.get(lease.run_id)
        if self._is_closed or held is None or len(held.entries) != position or not held.is_held(lease):
            return False
        held.entries += entries
        held.written_at = self._clock.now()
        return True

    async def entries(self, run_id: str, *, after: int = 0) -> list[bytes]:
        self._check_open()
        held = self._tables.runs.get(run_id)
        return [] if held is None else held.entries[after:]

    async def body(self, run_id: str, digest: str) -> bytes:
        self._check_open()
        held = self._tables.runs.get(run_id)
        if held is None or digest not in held.bodies:
            raise EntryDamagedError(run_id, digest=digest)
        return self._tables.bodies[digest]

    async def controls(self, run_id: str, *, after: int = 0, limit: int = 100) -> list[ControlRow]:
        self._check_open()
        held = self._tables.runs.get(run_id)
        return [] if held is None else _unread(held, after, limit)

    async def controls_of(self, after: Mapping[str, int], *, limit: int = 100) -> list[ControlRow]:
        self._check_open()
        found = [(self._tables.runs.get(run_id), number) for run_id, number in after.items()]
        return sorted(
            (control for held, number in found if held is not None for control in _unread(held, number, limit)),
            key=lambda control: control.number,
        )

    async def was_sent(self, run_id: str, event_id: str) -> bool:
        self._check_open()
        held = self._tables.runs.get(run_id)
        return held is not None and event_id in held.event_ids

    # ── Queue ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def join(self, worker: str) -> None:
        self._check_open()
        if worker in self._workers:
            raise WorkerKnownError(f"worker {worker} is at work in this process already")
        self._workers.add(worker)

    async def beat(self, worker: str) -> int:
        self._check_open()
        return 0

    async def look(self, worker: str) -> None:
        self._check_open()

    async def leave(self, worker: str) -> None:
        if worker not in self._workers:
            return
        self._workers.discard(worker)
        if self._tables.release_all(worker):
            self._notify()

    async def claim(self, worker: str, *, agents: Sequence[str] = (), limit: int = 100) -> list[Claimed]:
        self._check_open()
        tables = self._tables
        tables.wake_due(self._now(), agents)
        ready = [tables.runs[run_id] for run_id in tables.ready]
        mine = [held for held in ready if not agents or not held.row.agent or held.row.agent in agents]
        mine.sort(key=lambda held: (-held.row.priority, held.row.number))
        claimed: list[Claimed] = []
        for held in mine[:limit]:
            if held.row.attempts >= self._max_attempts:
                tables.block(held, f"claimed {held.row.attempts} times without progress")
                self._notify()  # a caller may wait for its end
                continue
            tables.claim(held, worker)
            if held.row.status is Status.PENDING:
                held.row = replace(held.row, status=Status.RUNNING)
            claimed.append(Claimed(held.row, list(held.entries), _unread(held, 0, limit)))
        return claimed

    async def unread(self, worker: str) -> dict[str, int]:
        self._check_open()
        held = (self._tables.runs[run_id] for run_id in self._tables.unread)
        return {one.row.run_id: max(one.controls) for one in held if one.row.owner == worker}

    async def next_due(self, *, agents: Sequence[str] = ()) -> int | None:
        self._check_open()
        runs = self._tables.runs
        if any(not agents or runs[one].row.agent in ("", *agents) for one in self._tables.ready):
            return 0
        return self._tables.due.first(agents)

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        one = (asyncio.get_running_loop(), listener)
        self._listeners.append(one)

        def stop() -> None:
            if one in self._listeners:
                self._listeners.remove(one)

        return stop

    # ── Sessions ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def open_session(
        self, who: Identity, *, context: bytes = b"{}", at: int | None = None, events: Sequence[NewEvent] = ()
    ) -> SessionChange:
        self._check_open()
        return self._open(OpenSession(who=who, context=context, at=at, events=tuple(events)))

    def _open(self, asked: OpenSession) -> SessionChange:
        now = self._now() if asked.at is None else asked.at
        done = self._tables.sessions.open(asked.who, asked.context, now)
        if not done.is_changed:
            return done
        first, place = self._tables.publish(asked.who, asked.events, now)
        return SessionChange(self._tables.sessions.get(asked.who), True, first, place)

    async def touch_session(self, who: Identity, *, before: int | None = None) -> SessionChange:
        self._check_open()
        return self._tables.sessions.touch(who, before, self._now())

    async def close_session(self, who: Identity, reason: str, *, seen_at: int | None = None) -> SessionChange:
        self._check_open()
        return self._tables.sessions.close(who, reason, seen_at, self._now())

    # ── Views ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def runs(self, query: RunQuery) -> Page[RunRow]:
        self._check_open()
        return find_runs(self._tables.likely(query), query, self._tables.pauses.open_reasons)

    async def count_runs(self, query: RunQuery) -> RunCounts:
        found = Counter(row.status for row in self._runs_of(query))
        return RunCounts(by_status={status: found[status] for status in Status})

    async def total_runs(self, query: RunQuery) -> RunTotals:
        rows = [*self._runs_of(query)]
        return RunTotals(runs=len(rows), tokens=sum(row.tokens for row in rows), cost=sum(row.cost for row in rows))

    def _runs_of(self, query: RunQuery) -> Iterator[RunRow]:
        self._check_open()
        asks = self._tables.pauses.open_reasons
        return (row for row in self._tables.likely(query) if has_run(query, row, asks))

    async def pauses(self, query: PauseQuery) -> Page[PauseRow]:
        self._check_open()
        return find_pauses(self._tables.pauses.likely(query), query)

    async def count_pauses(self, query: PauseQuery) -> int:
        self._check_open()
        return sum(has_pause(query, row) for row in self._tables.pauses.likely(query))

    async def events(self, query: EventQuery) -> list[EventRow]:
        return find_events(self._events_near(query), query)

    async def total_events(self, query: EventQuery) -> int:
        return sum(has_event(query, row) for row in self._events_near(query))

    def _events_near(self, query: EventQuery) -> Iterable[EventRow]:
        self._check_open()
        return events_near(self._tables.events, query)

    async def count_events(self, query: EventCountQuery) -> list[EventCount]:
        self._check_open()
        return count_events(self._tables.events, query)

    async def sessions(self, query: SessionQuery) -> Page[SessionRow]:
        self._check_open()
        return find_sessions(self._tables.sessions.likely(query), query)

    async def list_sessions(self, query: SessionListQuery) -> list[SessionTotals]:
        self._check_open()
        return list_sessions(self._session_totals(query), query)

    async def count_sessions(self, query: SessionListQuery) -> int:
        self._check_open()
        return sum(has_totals(query, row) for row in self._session_totals(query))

    def _session_totals(self, query: SessionListQuery) -> Iterator[SessionTotals]:
        tables = self._tables
        return total_sessions(tables.sessions.listed(query), tables.runs_of, tables.pauses.sessions_asking())

    async def group(self, group_id: str, *, who: Identity) -> tuple[GroupRow, list[RunRow]]:
        self._check_open()
        group = self._tables.groups.get(who, group_id)
        if group is None:
            raise RowNotFoundError(group_id, what="group")
        return group, [self._tables.runs[run_id].row for run_id in self._tables.groups.members(who, group_id)]

    async def groups(self, query: GroupQuery) -> Page[GroupRow]:
        self._check_open()
        return find_groups(self._tables.groups.likely(query), query)

    # ── Upkeep ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def orphans(self, *, limit: int = 100) -> list[Orphan]:
        self._check_open()
        found: list[Orphan] = []
        for row in (self._tables.runs[run_id].row for run_id in self._tables.live):
            waits = row.wake_at is not None or row.awaits or self._tables.pauses.open_of(row.run_id)
            is_still = row.status is Status.PAUSED and not row.owner and not row.is_woken and not row.blocked
            if is_still and row.position and not waits:
                found.append(Orphan(kind="paused_for_nothing", subject=row.run_id, run_id=row.run_id))
            parent = self._tables.runs.get(row.parent)
            if parent is not None and parent.row.status.is_final and row.is_cascading:
                found.append(Orphan(kind="parent_ended", subject=row.run_id, run_id=row.run_id))
        found += [
            Orphan(kind="group_not_ended", subject=group.group_id, run_id=group.owner)
            for group in self._tables.groups.live()
            if group.status is not GroupStatus.OPEN and group.members and not group.open_members
        ]
        return found[:limit]

    async def examine(self, part: Part, judges: Judges, after: Place) -> Examined:
        from harborage.store.check import disagreements  # loaded where a store is examined
        from harborage.store.examining import Examined, Part

        self._check_open()
        # Nothing in memory is damaged, so there are no slices: what does not agree is found in one look.
        return Examined(found=await disagreements(self)) if part is Part.RUNS else Examined()

    async def unblock(self, run_ids: Sequence[str]) -> int:
        self._check_open()
        blocked = [held for one in run_ids if (held := self._tables.runs.get(one)) is not None and held.row.blocked]
        for held in blocked:
            self._tables.unblock(held)
        if blocked:
            self._notify()
        return len(blocked)

    async def delete(self, run_ids: Sequence[str]) -> int:
        self._check_open()
        return sum(self._tables.delete(run_id) for run_id in run_ids)

    async def drop_pauses(self, before: int) -> int:
        self._check_open()
        return self._tables.pauses.drop_settled(before)

    async def patch(self, patch_id: str, *, who: Identity) -> PatchRow | None:
        self._check_open()
        return self._tables.patches.get((who, patch_id))

    async def aclose(self) -> None:
        self._is_closed = True
        self._listeners.clear()

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreClosedError()

    def _now(self) -> int:
        return micros(self._clock.now())

    def _notify(self) -> None:
        here = asyncio.get_running_loop()
        for loop, listener in self._listeners:
            if loop is here:
                listener()
            else:
                loop.call_soon_threadsafe(listener)


def _unread(held: HeldRun, after: int, limit: int) -> list[ControlRow]:
    return [control for number, control in sorted(held.controls.items()) if number > after][:limit]
