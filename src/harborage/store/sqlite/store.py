"""The store of record in one SQLite file, which several processes of one machine may share."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from msgspec.structs import replace

from harborage.clock import SYSTEM_CLOCK, Timers
from harborage.state.errors import DatabaseCorruptError, StoreClosedError
from harborage.store import sql
from harborage.store.commit import Commit, Committed, OpenSession, check_commit, is_news, subject_of
from harborage.store.errors import WorkerKnownError
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
from harborage.store.sqlite.audit import SQLiteAudit
from harborage.store.sqlite.connection import statements
from harborage.store.sqlite.database import Database
from harborage.store.sqlite.reading import Reading
from harborage.store.sqlite.sessions import Sessions
from harborage.store.sqlite.workers import LEASE, Workers
from harborage.store.sqlite.writing import Writing, names_of
from harborage.store.times import micros

if TYPE_CHECKING:
    from harborage.identity import Identity
    from harborage.store.commit import NewEvent
    from harborage.store.examining import Examined, Judges, Part, Place
    from harborage.store.rows import (
        ControlRow,
        EventRow,
        GroupRow,
        PatchRow,
        PauseRow,
        RunRow,
        SessionChange,
        SessionRow,
    )
    from harborage.store.sqlite.transactions import Transaction

T = TypeVar("T")

_FILES = ("commits", "queue", "upkeep", "views")


class SQLiteStore:
    """A store over an open database. A worker that freezes for as long as `lease` counts as dead."""

    is_shared = True

    def __init__(
        self,
        database: Database,
        *,
        clock: Timers = SYSTEM_CLOCK,
        lease: timedelta = LEASE,
        max_attempts: int = MAX_ATTEMPTS,
    ) -> None:
        self._database = database
        self._clock = clock
        self._max_attempts = max_attempts
        self._sql = statements("views", sql.__name__) | {
            name: text for file in _FILES for name, text in statements(file).items()
        }
        self._reading = Reading(self._sql)
        self._sessions = Sessions(self._sql, self._reading)
        self._writing = Writing(self._sql, self._reading)
        self._audit = SQLiteAudit(self._reading)
        self._workers = Workers(database, self._sql, clock, lease)
        self._joined: set[str] = set()
        self._is_closed = False

    @classmethod
    async def open(
        cls, path: str | os.PathLike[str], *, clock: Timers = SYSTEM_CLOCK, lease: timedelta = LEASE
    ) -> Self:
        """The store in the file `path`, made when it is missing.

        Raises:
            DatabaseError: it cannot be used; the class says why, the text names the file and says what to do.
        """
        return cls(await Database.open(path, package=__package__), clock=clock, lease=lease)

    # ── Records ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def commit(self, commit: Commit) -> Committed:
        check_commit(commit)
        now = self._now()
        notifies = is_news(commit)

        def apply(tx: Transaction) -> Committed:
            opened = None if commit.session is None else self._open(tx, commit.session, now)
            done = self._writing.apply(tx, commit, now, notifies=notifies)
            return done if opened is None else replace(done, session=opened)

        return await self._write(apply, subject_of(commit))

    async def entries(self, run_id: str, *, after: int = 0) -> list[bytes]:
        return await self._read(lambda tx: self._reading.entries(tx, run_id, after), run_id)

    async def body(self, run_id: str, digest: str) -> bytes:
        return await self._read(lambda tx: self._reading.body(tx, run_id, digest), run_id)

    async def controls(self, run_id: str, *, after: int = 0, limit: int = 100) -> list[ControlRow]:
        return await self._read(lambda tx: self._reading.controls(tx, run_id, after, limit), run_id)

    async def controls_of(self, after: Mapping[str, int], *, limit: int = 100) -> list[ControlRow]:
        return await self._read(lambda tx: self._reading.controls_of(tx, after, limit))

    async def was_sent(self, run_id: str, event_id: str) -> bool:
        return await self._read(lambda tx: self._reading.was_sent(tx, run_id, event_id), run_id)

    # ── Queue ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def join(self, worker: str) -> None:
        if worker in self._joined:
            raise WorkerKnownError(f"this process is the worker {worker} already")
        await self._write(lambda tx: self._workers.join(tx, worker))
        self._joined.add(worker)

    async def beat(self, worker: str) -> int:
        freed = await self._write(lambda tx: self._workers.beat(tx, worker))
        await self._look()
        return freed

    async def look(self, worker: str) -> None:
        if await self._read(lambda tx: self._workers.dead(tx, worker)):
            await self._write(lambda tx: self._workers.bury(tx, worker))
        await self._look()

    async def leave(self, worker: str) -> None:
        try:
            await self._write(lambda tx: self._workers.leave(tx, worker))
        finally:
            self._joined.discard(worker)
            self._workers.drop(worker)

    async def claim(self, worker: str, *, agents: Sequence[str] = (), limit: int = 100) -> list[Claimed]:
        most, now, corrupt = self._max_attempts, self._now(), dict[int, str]()

        def claim(tx: Transaction) -> list[Claimed]:
            return self._writing.claim(
                tx, worker, agents=agents, limit=limit, max_attempts=most, now=now, corrupt=corrupt
            )

        while True:
            known = len(corrupt)
            try:
                return await self._write(claim)
            except DatabaseCorruptError:
                if len(corrupt) == known:
                    raise

    async def unread(self, worker: str) -> dict[str, int]:
        return await self._read(lambda tx: self._reading.inboxes(tx, worker))

    async def next_due(self, *, agents: Sequence[str] = ()) -> int | None:
        return await self._read(lambda tx: _value(tx.execute(self._sql["next_due"], (names_of(agents),)).get))

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        return self._database.on_change(listener)

    # ── Sessions ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def open_session(
        self, who: Identity, *, context: bytes = b"{}", at: int | None = None, events: Sequence[NewEvent] = ()
    ) -> SessionChange:
        opening = OpenSession(who=who, context=context, at=at, events=tuple(events))
        now = self._now()
        return await self._write(lambda tx: self._open(tx, opening, now))

    def _open(self, tx: Transaction, opening: OpenSession, now: int) -> SessionChange:
        now = now if opening.at is None else opening.at
        publish = partial(self._writing.publish, who=opening.who, events=opening.events, now=now)
        return self._sessions.open(tx, opening.who, opening.context, now, publish)

    async def touch_session(self, who: Identity, *, before: int | None = None) -> SessionChange:
        now = self._now()
        return await self._write(lambda tx: self._sessions.touch(tx, who, before, now))

    async def close_session(self, who: Identity, reason: str, *, seen_at: int | None = None) -> SessionChange:
        now = self._now()
        return await self._write(lambda tx: self._sessions.close(tx, who, reason, seen_at, now))

    # ── Views ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def runs(self, query: RunQuery) -> Page[RunRow]:
        return await self._read(lambda tx: self._reading.runs(tx, query))

    async def count_runs(self, query: RunQuery) -> RunCounts:
        return await self._read(lambda tx: self._reading.count_runs(tx, query))

    async def total_runs(self, query: RunQuery) -> RunTotals:
        return await self._read(lambda tx: self._reading.total_runs(tx, query))

    async def pauses(self, query: PauseQuery) -> Page[PauseRow]:
        return await self._read(lambda tx: self._reading.pauses(tx, query))

    async def count_pauses(self, query: PauseQuery) -> int:
        return await self._read(lambda tx: self._reading.count_pauses(tx, query))

    async def events(self, query: EventQuery) -> list[EventRow]:
        return await self._read(lambda tx: self._reading.events(tx, query))

    async def count_events(self, query: EventCountQuery) -> list[EventCount]:
        return await self._read(lambda tx: self._reading.count_events(tx, query))

    async def total_events(self, query: EventQuery) -> int:
        return await self._read(lambda tx: self._reading.total_events(tx, query))

    async def sessions(self, query: SessionQuery) -> Page[SessionRow]:
        return await self._read(lambda tx: self._reading.sessions(tx, query))

    async def list_sessions(self, query: SessionListQuery) -> list[SessionTotals]:
        return await self._read(lambda tx: self._reading.list_sessions(tx, query))

    async def count_sessions(self, query: SessionListQuery) -> int:
        return await self._read(lambda tx: self._reading.count_sessions(tx, query))

    async def groups(self, query: GroupQuery) -> Page[GroupRow]:
        return await self._read(lambda tx: self._reading.groups(tx, query))

    async def group(self, group_id: str, *, who: Identity) -> tuple[GroupRow, list[RunRow]]:
        return await self._read(lambda tx: self._reading.group(tx, group_id, who))

    # ── Upkeep ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def orphans(self, *, limit: int = 100) -> list[Orphan]:
        def find(tx: Transaction) -> list[Orphan]:
            found = [
                Orphan(kind=kind, subject=subject, run_id=subject)
                for kind in ("paused_for_nothing", "parent_ended")
                for (subject,) in tx.execute(self._sql[kind], (limit,))
            ]
            for kind in ("pause_of_ended", "group_not_ended"):
                rows: Any = tx.execute(self._sql[kind], (limit,))
                found += [Orphan(kind=kind, subject=subject, run_id=run_id) for subject, run_id in rows]
            return found[:limit]

        return await self._read(find)

    async def examine(self, part: Part, judges: Judges, after: Place) -> Examined:
        return await self._read(lambda tx: self._audit.examine(tx, part, judges, after))

    async def unblock(self, run_ids: Sequence[str]) -> int:
        def unblock(tx: Transaction) -> int:
            found = [one for one in run_ids if tx.execute(self._sql["unblock"], (one,)).get is not None]
            if found:
                tx.notify()
            return len(found)

        return await self._write(unblock)

    async def delete(self, run_ids: Sequence[str]) -> int:
        return await self._write(lambda tx: sum(self._writing.delete(tx, run_id) for run_id in run_ids))

    async def drop_pauses(self, before: int) -> int:
        return await self._write(lambda tx: len(tx.execute(self._sql["drop_pauses"], (before,)).fetchall()))

    async def patch(self, patch_id: str, *, who: Identity) -> PatchRow | None:
        return await self._read(lambda tx: self._reading.patch(tx, patch_id, who))

    async def aclose(self) -> None:
        self._is_closed = True
        self._workers.close()
        await self._database.aclose()

    def _now(self) -> int:
        return micros(self._clock.now())

    async def _look(self) -> None:
        await self._database.look()

    async def _write(self, work: Callable[[Transaction], T], run_id: str = "") -> T:
        return await self._asked(self._database.write, work, run_id)

    async def _read(self, work: Callable[[Transaction], T], run_id: str = "") -> T:
        return await self._asked(self._database.read, work, run_id)

    async def _asked(self, ask: Callable[..., Awaitable[T]], work: Callable[[Transaction], T], run_id: str) -> T:
        if self._is_closed:
            raise StoreClosedError()
        return await ask(work, run_id=run_id)


def _value(found: Any) -> int | None:
    return None if found is None else int(found)
