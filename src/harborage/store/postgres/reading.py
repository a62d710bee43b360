"""How rows are found in the tables: each function asks one question, mostly in one statement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec.structs import replace

from harborage.state.postgres.records import read_text
from harborage.store.errors import EntryDamagedError, RowNotFoundError
from harborage.store.postgres.statements import SQL, fetch, fetchrow, fetchval
from harborage.store.queries import (
    COUNT_CAP,
    EventCount,
    EventCountQuery,
    EventQuery,
    GroupQuery,
    Page,
    PauseQuery,
    RunCounts,
    RunQuery,
    RunTotals,
    SessionListQuery,
    SessionQuery,
    SessionTotals,
)
from harborage.store.rows import ControlRow, EventRow, GroupRow, PatchRow, PauseRow, RunRow, SessionRow, Status
from harborage.store.sql.lists import Lists, Place, Statement, group_query, members_query, page_of, place_of
from harborage.store.sql.rows import RowReader, checked_entries, run_totals, status_of
from harborage.store.sql.ways import is_sliced, runs_page, slice_query

if TYPE_CHECKING:
    from harborage.identity import Identity
    from harborage.state.postgres.database import Database
    from harborage.state.postgres.driver import Row

R = TypeVar("R", PauseRow, GroupRow, SessionRow)

LISTS: Final = Lists(SQL, list)
ROWS: Final = RowReader(read_text)
"""Free text may hold what Postgres refuses in text, and is kept escaped."""


class Reading:
    """Finds runs, pauses, events and sessions."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # ── One row ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self, run_id: str) -> RunRow:
        """The run with this id.

        Raises:
            RowNotFoundError: there is none.
        """
        page = await self.runs(RunQuery(run_ids=(run_id,), limit=1))
        if not page.rows:
            raise RowNotFoundError(run_id, what="run")
        return page.rows[0]

    async def pause(self, token: str) -> PauseRow:
        """The pause with this token.

        Raises:
            RowNotFoundError: there is none.
        """
        page = await self.pauses(PauseQuery(tokens=(token,), limit=1))
        if not page.rows:
            raise RowNotFoundError(token, what="pause")
        return page.rows[0]

    async def patch(self, patch_id: str, who: Identity) -> PatchRow | None:
        """A patch of this session, if there is one."""
        row: Any = await fetchrow(self._database, SQL["patch"], patch_id=patch_id, **_names(who))
        return None if row is None else ROWS.patch(row, patch_id, who)

    async def session(self, who: Identity) -> SessionRow | None:
        """The session of this identity, if it is known."""
        whose = SessionQuery(tenant=who.tenant_id, user=who.user_id, session=who.session_id)
        page = await self.sessions(replace(whose, include_closed=True, limit=1))
        return page.rows[0] if page.rows else None

    # ── A run's own ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def entries(self, run_id: str, after: int) -> list[bytes]:
        """The entries of a run's journal behind the first `after`.

        Raises:
            EntryDamagedError: one is missing, or is not what was kept.
        """
        rows: Any = await fetch(self._database, SQL["entries"], run_id=run_id, after=after)
        if not rows:
            return []
        return checked_entries(run_id, after, rows[0][0], [row[1:] for row in rows if row[1] is not None])

    async def body(self, run_id: str, digest: str) -> bytes:
        """The body that a run's entries name.

        Raises:
            EntryDamagedError: it is missing.
        """
        data = await fetchval(self._database, SQL["body"], digest=digest, run_id=run_id)
        if data is None:
            raise EntryDamagedError(run_id, digest=digest)
        found: bytes = data
        return found

    async def controls(self, run_id: str, after: int, limit: int | None) -> list[ControlRow]:
        """The controls of a run behind number `after` that it has not consumed."""
        rows = await fetch(self._database, SQL["unread"], run_id=run_id, after=after, limit=limit)
        return [*map(ROWS.control, rows)]

    async def controls_of(self, after: Mapping[str, int], limit: int) -> list[ControlRow]:
        """The controls of these runs, each behind its number, that they have not consumed."""
        values = {"run_ids": [*after], "afters": [*after.values()], "limit": limit}
        return [*map(ROWS.control, await fetch(self._database, SQL["unread_behind"], **values))]

    async def was_sent(self, run_id: str, event_id: str) -> bool:
        """Whether a control with this event id was sent to a run."""
        return bool(await fetch(self._database, SQL["was_sent"], run_id=run_id, event_id=event_id))

    # ── Lists ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def runs(self, query: RunQuery) -> Page[RunRow]:
        """The runs of a query, each way to find them for itself and then put together."""
        end = await self._slice_end(query) if is_sliced(query) else None
        found: list[tuple[Place, RunRow]] = []
        for statement in LISTS.runs(query if end is None else slice_query(query, end)):
            found += ((place_of(row), row) for row in map(ROWS.run, await self._fetch(statement)))
        return runs_page(found, query, end)

    async def _slice_end(self, query: RunQuery) -> Place | None:
        """The last run that a page looks at whose query no index answers; None when it looks at all that are left."""
        found: Any = await self._fetch(LISTS.slice_end(query))
        return (found[0][0], found[0][1]) if found else None

    async def count_runs(self, query: RunQuery) -> RunCounts:
        """How many runs a query finds by status, up to a cap; of what no index answers, in the newest runs."""
        end = await self._slice_end(query) if is_sliced(query) else None
        counts, left, is_capped = dict.fromkeys(Status, 0), COUNT_CAP, end is not None
        for text, values in LISTS.run_counts(query if end is None else slice_query(query, end), "run_counted"):
            for status, is_over, count in await fetch(self._database, text, **values, cap=left):
                if is_over:
                    is_capped = True
                else:
                    counts[status_of(int(status))] += int(count)
            left = COUNT_CAP - sum(counts.values())
        return RunCounts(by_status=counts, is_capped=is_capped)

    async def total_runs(self, query: RunQuery) -> RunTotals:
        """What the runs of a query used together."""
        return run_totals([(await self._fetch(one))[0] for one in LISTS.run_totals(query)])

    async def pauses(self, query: PauseQuery) -> Page[PauseRow]:
        """The pauses of a query."""
        return _page(map(ROWS.pause, await self._fetch(LISTS.pauses(query))), query.limit)

    async def count_pauses(self, query: PauseQuery) -> int:
        """How many pauses a query finds."""
        return await self._count(LISTS.pause_count(query))

    async def _count(self, statement: Statement) -> int:
        (found,) = await self._fetch(statement)
        count: Any = found
        return int(count[0])

    async def events(self, query: EventQuery) -> list[EventRow]:
        """The events of a query."""
        return [*map(ROWS.event, await self._fetch(LISTS.events(query)))]

    async def count_events(self, query: EventCountQuery) -> list[EventCount]:
        """How many events a query finds, by slot and type."""
        rows: Any = await self._fetch(LISTS.event_counts(query))
        return [EventCount(*row) for row in rows]

    async def total_events(self, query: EventQuery) -> int:
        """How many events a query finds."""
        return await self._count(LISTS.event_count(query))

    async def sessions(self, query: SessionQuery) -> Page[SessionRow]:
        """The sessions of a query."""
        return _page(map(ROWS.session, await self._fetch(LISTS.sessions(query))), query.limit)

    async def list_sessions(self, query: SessionListQuery) -> list[SessionTotals]:
        """The sessions of a query with their totals."""
        return [*map(ROWS.totals, await self._fetch(LISTS.listed(query)))]

    async def count_sessions(self, query: SessionListQuery) -> int:
        """How many sessions a query finds."""
        return await self._count(LISTS.listed_count(query))

    async def groups(self, query: GroupQuery) -> Page[GroupRow]:
        """The groups of a query."""
        return _page(map(ROWS.group, await self._fetch(LISTS.groups(query))), query.limit)

    async def group(self, group_id: str, who: Identity) -> tuple[GroupRow, list[RunRow]]:
        """A group of this session and its members in the order they joined.

        Raises:
            RowNotFoundError: there is none.
        """
        found = (await self.groups(group_query(who, group_id))).rows
        if not found:
            raise RowNotFoundError(group_id, what="group")
        return found[0], (await self.runs(members_query(found[0]))).rows

    async def _fetch(self, statement: Statement) -> Sequence[Row]:
        return await fetch(self._database, statement.text, **statement.values)


def _page(rows: Iterable[R], limit: int) -> Page[R]:
    return page_of([(place_of(row), row) for row in rows], limit)


def _names(who: Identity) -> dict[str, str]:
    return {"tenant": who.tenant_id, "user": who.user_id, "session": who.session_id}
