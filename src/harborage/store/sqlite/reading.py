"""How rows are found in the tables: each function is one step of a transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from msgspec.structs import replace

from harborage import codec
from harborage.identity import Identity
from harborage.store.errors import EntryDamagedError, RowNotFoundError
from harborage.store.queries import EventQuery, GroupQuery, Page, RunCounts, RunQuery
from harborage.store.rows import (
    ControlRow,
    EventRow,
    GroupRow,
    GroupStatus,
    PatchRow,
    RunRow,
    Status,
)
from harborage.store.sqlite.failures import UnreadableError
from harborage.store.sqlite.pauses import Pauses
from harborage.store.sqlite.salvage import (
    UNREADABLE,
    check_times,
    salvaged_run,
    salvaged_text,
    shown_status,
    status_of,
)
from harborage.store.sqlite.sessions import Sessions
from harborage.store.ways import (
    edge_of,
    group_pieces,
    is_counted,
    is_sliced,
    page_of,
    run_parts,
    run_ways,
    slice_of,
    slice_query,
    statuses_of,
    widest_way,
)

if TYPE_CHECKING:
    from harborage.store.sqlite.stations import Transaction

__all__ = ["Reading"]

_LAST: Final = (1 << 63) - 1
_END: Final = (_LAST, _LAST)
_BEGINNING: Final = (-_LAST, -1)


class Reading:
    """Finds runs and events, by `pauses` what they wait for, and by `sessions` what they belong to."""

    def __init__(self, sql: Mapping[str, str]) -> None:
        self._sql = sql
        self.pauses = Pauses(sql)
        self.sessions = Sessions(sql)

    # ── One row ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self, tx: Transaction, run_id: str) -> RunRow:
        """The run with this id.

        Raises:
            RowNotFoundError: there is none.
        """
        page = self.runs(tx, RunQuery(run_ids=(run_id,), limit=1))
        if not page.rows:
            raise RowNotFoundError(f"no run {run_id!r} in this store")
        return page.rows[0]

    def row(self, tx: Transaction, num: int, *, is_whole: bool = False) -> RunRow:
        """The run with this number, as far as it can be read."""
        text = f"{self._sql['run_rows']}\n{self._sql['run_whole'] if is_whole else ''}\n{self._sql['run_from']}"
        try:
            return _run(tx.execute(f"{text}\n{self._sql['by_num']}", (num,)).fetchone())
        except UNREADABLE:
            return salvaged_run(tx.execute(self._sql["salvage"], (num,)).fetchone())

    def session(self, tx: Transaction, who: Identity) -> int | None:
        """The number of a session, None for one that was never opened."""
        found: Any = tx.execute(self._sql["session"], (who.tenant_id, who.user_id, who.session_id)).fetchone()
        return None if found is None else found[0]

    # ── A run's own ─────────────────────────────────────────────────────────────────────────────────────────────────

    def entries(self, tx: Transaction, run_id: str, after: int) -> list[bytes]:
        """The entries of a run's journal behind the first `after`.

        Raises:
            EntryDamagedError: one is missing, or is not what was kept.
        """
        count: Any = tx.execute(self._sql["position"], (run_id,)).get
        if count is None:
            return []
        found: list[bytes] = []
        for position, crc, data in tx.execute(self._sql["journal"], (run_id, after)):
            if position != after + len(found) + 1 or crc32(data) != crc:
                break
            found.append(data)
        if after + len(found) < count:
            raise EntryDamagedError(run_id, after + len(found))
        return found

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
            return [_control(row) for row in tx.execute(self._sql["unread"], values)]
        except UnicodeDecodeError:
            return [_salvaged_control(row) for row in tx.execute(self._sql["unread_raw"], values)]

    def inboxes(self, tx: Transaction, worker: str) -> dict[str, int]:
        """The runs of a worker that have unread controls, each with the number of the last one."""
        try:
            return dict(tx.execute(self._sql["inboxes"], (worker,)))
        except UnicodeDecodeError:
            rows: list[Any] = tx.execute(self._sql["inboxes_raw"], (worker,)).fetchall()
            return {salvaged_text(run_id): last for run_id, last in rows}

    # ── Lists ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def runs(self, tx: Transaction, query: RunQuery) -> Page[RunRow]:
        """The runs of a query; where one cannot be read they are read one by one."""
        end = self._slice_end(tx, query) if is_sliced(query) else None
        asked = query if end is None else slice_query(query, end)
        try:
            rows = [_run(row) for row in self._found(tx, asked, *run_parts(query))]
            found = [((row.created_at, row.number), row) for row in rows]
        except UNREADABLE:
            keys: list[tuple[int, int]] = self._found(tx, asked, "run_keys")
            found = [(key, self.row(tx, key[1], is_whole=query.is_whole)) for key in keys]
        return page_of(found, query, end)

    def _found(self, tx: Transaction, query: RunQuery, *parts: str) -> list[Any]:
        """What a query finds, each way to find it for itself and then put together."""
        sql, found = self._sql, list[Any]()
        order = "oldest_run" if query.oldest_first else "newest_run"
        begun = "\n".join(sql[part] for part in parts)
        for way in run_ways(query):
            values = _run_values(way.query) | {"limit": query.limit + 1}
            found += tx.execute(f"{begun}\n{self._which(way.pieces)}\n{sql[order]}", values)
        return found

    def _which(self, pieces: Sequence[str]) -> str:
        return "\nAND ".join(self._sql[name] for name in pieces)

    def _slice_end(self, tx: Transaction, query: RunQuery) -> tuple[int, int] | None:
        """The last run that a page looks at whose query no index answers; None when it looks at all that are left."""
        order = "oldest_end" if query.oldest_first else "newest_end"
        text = f"{self._sql['slice_end']}\n{self._which(widest_way(query))}\n{self._sql[order]}"
        found: Any = tx.execute(text, _run_values(query) | {"limit": slice_of(query) - 1}).fetchone()
        end: tuple[int, int] | None = found
        return end

    def count_runs(self, tx: Transaction, query: RunQuery) -> RunCounts:
        """How many runs a query finds, by status as lists show it; of what no index answers, in the newest runs."""
        if is_counted(query):
            return self._counts_by_index(tx, query)
        sql, counts = self._sql, dict.fromkeys(Status, 0)
        end = self._slice_end(tx, query) if is_sliced(query) else None
        asked = query if end is None else slice_query(query, end)
        for way in run_ways(asked):
            text = f"{sql['run_counts']}\n{self._which(way.pieces)}\n{sql['count_run']}"
            for status, count in tx.execute(text, _run_values(way.query)):
                counts[shown_status(status)] += count
        return RunCounts(by_status=counts, is_capped=end is not None)

    def _counts_by_index(self, tx: Transaction, query: RunQuery) -> RunCounts:
        """The live and the bad ones by indexes that hold only them; all others are complete."""
        sql, counts = self._sql, dict.fromkeys(Status, 0)
        values, pieces = _run_values(query), widest_way(query)
        whose = [f"run_has_{name}" for name in ("tenant", "user") if getattr(query, name)]
        others = "".join(f"\nAND {sql[name]}" for name in dict.fromkeys((*whose, *pieces)))
        for what in ("live_counts", "bad_counts"):
            for status, count in tx.execute(f"{sql[what]}{others}\n{sql['count_run']}", values):
                counts[shown_status(status)] += count
        if not query.statuses or Status.COMPLETE in query.statuses:
            every: Any = tx.execute(f"{sql['run_count']}\n{self._which(pieces)}", values).get
            counts[Status.COMPLETE] = every - sum(counts.values())
        return RunCounts(
            by_status={one: count if one in (query.statuses or counts) else 0 for one, count in counts.items()}
        )

    def events(self, tx: Transaction, query: EventQuery) -> list[EventRow]:
        """The events of a query; those that are not what was kept are shown as far as they can be read."""
        session: int | None = None
        if query.tenant and query.user and query.session:
            session = self.session(tx, Identity(query.tenant, query.user, query.session))
            if session is None:
                return []
        values = {
            "tenant": query.tenant,
            "user": query.user,
            "session": session,
            "run_ids": _json(query.run_ids),
            "types": _json(query.types),
            "since": query.since,
            "until": query.until,
            "after": query.after or (_END[0] if query.newest_first else 0),
            "limit": query.limit,
        }
        sql = self._sql
        way = "event_by_sequence" if session is None else "event_by_session"
        order = "newest_event" if query.newest_first else "oldest_event"
        which = f"{sql[way]}\n{sql['event_filter']}\n{sql[order]}"
        try:
            return [_event(row) for row in tx.execute(f"{sql['event_rows']}\n{which}", values)]
        except UnicodeDecodeError:
            return [_salvaged_event(row) for row in tx.execute(f"{sql['event_rows_raw']}\n{which}", values)]

    def group(self, tx: Transaction, group_id: str, who: Identity) -> tuple[GroupRow, list[RunRow]]:
        """A group of this session and its members in the order they joined.

        Raises:
            RowNotFoundError: there is none.
        """
        whose = GroupQuery(tenant=who.tenant_id, user=who.user_id, session=who.session_id, group_ids=(group_id,))
        found = self.groups(tx, whose).rows
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
        return found[0], self.runs(tx, query).rows

    def groups(self, tx: Transaction, query: GroupQuery) -> Page[GroupRow]:
        """The groups of a query."""
        at, num = query.after or _END
        values = {
            "tenant": query.tenant,
            "user": query.user,
            "session": query.session,
            "group_ids": _json(query.group_ids),
            "statuses": _json(query.statuses),
            "at": at,
            "num": num,
            "limit": query.limit + 1,
        }
        text = f"{self._sql['group_rows']}\n{self._which(group_pieces(query))}\n{self._sql['newest_group']}"
        found = [_group(row) for row in tx.execute(text, values)]
        rows = found[: query.limit]
        return Page(rows, (rows[-1].created_at, rows[-1].number) if len(found) > query.limit else None)

    def patch(self, tx: Transaction, patch_id: str, who: Identity) -> PatchRow | None:
        """A patch of this session, if there is one."""
        session = self.session(tx, who)
        row: Any = None
        if session is not None:
            row = tx.execute(self._sql["patch"], (session, patch_id)).fetchone()
        if row is None:
            return None
        decision, created_at, decided_at = row
        return PatchRow(patch_id=patch_id, who=who, decision=decision, created_at=created_at, decided_at=decided_at)


def _control(row: Any) -> ControlRow:
    number, run_id, event_id, kind, sent_at, data = row
    return ControlRow(number=number, run_id=run_id, event_id=event_id, type=kind, sent_at=sent_at, data=data)


def _salvaged_control(row: Any) -> ControlRow:
    number, run_id, event_id, kind, sent_at, data = row
    return _control((number, run_id, salvaged_text(event_id), salvaged_text(kind), sent_at, data))


def _run_values(query: RunQuery) -> dict[str, Any]:
    """What the pieces of a query name."""
    at, num = edge_of(query, _BEGINNING, _END)
    statuses = statuses_of(query)
    return {
        "tenant": query.tenant,
        "user": query.user,
        "session": query.session,
        "agent": query.agent,
        "parent": query.parent,
        "root": query.root,
        "grp": query.group,
        "run_ids": _json(query.run_ids),
        "status": statuses[0].code if statuses else None,
        "statuses": _json([status.code for status in statuses]),
        "kinds": _json(query.kinds),
        "reasons": _json(query.reasons),
        "since": query.since,
        "until": query.until,
        "longer_than": query.longer_than,
        "text": query.text.lower(),
        "at": at,
        "num": num,
    }


def _json(values: Sequence[Any]) -> str | None:
    return codec.encode(values).decode() if values else None


def _run(row: Any) -> RunRow:
    (
        number, run_id, tenant, user, session, agent, parent, root, group, kind, priority, status, reason, blocked,
        description, about, created_at, updated_at, wake_at, deadline, awaits, position, owner, fence, attempts, woken,
        unread, children, tree, key, fingerprint, cascades, notifies, retains_turn, acknowledged, tool_count, tokens,
        cost, *whole,
    ) = row  # fmt: skip
    asked, outcome = whole or (None, None)
    if session is None:
        raise UnreadableError("its session is not there")
    check_times(created_at, updated_at, wake_at or 0, deadline or 0)
    return RunRow(
        number=number,
        run_id=run_id,
        who=Identity(tenant, user, session),
        agent=agent,
        parent=parent or "",
        root=root or "",
        group=group or "",
        kind=kind,
        priority=priority,
        status=status_of(status),
        reason=reason,
        blocked=blocked or "",
        description=description,
        about=about,
        asked=asked or b"",
        outcome=outcome or b"",
        created_at=created_at,
        updated_at=updated_at,
        wake_at=wake_at,
        deadline=deadline,
        awaits=awaits or "",
        position=position,
        owner=owner or "",
        fence=fence,
        attempts=attempts,
        is_woken=bool(woken),
        unread=unread,
        children=children,
        tree=tree,
        key=key or "",
        fingerprint=fingerprint,
        is_cascading=bool(cascades),
        notifies=bool(notifies),
        retains_turn=bool(retains_turn),
        is_acknowledged=bool(acknowledged),
        tool_count=tool_count,
        tokens=tokens,
        cost=cost,
    )


def _event(row: Any) -> EventRow:
    sequence, tenant, user, session, place, run_id, kind, at, crc, data = row
    return EventRow(
        sequence=sequence,
        who=Identity(tenant, user, session),
        place=place,
        run_id=run_id,
        type=kind,
        at=at,
        data=data,
        is_damaged=crc32(data) != crc,
    )


def _salvaged_event(row: Any) -> EventRow:
    sequence, tenant, user, session, place, run_id, kind, at, crc, data = row
    run, named = salvaged_text(run_id), salvaged_text(kind)
    event = _event((sequence, tenant, user, session, place, run, named, at, crc, data))
    return event if (run.encode(), named.encode()) == (run_id, kind) else replace(event, is_damaged=True)


def _group(row: Any) -> GroupRow:
    number, group_id, tenant, user, session, owner, retains, fails_fast, description, status, reason, *rest = row
    members, live, created, sealed, ended, due = rest
    return GroupRow(
        number=number,
        group_id=group_id,
        who=Identity(tenant, user, session),
        owner=owner,
        retains_turn=bool(retains),
        fails_fast=bool(fails_fast),
        description=description,
        status=GroupStatus(status),
        reason=reason,
        members=members,
        open_members=live,
        created_at=created,
        sealed_at=sealed,
        ended_at=ended,
        deadline=due,
    )
