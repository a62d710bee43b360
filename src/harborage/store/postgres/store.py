"""The store of record in Postgres, which processes on several machines share."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from msgspec.structs import replace

from harborage import codec
from harborage.clock import SYSTEM_CLOCK, Timers
from harborage.state.errors import DatabaseCorruptError, DatabaseError, StoreClosedError
from harborage.state.postgres.database import Database, Notices
from harborage.state.postgres.records import kept_text
from harborage.store.commit import Commit, Committed, OpenSession, check_commit, subject_of
from harborage.store.errors import RowNotFoundError
from harborage.store.port import MAX_ATTEMPTS, Claimed
from harborage.store.postgres.audit import PostgresAudit
from harborage.store.postgres.claiming import Claiming
from harborage.store.postgres.documents import Answer, events_alone
from harborage.store.postgres.lane import Lane
from harborage.store.postgres.notifier import Notifier
from harborage.store.postgres.reading import Reading
from harborage.store.postgres.refusals import refusal
from harborage.store.postgres.statements import SQL, fetch, fetchval
from harborage.store.postgres.workers import LEASE, Workers
from harborage.store.postgres.writing import Writing
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
from harborage.store.rows import Lease, SessionChange
from harborage.store.sql.rows import UnreadableError, group_left
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
        SessionRow,
    )

T = TypeVar("T")

_CHUNK: Final = 200

_logger = logging.getLogger(__name__)


class PostgresStore:
    """A store over an open database, which is closed with it; to be used on one event loop.

    A worker that freezes for as long as `lease` counts as dead.
    """

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
        self._notices = Notices(database)
        self._notifier = Notifier(database, self._notices)
        self._reading = Reading(database)
        self._audit = PostgresAudit(database)
        self._lanes = (Lane(database), Lane(database))
        commits, claims = self._lanes
        self._writing = Writing(database, commits, self._notifier.notify, clock=clock)
        self._workers = Workers(database, self._notifier.notify, clock, lease)
        self._claiming = Claiming(database, claims, self._notifier, self._workers, max_attempts)
        self._is_closed = False

    @classmethod
    async def open(cls, url: str, *, clock: Timers = SYSTEM_CLOCK, lease: timedelta = LEASE) -> Self:
        """The store in the database that `url` names, its tables brought up to date.

        Raises:
            MissingExtraError: the extra `postgres` is not installed.
            StorageUrlError: the url means no database.
            DatabaseError: it cannot be opened; the class says why, and the text has no password.
        """
        return cls(await Database.open(url, package=__package__), clock=clock, lease=lease)

    # ── Records ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def commit(self, commit: Commit) -> Committed:
        check_commit(commit)
        if commit.session is not None:
            opened = await self._open(commit.session)
            return replace(await self.commit(replace(commit, session=None)), session=opened)
        while True:
            answer = await self._asked(self._writing.commit(commit), subject_of(commit))
            if not answer.refused:
                taken = tuple(Lease(run_id, commit.take, fence) for run_id, fence in answer.taken)
                return Committed(
                    first=answer.first,
                    place=answer.place,
                    sent=answer.sent,
                    opened=answer.opened,
                    taken=taken,
                    left=tuple(one for one in map(group_left, answer.left) if one is not None),
                    is_again=answer.again,
                )
            try:
                raise await self._asked(refusal(commit, answer, self._reading))
            except RowNotFoundError:
                if answer.refused not in {"known", "settled"}:
                    raise  # otherwise what stood in its way is gone by now

    async def entries(self, run_id: str, *, after: int = 0) -> list[bytes]:
        return await self._asked(self._reading.entries(run_id, after), run_id)

    async def body(self, run_id: str, digest: str) -> bytes:
        return await self._asked(self._reading.body(run_id, digest), run_id)

    async def controls(self, run_id: str, *, after: int = 0, limit: int = 100) -> list[ControlRow]:
        return await self._asked(self._reading.controls(run_id, after, limit), run_id)

    async def controls_of(self, after: Mapping[str, int], *, limit: int = 100) -> list[ControlRow]:
        return await self._asked(self._reading.controls_of(after, limit))

    async def was_sent(self, run_id: str, event_id: str) -> bool:
        return await self._asked(self._reading.was_sent(run_id, event_id), run_id)

    # ── Queue ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def join(self, worker: str) -> None:
        await self._asked(self._workers.join(worker))

    async def beat(self, worker: str) -> int:
        return await self._asked(self._workers.beat(worker))

    async def look(self, worker: str) -> None:
        await self._asked(self._workers.look(worker))

    async def leave(self, worker: str) -> None:
        await self._asked(self._workers.leave(worker))

    async def claim(self, worker: str, *, agents: Sequence[str] = (), limit: int = 100) -> list[Claimed]:
        return await self._asked(self._claiming.claim(worker, agents=agents, limit=limit, now=self._now()))

    async def unread(self, worker: str) -> dict[str, int]:
        rows: Any = await self._asked(fetch(self._database, SQL["inboxes"], worker=worker))
        return dict(rows)

    async def next_due(self, *, agents: Sequence[str] = ()) -> int | None:
        found: int | None = await self._asked(fetchval(self._database, SQL["next_due"], agents=list(agents) or None))
        return found

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        return self._notices.on_change(listener)

    # ── Sessions ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def open_session(
        self, who: Identity, *, context: bytes = b"{}", at: int | None = None, events: Sequence[NewEvent] = ()
    ) -> SessionChange:
        return await self._open(OpenSession(who=who, context=context, at=at, events=tuple(events)))

    async def _open(self, asked: OpenSession) -> SessionChange:
        body, blobs = events_alone(asked.events)
        values = {"now": self._now() if asked.at is None else asked.at, "context": asked.context}
        done, row = await self._change(asked.who, "open_session", **values, events=body, blobs=blobs)
        if done is None:
            return SessionChange(row, False)
        numbers = codec.decode(done.encode(), Answer)
        return SessionChange(row, True, numbers.first, numbers.place)

    async def touch_session(self, who: Identity, *, before: int | None = None) -> SessionChange:
        done, row = await self._change(who, "touch_session", now=self._now(), before=before)
        return SessionChange(row, done is not None)

    async def close_session(self, who: Identity, reason: str, *, seen_at: int | None = None) -> SessionChange:
        why = kept_text(reason)
        done, row = await self._change(who, "close_session", now=self._now(), reason=why, seen_at=seen_at)
        return SessionChange(row, done is not None)

    async def _change(self, who: Identity, name: str, **values: Any) -> tuple[Any, SessionRow | None]:
        """What a statement about a session gives, and the session after it, if it was opened."""
        names = {"tenant": who.tenant_id, "user": who.user_id, "session": who.session_id}
        done = await self._asked(fetchval(self._database, SQL[name], **names, **values))
        row = await self._asked(self._reading.session(who))
        return done, row if row is not None and row.is_opened else None

    # ── Views ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def runs(self, query: RunQuery) -> Page[RunRow]:
        return await self._asked(self._reading.runs(query))

    async def count_runs(self, query: RunQuery) -> RunCounts:
        return await self._asked(self._reading.count_runs(query))

    async def total_runs(self, query: RunQuery) -> RunTotals:
        return await self._asked(self._reading.total_runs(query))

    async def pauses(self, query: PauseQuery) -> Page[PauseRow]:
        return await self._asked(self._reading.pauses(query))

    async def count_pauses(self, query: PauseQuery) -> int:
        return await self._asked(self._reading.count_pauses(query))

    async def events(self, query: EventQuery) -> list[EventRow]:
        return await self._asked(self._reading.events(query))

    async def count_events(self, query: EventCountQuery) -> list[EventCount]:
        return await self._asked(self._reading.count_events(query))

    async def total_events(self, query: EventQuery) -> int:
        return await self._asked(self._reading.total_events(query))

    async def sessions(self, query: SessionQuery) -> Page[SessionRow]:
        return await self._asked(self._reading.sessions(query))

    async def list_sessions(self, query: SessionListQuery) -> list[SessionTotals]:
        return await self._asked(self._reading.list_sessions(query))

    async def count_sessions(self, query: SessionListQuery) -> int:
        return await self._asked(self._reading.count_sessions(query))

    async def groups(self, query: GroupQuery) -> Page[GroupRow]:
        return await self._asked(self._reading.groups(query))

    async def group(self, group_id: str, *, who: Identity) -> tuple[GroupRow, list[RunRow]]:
        return await self._asked(self._reading.group(group_id, who))

    # ── Upkeep ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def orphans(self, *, limit: int = 100) -> list[Orphan]:
        found: list[Orphan] = []
        for kind in ("paused_for_nothing", "parent_ended"):
            rows = await self._asked(fetch(self._database, SQL[kind], limit=limit))
            found += [Orphan(kind=kind, subject=row["run_id"], run_id=row["run_id"]) for row in rows]
        for kind in ("pause_of_ended", "group_not_ended"):
            pairs: Any = await self._asked(fetch(self._database, SQL[kind], limit=limit))
            found += [Orphan(kind=kind, subject=subject, run_id=run_id) for subject, run_id in pairs]
        return found[:limit]

    async def examine(self, part: Part, judges: Judges, after: Place) -> Examined:
        return await self._asked(self._audit.examine(part, judges, after))

    async def unblock(self, run_ids: Sequence[str]) -> int:
        found = len(await self._asked(fetch(self._database, SQL["unblock"], run_ids=[*run_ids])))
        if found:
            self._notifier.notify()
        return found

    async def delete(self, run_ids: Sequence[str]) -> int:
        deleted = 0
        for first in range(0, len(run_ids), _CHUNK):
            some = [*run_ids[first : first + _CHUNK]]
            deleted += int(await self._asked(fetchval(self._database, SQL["delete"], run_ids=some)))
        return deleted

    async def drop_pauses(self, before: int) -> int:
        return len(await self._asked(fetch(self._database, SQL["drop_pauses"], before=before)))

    async def patch(self, patch_id: str, *, who: Identity) -> PatchRow | None:
        return await self._asked(self._reading.patch(patch_id, who))

    async def aclose(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        await self._writing.aclose()
        await self._notifier.aclose()
        await self._notices.aclose()
        self._workers.close()
        for lane in self._lanes:
            lane.close()
        try:
            await fetch(self._database, SQL["forget_writers"], names=[lane.name for lane in self._lanes])
        except (DatabaseError, StoreClosedError) as error:
            _logger.debug("what this store wrote last is still noted, for a day: %s", error)
        await self._database.aclose()

    def _now(self) -> int:
        return micros(self._clock.now())

    async def _asked(self, asking: Coroutine[Any, Any, T], run_id: str = "") -> T:
        if self._is_closed:
            asking.close()
            raise StoreClosedError()
        try:
            return await asking
        except UnreadableError as error:
            raise DatabaseCorruptError(self._database.address, str(error), run_id=run_id) from error
        except DatabaseError as error:
            if not run_id or error.run_id:
                raise
            raise error.about(run_id) from error
