"""How rows are found in the tables: each function asks one question, mostly in one statement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from msgspec.structs import replace

from harborage.store.errors import EntryDamagedError, RowNotFoundError
from harborage.store.postgres.asking import SQL, fetch, fetchrow, fetchval
from harborage.store.postgres.rows import controls_of, event_of, group_of, pause_of, run_of, session_of
from harborage.store.queries import (
    COUNT_CAP,
    EventQuery,
    GroupQuery,
    Page,
    PauseQuery,
    RunCounts,
    RunQuery,
    SessionQuery,
)
from harborage.store.rows import ControlRow, EventRow, GroupRow, PatchRow, PauseRow, RunRow, Status
from harborage.store.ways import (
    edge_of,
    group_pieces,
    is_sliced,
    page_of,
    pause_pieces,
    run_parts,
    run_ways,
    slice_of,
    slice_query,
    statuses_of,
    widest_way,
)

if TYPE_CHECKING:
    from harborage.identity import Identity
    from harborage.state.postgres.database import Database
    from harborage.state.postgres.driver import Row
    from harborage.store.rows import SessionRow

__all__ = ["Reading", "checked"]

_STATUSES: Final = tuple(Status)
_END: Final = (1 << 62, 1 << 62)
_BEGINNING: Final = (-1, -1)


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
            raise RowNotFoundError(f"no run {run_id!r} in this store")
        return page.rows[0]

    async def pause(self, token: str) -> PauseRow:
        """The pause with this token.

        Raises:
            RowNotFoundError: there is none.
        """
        page = await self.pauses(PauseQuery(tokens=(token,), limit=1))
        if not page.rows:
            raise RowNotFoundError(f"no pause {token!r} in this store")
        return page.rows[0]

    async def patch(self, patch_id: str, who: Identity) -> PatchRow | None:
        """A patch of this session, if there is one."""
        row: Any = await fetchrow(self._database, SQL["patch"], patch_id=patch_id, **_names(who))
        if row is None:
            return None
        decision, created_at, decided_at = row
        return PatchRow(patch_id=patch_id, who=who, decision=decision, created_at=created_at, decided_at=decided_at)

    async def session(self, who: Identity) -> SessionRow | None:
        """The session of this identity, if it is known."""
        whose = SessionQuery(tenant=who.tenant_id, user=who.user_id, session=who.session_id)
        page = await self.sessions(replace(whose, include_closed=True, limit=1))
        return page.rows[0] if page.rows else None

    async def group(self, group_id: str, who: Identity) -> tuple[GroupRow, list[RunRow]]:
        """A group of this session and its members in the order they joined.

        Raises:
            RowNotFoundError: there is none.
        """
        found = (await self.groups(replace(_of_session(who), group_ids=(group_id,)))).rows
        if not found:
            raise RowNotFoundError(f"no group {group_id} in this session")
        query = RunQuery(
            tenant=who.tenant_id,
            user=who.user_id,
            session=who.session_id,
            group=group_id,
            oldest_first=True,
            is_whole=True,
            limit=max(1, found[0].members),
        )
        return found[0], (await self.runs(query)).rows

    async def groups(self, query: GroupQuery) -> Page[GroupRow]:
        """The groups of a query."""
        text = _list(["group_rows"], group_pieces(query), "newest_group")
        values = _values(query, "tenant user session group_ids statuses")
        found = [group_of(row) for row in await self._page(text, query.after or _END, query.limit, values)]
        rows = found[: query.limit]
        return Page(rows, (rows[-1].created_at, rows[-1].number) if len(found) > query.limit else None)

    # ── A run's own ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def entries(self, run_id: str, after: int) -> list[bytes]:
        """The entries of a run's journal behind the first `after`.

        Raises:
            EntryDamagedError: one is missing, or is not what was kept.
        """
        rows: Any = await fetch(self._database, SQL["entries"], run_id=run_id, after=after)
        if not rows:
            return []
        return checked(run_id, after, rows[0][0], [row[1:] for row in rows if row[1] is not None])

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
        return controls_of(await fetch(self._database, SQL["unread"], run_id=run_id, after=after, limit=limit))

    # ── Lists ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def runs(self, query: RunQuery) -> Page[RunRow]:
        """The runs of a query, each way to find them for itself and then put together."""
        end = await self._slice_end(query) if is_sliced(query) else None
        asked = query if end is None else slice_query(query, end)
        order = "oldest_run" if query.oldest_first else "newest_run"
        found: list[RunRow] = []
        for way in run_ways(asked):
            text = _list(run_parts(query), way.pieces, order)
            rows = await fetch(self._database, text, **_run_values(way.query), limit=query.limit + 1)
            found += map(run_of, rows)
        return page_of([((row.created_at, row.number), row) for row in found], query, end)

    async def _slice_end(self, query: RunQuery) -> tuple[int, int] | None:
        """The last run that a page looks at whose query no index answers; None when it looks at all that are left."""
        order = "oldest_end" if query.oldest_first else "newest_end"
        text = _list(["slice_end"], widest_way(query), order)
        skipped = slice_of(query) - 1
        found: Any = await fetchrow(self._database, text, **_run_values(query), limit=skipped)
        return None if found is None else (found[0], found[1])

    async def count_runs(self, query: RunQuery) -> RunCounts:
        """How many runs a query finds by status, up to a cap; of what no index answers, in the newest runs."""
        end = await self._slice_end(query) if is_sliced(query) else None
        asked = query if end is None else slice_query(query, end)
        counts, left, is_capped = dict.fromkeys(_STATUSES, 0), COUNT_CAP, end is not None
        for way in run_ways(asked):
            text = _list(["run_counts"], way.pieces, "run_counted")
            for status, is_over, count in await fetch(self._database, text, **_run_values(way.query), cap=left):
                if is_over:
                    is_capped = True
                else:
                    counts[_STATUSES[int(status)]] += int(count)
            left = COUNT_CAP - sum(counts.values())
        return RunCounts(by_status=counts, is_capped=is_capped)

    async def pauses(self, query: PauseQuery) -> Page[PauseRow]:
        """The pauses of a query."""
        text = _list(["pause_rows"], pause_pieces(query), "newest_pause")
        rows_found = await self._page(text, query.after or _END, query.limit, _pause_values(query))
        found = [pause_of(row) for row in rows_found]
        rows = found[: query.limit]
        return Page(rows, (rows[-1].opened_at, rows[-1].number) if len(found) > query.limit else None)

    async def count_pauses(self, query: PauseQuery) -> int:
        """How many pauses a query finds."""
        text = f"{SQL['pause_count']}\n{' and '.join(SQL[one] for one in pause_pieces(query))}"
        return int(await fetchval(self._database, text, **_pause_values(query)))

    async def events(self, query: EventQuery) -> list[EventRow]:
        """The events of a query."""
        conditions = [
            f"event_has_{name}"
            for name in ("tenant", "user", "session", "run_ids", "types", "since", "until")
            if _is_given(getattr(query, name))
        ]
        way = "event_by_session" if query.tenant and query.user and query.session else "event_by_sequence"
        order = "newest_event" if query.newest_first else "oldest_event"
        values = _values(query, "tenant user session run_ids types since until limit")
        after = query.after or (_END[0] if query.newest_first else 0)
        text = _list(["event_rows"], [way, *conditions], order)
        return [event_of(row) for row in await fetch(self._database, text, **values, after=after)]

    async def sessions(self, query: SessionQuery) -> Page[SessionRow]:
        """The sessions of a query."""
        asked = {
            "session_has_user": query.user and not query.tenant,
            "session_has_session": query.session,
            "session_has_since": query.seen_since is not None,
            "session_has_until": query.seen_until is not None,
            "session_is_open": not query.include_closed,
            "session_is_opened": query.only_opened,
            "session_is_left": query.seen_before is not None or query.opened_before is not None,
        }
        conditions = [_way_of_sessions(query), *(name for name, is_asked in asked.items() if is_asked)]
        text = _list(["session_rows"], conditions, "newest_session")
        values = _values(query, "tenant user session seen_before opened_before")
        values |= {"since": query.seen_since, "until": query.seen_until}
        found = [session_of(row) for row in await self._page(text, query.after or _END, query.limit, values)]
        rows = found[: query.limit]
        return Page(rows, (rows[-1].opened_at, rows[-1].number) if len(found) > query.limit else None)

    async def _page(self, text: str, after: tuple[int, int], limit: int, values: Mapping[str, Any]) -> Iterable[Row]:
        """One row more than a page has, so that it is known whether there are more."""
        at, num = after
        return await fetch(self._database, text, **(dict(values) | {"at": at, "num": num, "limit": limit + 1}))


def checked(run_id: str, after: int, count: int, rows: Iterable[Any]) -> list[bytes]:
    """The entries behind the first `after` of a journal that has `count`.

    Raises:
        EntryDamagedError: one is missing, or is not what was kept.
    """
    found: list[bytes] = []
    for position, crc, data in rows:
        if position != after + len(found) + 1 or crc32(data) != crc:
            break
        found.append(data)
    if after + len(found) < count:
        raise EntryDamagedError(run_id, after + len(found))
    return found


def _list(rows: list[str], conditions: list[str], order: str) -> str:
    """A list as one statement."""
    begun = "\n".join(SQL[one] for one in rows)
    return f"{begun}\n{' and '.join(SQL[one] for one in conditions)}\n{SQL[order]}"


def _run_values(query: RunQuery) -> dict[str, Any]:
    values = _values(query, "tenant user session agent parent root group run_ids kinds reasons since until longer_than")
    at, num = edge_of(query, _BEGINNING, _END)
    statuses = [status.code for status in statuses_of(query)]
    status = statuses[0] if statuses else None
    return values | {"status": status, "statuses": statuses, "text": query.text.lower(), "at": at, "num": num}


def _pause_values(query: PauseQuery) -> dict[str, Any]:
    return _values(query, "tenant user session tokens run_ids statuses reasons since until due")


def _way_of_sessions(query: SessionQuery) -> str:
    if query.tenant and query.user:
        return "session_by_name" if query.session else "session_by_user"
    if query.tenant:
        return "session_by_tenant"
    return "session_by_open" if query.only_opened and not query.include_closed else "session_by_age"


def _values(query: object, names: str) -> dict[str, Any]:
    """Fields of a query as the driver takes them."""
    values = {name: getattr(query, name) for name in names.split()}
    return {name: [str(one) for one in value] if isinstance(value, tuple) else value for name, value in values.items()}


def _of_session(who: Identity) -> GroupQuery:
    return GroupQuery(tenant=who.tenant_id, user=who.user_id, session=who.session_id)


def _names(who: Identity) -> dict[str, str]:
    return {"tenant": who.tenant_id, "user": who.user_id, "session": who.session_id}


def _is_given(value: Any) -> bool:
    """Whether a field narrows anything."""
    return value is not None and value not in ("", ())
