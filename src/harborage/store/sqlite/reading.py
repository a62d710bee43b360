"""How rows are found in the tables: each function is one step of a transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from harborage import codec
from harborage.store.errors import EntryDamagedError, RowNotFoundError
from harborage.store.queries import (
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
from harborage.store.sql.rows import RowReader, checked_entries, run_totals
from harborage.store.sql.ways import is_counted, is_sliced, runs_page, slice_query, widest_way
from harborage.store.sqlite.salvage import (
    UNREADABLE,
    checked_pause,
    checked_run,
    checked_session,
    salvaged_pause,
    salvaged_run,
    salvaged_session,
    salvaged_text,
    shown_status,
)

if TYPE_CHECKING:
    from harborage.identity import Identity
    from harborage.store.sqlite.transactions import Transaction

R = TypeVar("R", RunRow, PauseRow, SessionRow)

_ROWS = RowReader()


class Reading:
    """Finds runs, pauses, groups, sessions and events. Where a row cannot be read it hides no other."""

    def __init__(self, sql: Mapping[str, str]) -> None:
        self._sql = sql
        self._lists = Lists(sql, _json)

    # ── One row ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self, tx: Transaction, run_id: str) -> RunRow:
        """The run with this id.

        Raises:
            RowNotFoundError: there is none.
        """
        page = self.runs(tx, RunQuery(run_ids=(run_id,), limit=1))
        if not page.rows:
            raise RowNotFoundError(run_id, what="run")
        return page.rows[0]

    def pause(self, tx: Transaction, token: str) -> PauseRow:
        """The pause with this token.

        Raises:
            RowNotFoundError: there is none.
        """
        page = self.pauses(tx, PauseQuery(tokens=(token,), limit=1))
        if not page.rows:
            raise RowNotFoundError(token, what="pause")
        return page.rows[0]

    def row(self, tx: Transaction, num: int, *, is_whole: bool = False) -> RunRow:
        """The run with this number, as far as it can be read."""
        begun = ("run_rows", "run_whole", "run_from") if is_whole else ("run_rows", "run_from")
        return self._one(tx, num, (*begun, "by_num"), _run, "salvage", salvaged_run)

    def session_row(self, tx: Transaction, num: int) -> SessionRow:
        """The session with this number, as far as it can be read."""
        return self._one(tx, num, ("session_rows", "session_by_num"), _session, "salvaged_session", salvaged_session)

    def pause_row(self, tx: Transaction, num: int) -> PauseRow:
        """The pause with this number, as far as it can be read."""
        return self._one(tx, num, ("pause_rows", "pause_by_num"), _pause, "salvaged_pause", salvaged_pause)

    def _one(
        self,
        tx: Transaction,
        num: int,
        parts: Sequence[str],
        read: Callable[[Any], R],
        salvage: str,
        salvaged: Callable[[Any], R],
    ) -> R:
        try:
            return read(tx.execute("\n".join(self._sql[part] for part in parts), (num,)).fetchone())
        except UNREADABLE:
            return salvaged(tx.execute(self._sql[salvage], (num,)).fetchone())

    def session(self, tx: Transaction, who: Identity) -> int | None:
        """The number of a session, None for one that was never opened."""
        found: Any = tx.execute(self._sql["session"], (who.tenant_id, who.user_id, who.session_id)).fetchone()
        return None if found is None else found[0]

    def patch(self, tx: Transaction, patch_id: str, who: Identity) -> PatchRow | None:
        """A patch of this session, if there is one."""
        session = self.session(tx, who)
        row: Any = None
        if session is not None:
            row = tx.execute(self._sql["patch"], (session, patch_id)).fetchone()
        return None if row is None else _ROWS.patch(row, patch_id, who)

    # ── A run's own ─────────────────────────────────────────────────────────────────────────────────────────────────

    def entries(self, tx: Transaction, run_id: str, after: int) -> list[bytes]:
        """The entries of a run's journal behind the first `after`.

        Raises:
            EntryDamagedError: one is missing, or is not what was kept.
        """
        count: Any = tx.execute(self._sql["position"], (run_id,)).get
        if count is None:
            return []
        return checked_entries(run_id, after, count, tx.execute(self._sql["journal"], (run_id, after)))

    def body(self, tx: Transaction, run_id: str, digest: str) -> bytes:
        """The body that a run's entries name.

        Raises:
            EntryDamagedError: it is missing.
        """
        data: Any = tx.execute(self._sql["body"], (digest, run_id)).get
        if data is None:
            raise EntryDamagedError(run_id, digest=digest)
        found: bytes = data
        return found

    def controls(self, tx: Transaction, run_id: str, after: int, limit: int) -> list[ControlRow]:
        """The controls of a run behind number `after` that it has not consumed."""
        values = (run_id, after, limit)
        try:
            return [_ROWS.control(row) for row in tx.execute(self._sql["unread"], values)]
        except UnicodeDecodeError:
            return [_salvaged_control(row) for row in tx.execute(self._sql["unread_raw"], values)]

    def controls_of(self, tx: Transaction, after: Mapping[str, int], limit: int) -> list[ControlRow]:
        """The controls of these runs, each behind its number, that they have not consumed."""
        found = [row for run_id, number in after.items() for row in self.controls(tx, run_id, number, limit)]
        return sorted(found, key=lambda row: row.number)

    def was_sent(self, tx: Transaction, run_id: str, event_id: str) -> bool:
        """Whether a control with this event id was sent to a run."""
        return tx.execute(self._sql["was_sent"], (run_id, event_id)).get is not None

    def inboxes(self, tx: Transaction, worker: str) -> dict[str, int]:
        """The runs of a worker that have unread controls, each with the number of the last one."""
        try:
            return dict(tx.execute(self._sql["inboxes"], (worker,)))
        except UnicodeDecodeError:
            rows: list[Any] = tx.execute(self._sql["inboxes_raw"], (worker,)).fetchall()
            return {salvaged_text(run_id): last for run_id, last in rows}

    # ── Lists ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def runs(self, tx: Transaction, query: RunQuery) -> Page[RunRow]:
        """The runs of a query, each way to find them for itself and then put together."""
        end = self._slice_end(tx, query) if is_sliced(query) else None
        asked = query if end is None else slice_query(query, end)

        def one(tx: Transaction, num: int) -> RunRow:
            return self.row(tx, num, is_whole=query.is_whole)

        found: list[tuple[Place, RunRow]] = []
        for rows, keys in zip(self._lists.runs(asked), self._lists.runs(asked, "run_keys"), strict=True):
            found += _found(tx, rows, keys, _run, one)
        return runs_page(found, query, end)

    def _slice_end(self, tx: Transaction, query: RunQuery) -> Place | None:
        """The last run that a page looks at whose query no index answers; None when it looks at all that are left."""
        found: Any = tx.execute(*self._lists.slice_end(query)).fetchone()
        end: Place | None = found
        return end

    def count_runs(self, tx: Transaction, query: RunQuery) -> RunCounts:
        """How many runs a query finds, by status as lists show it; of what no index answers, in the newest runs."""
        if is_counted(query):
            return self._counts_by_index(tx, query)
        counts = dict.fromkeys(Status, 0)
        end = self._slice_end(tx, query) if is_sliced(query) else None
        asked = query if end is None else slice_query(query, end)
        for statement in self._lists.run_counts(asked, "count_run"):
            for status, count in tx.execute(*statement):
                counts[shown_status(status)] += count
        return RunCounts(by_status=counts, is_capped=end is not None)

    def _counts_by_index(self, tx: Transaction, query: RunQuery) -> RunCounts:
        """The live and the bad ones by indexes that hold only them; all others are complete."""
        sql, counts = self._sql, dict.fromkeys(Status, 0)
        values, pieces = self._lists.run_values(query), widest_way(query)
        whose = [f"run_has_{name}" for name in ("tenant", "user") if getattr(query, name)]
        others = self._lists.which([*dict.fromkeys((*whose, *pieces))])
        for what in ("live_counts", "bad_counts"):
            for status, count in tx.execute(f"{sql[what]}\nAND {others}\n{sql['count_run']}", values):
                counts[shown_status(status)] += count
        if not query.statuses or Status.COMPLETE in query.statuses:
            every: Any = tx.execute(f"{sql['run_count']}\n{self._lists.which(pieces)}", values).get
            counts[Status.COMPLETE] = every - sum(counts.values())
        return RunCounts(
            by_status={one: count if one in (query.statuses or counts) else 0 for one, count in counts.items()}
        )

    def total_runs(self, tx: Transaction, query: RunQuery) -> RunTotals:
        """What the runs of a query used together."""
        return run_totals(tx.execute(*statement).fetchone() for statement in self._lists.run_totals(query))

    def pauses(self, tx: Transaction, query: PauseQuery) -> Page[PauseRow]:
        """The pauses of a query; only those of its page are read whole."""
        rows = self._lists.pauses(query, ("pause_rows", "pause_page"), ("newest_pause", "pause_paged"))
        keys = self._lists.pauses(query, ("pause_keys",))
        return page_of(_found(tx, rows, keys, _pause, self.pause_row), query.limit)

    def count_pauses(self, tx: Transaction, query: PauseQuery) -> int:
        """How many pauses a query finds."""
        count: Any = tx.execute(*self._lists.pause_count(query)).get
        return int(count)

    def sessions(self, tx: Transaction, query: SessionQuery) -> Page[SessionRow]:
        """The sessions of a query."""
        rows, keys = self._lists.sessions(query), self._lists.sessions(query, "session_keys")
        return page_of(_found(tx, rows, keys, _session, self.session_row), query.limit)

    def list_sessions(self, tx: Transaction, query: SessionListQuery) -> list[SessionTotals]:
        """The sessions of a query with their totals; where a row cannot be read they are shown without."""
        try:
            return [_totals(row) for row in tx.execute(*self._lists.listed(query))]
        except UNREADABLE:
            keys: Any = tx.execute(*self._lists.listed(query, are_keys=True)).fetchall()
            return [SessionTotals(row=self.session_row(tx, num)) for (num,) in keys]

    def count_sessions(self, tx: Transaction, query: SessionListQuery) -> int:
        """How many sessions a query finds."""
        count: Any = tx.execute(*self._lists.listed_count(query)).get
        return int(count)

    def total_events(self, tx: Transaction, query: EventQuery) -> int:
        """How many events a query finds."""
        count: Any = tx.execute(*self._lists.event_count(query)).get
        return int(count)

    def events(self, tx: Transaction, query: EventQuery) -> list[EventRow]:
        """The events of a query; those that are not what was kept are shown as far as they can be read."""
        try:
            return [_ROWS.event(row) for row in tx.execute(*self._lists.events(query))]
        except UnicodeDecodeError:
            return [_salvaged_event(row) for row in tx.execute(*self._lists.events(query, "event_rows_raw"))]

    def count_events(self, tx: Transaction, query: EventCountQuery) -> list[EventCount]:
        """How many events a query finds, by slot and type."""
        rows: Any = tx.execute(*self._lists.event_counts(query))
        return [EventCount(slot, salvaged_text(kind), count) for slot, kind, count in rows]

    def groups(self, tx: Transaction, query: GroupQuery) -> Page[GroupRow]:
        """The groups of a query."""
        rows = [_ROWS.group(row) for row in tx.execute(*self._lists.groups(query))]
        return page_of([(place_of(row), row) for row in rows], query.limit)

    def group(self, tx: Transaction, group_id: str, who: Identity) -> tuple[GroupRow, list[RunRow]]:
        """A group of this session and its members in the order they joined.

        Raises:
            RowNotFoundError: there is none.
        """
        found = self.groups(tx, group_query(who, group_id)).rows
        if not found:
            raise RowNotFoundError(group_id, what="group")
        return found[0], self.runs(tx, members_query(found[0])).rows


def _found(
    tx: Transaction,
    rows: Statement,
    keys: Statement,
    read: Callable[[Any], R],
    one: Callable[[Transaction, int], R],
) -> list[tuple[Place, R]]:
    """Rows with their places; where one of them cannot be read they are read one by one."""
    try:
        return [(place_of(row), row) for row in [read(row) for row in tx.execute(*rows)]]
    except UNREADABLE:
        places: Any = tx.execute(*keys).fetchall()
        return [(place, one(tx, place[1])) for place in places]


def _run(row: Any) -> RunRow:
    return checked_run(_ROWS.run(row))


def _pause(row: Any) -> PauseRow:
    return checked_pause(_ROWS.pause(row))


def _session(row: Any) -> SessionRow:
    return checked_session(_ROWS.session(row))


def _totals(row: Any) -> SessionTotals:
    found = _ROWS.totals(row)
    checked_session(found.row)
    return found


def _salvaged_control(row: Any) -> ControlRow:
    number, run_id, event_id, kind, sent_at, data = row
    return _ROWS.control((number, run_id, salvaged_text(event_id), salvaged_text(kind), sent_at, data))


def _salvaged_event(row: Any) -> EventRow:
    sequence, tenant, user, session, place, run_id, kind, at, crc, data = row
    run, named = salvaged_text(run_id), salvaged_text(kind)
    event = _ROWS.event((sequence, tenant, user, session, place, run, named, at, crc, data))
    return event if (run.encode(), named.encode()) == (run_id, kind) else replace(event, is_damaged=True)


def _json(values: Sequence[Any]) -> str | None:
    return codec.encode(values).decode() if values else None
