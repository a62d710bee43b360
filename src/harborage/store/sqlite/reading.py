"""How rows are found in the tables: each function is one step of a transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from msgspec.structs import replace

from harborage import codec
from harborage.identity import Identity
from harborage.store.errors import EntryDamagedError, RowNotFoundError
from harborage.store.queries import EventQuery, Page, RunCounts, RunQuery
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

    def row(self, tx: Transaction, num: int) -> RunRow:
        """The run with this number, as far as it can be read."""
        text = f"{self._sql['run_rows']}\n{self._sql['by_num']}"
        try:
            return _run(tx.execute(text, (num,)).fetchone())
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
        try:
            found = [_run(row) for row in self._found(tx, query, "run_rows")]
        except UNREADABLE:
            return self._runs_one_by_one(tx, query)
        found.sort(key=lambda row: (row.created_at, row.number), reverse=not query.oldest_first)
        rows = found[: query.limit]
        return Page(rows, (rows[-1].created_at, rows[-1].number) if len(found) > query.limit else None)

    def _runs_one_by_one(self, tx: Transaction, query: RunQuery) -> Page[RunRow]:
        found = sorted(self._found(tx, query, "run_keys"), reverse=not query.oldest_first)
        keys = found[: query.limit]
        return Page([self.row(tx, num) for _, num in keys], keys[-1] if len(found) > query.limit else None)

    def _found(self, tx: Transaction, query: RunQuery, what: str) -> list[Any]:
        """What a query finds, each way to find it for itself and then put together."""
        sql, found = self._sql, list[Any]()
        order = "oldest_run" if query.oldest_first else "newest_run"
        for way, values in self._ways(tx, query):
            at, num = query.after or (_BEGINNING if query.oldest_first else _END)
            values |= {"at": at, "num": num, "limit": query.limit + 1}
            text = f"{sql[what]}\n{sql[way]}\n{sql['run_filter']}\n{sql[order]}"
            found += tx.execute(text, values)
        return found

    def count_runs(self, tx: Transaction, query: RunQuery) -> RunCounts:
        """How many runs a query finds, by status as lists show it."""
        sql, counts = self._sql, dict.fromkeys(Status, 0)
        for way, values in self._ways(tx, query):
            text = f"{sql['run_counts']}\n{sql[way]}\n{sql['run_filter']}\n{sql['count_run']}"
            for status, count in tx.execute(text, values):
                counts[shown_status(status)] += count
        return RunCounts(by_status=counts)

    def _ways(self, tx: Transaction, query: RunQuery) -> list[tuple[str, dict[str, Any]]]:
        """The indexes at which to begin, each with its values; together they find each run once."""
        session: int | None = None
        if query.tenant and query.user and query.session:
            session = self.session(tx, Identity(query.tenant, query.user, query.session))
            if session is None:
                return []
        values = {
            "tenant": query.tenant,
            "user": query.user,
            "session": session,
            "agent": query.agent,
            "parent": query.parent,
            "root": query.root,
            "grp": query.group,
            "run_ids": _json(query.run_ids),
            "statuses": _json([status.code for status in query.statuses]),
            "kinds": _json(query.kinds),
            "reasons": _json(query.reasons),
            "since": query.since,
            "until": query.until,
            "longer_than": query.longer_than,
            "text": query.text.lower(),
        }
        if way := _narrowest(query, session):
            return [(way, values)]
        live = [status for status in query.statuses if status.code < Status.COMPLETE.code]
        bad = [status for status in query.statuses if status.code > Status.COMPLETE.code]
        if query.tenant and live and len(live) == len(query.statuses):
            return [("by_live", {**values, "status": status.code}) for status in live]
        if query.tenant and query.user and bad and len(bad) == len(query.statuses):
            return [("by_bad", {**values, "status": status.code}) for status in bad]
        if query.tenant and query.user:
            return [("by_user", values)]
        if query.tenant and query.agent:
            return [("by_agent", values)]
        if query.tenant:
            return [("by_tenant", values)]
        return [("by_live_anywhere" if live and len(live) == len(query.statuses) else "by_age", values)]

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
        session = self.session(tx, who)
        row: Any = None
        if session is not None:
            row = tx.execute(self._sql["group_row"], (session, group_id)).fetchone()
        if row is None:
            raise RowNotFoundError(f"no group {group_id} in this session")
        query = RunQuery(
            tenant=who.tenant_id,
            user=who.user_id,
            session=who.session_id,
            group=group_id,
            oldest_first=True,
            limit=max(1, row[7]),
        )
        return _group(group_id, who, row), self.runs(tx, query).rows

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


def _narrowest(query: RunQuery, session: int | None) -> str:
    """The index that leaves the fewest runs to look at, where one part of the query names it."""
    if query.run_ids:
        return "by_run_id"
    if query.only_blocked:
        return "by_blocked"
    if query.group:
        return "by_group"
    if query.parent:
        return "by_parent"
    return "" if session is None else "by_session"


def _json(values: Sequence[Any]) -> str | None:
    return codec.encode(values).decode() if values else None


def _run(row: Any) -> RunRow:
    (
        number, run_id, tenant, user, session, agent, parent, root, group, kind, priority, status, reason, blocked,
        description, about, created_at, updated_at, wake_at, deadline, awaits, position, owner, fence, attempts, woken,
        unread, children, tree, key, fingerprint, cascades, notifies, retains_turn, acknowledged, tool_count, tokens,
        cost,
    ) = row  # fmt: skip
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


def _group(group_id: str, who: Identity, row: Any) -> GroupRow:
    number, owner, retains, fails_fast, description, status, reason, members, live, created, sealed, ended, due = row
    return GroupRow(
        number=number,
        group_id=group_id,
        who=who,
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
