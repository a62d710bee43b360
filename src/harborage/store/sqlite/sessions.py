"""How sessions are found in their table, and changed: each method is one step of a transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from harborage.identity import Identity
from harborage.store.port import SessionChange
from harborage.store.queries import Page, SessionQuery
from harborage.store.rows import SessionRow
from harborage.store.sqlite.salvage import UNREADABLE, check_times, salvaged_session

if TYPE_CHECKING:
    from harborage.store.sqlite.stations import Transaction

__all__ = ["Sessions"]

_END: Final = ((1 << 63) - 1, (1 << 63) - 1)


class Sessions:
    """Finds, opens, sees and closes sessions."""

    def __init__(self, sql: Mapping[str, str]) -> None:
        self._sql = sql

    def find(self, tx: Transaction, query: SessionQuery) -> Page[SessionRow]:
        """The sessions of a query; where one cannot be read they are read one by one."""
        at, num = query.after or _END
        values = _values(query) | {"at": at, "num": num, "limit": query.limit + 1}
        sql = self._sql
        which = f"{sql[_way(query)]}\n{sql['session_filter']}\n{sql['newest_session']}"
        try:
            found = [_session(row) for row in tx.execute(f"{sql['session_rows']}\n{which}", values)]
            keys = [(row.opened_at, row.number) for row in found]
        except UNREADABLE:
            keys = list(tx.execute(f"{sql['session_keys']}\n{which}", values))
            found = [self.row(tx, num) for _, num in keys]
        has_more = len(found) > query.limit
        return Page(found[: query.limit], keys[query.limit - 1] if has_more else None)

    def row(self, tx: Transaction, num: int) -> SessionRow:
        """The session with this number, as far as it can be read."""
        text = f"{self._sql['session_rows']}\n{self._sql['session_by_num']}"
        try:
            return _session(tx.execute(text, (num,)).fetchone())
        except UNREADABLE:
            return salvaged_session(tx.execute(self._sql["salvaged_session"], (num,)).fetchone())

    def open(self, tx: Transaction, who: Identity, context: bytes, now: int) -> SessionChange:
        """Open a session, unless somebody did."""
        values = (who.tenant_id, who.user_id, who.session_id, now, context)
        made: Any = tx.execute(self._sql["open_session"], values).get
        return self._changed(tx, who, made)

    def touch(self, tx: Transaction, who: Identity, before: int | None, now: int) -> SessionChange:
        """See a session now, if it is open and was not seen since `before`."""
        return self._change(tx, who, "touch_session", now=now, before=before)

    def close(self, tx: Transaction, who: Identity, reason: str, seen_at: int | None, now: int) -> SessionChange:
        """Close a session, if it is open and nobody has seen it since `seen_at`."""
        return self._change(tx, who, "close_session", now=now, reason=reason, seen_at=seen_at)

    def _change(self, tx: Transaction, who: Identity, name: str, **values: Any) -> SessionChange:
        changed: Any = tx.execute(self._sql[name], {**values, "num": self._number(tx, who)}).get
        return self._changed(tx, who, changed)

    def _changed(self, tx: Transaction, who: Identity, changed: int | None) -> SessionChange:
        num = self._number(tx, who) if changed is None else changed
        return SessionChange(None if num is None else self.row(tx, num), changed is not None)

    def _number(self, tx: Transaction, who: Identity) -> int | None:
        """The number of a session that somebody opened."""
        found: Any = tx.execute(self._sql["opened_session"], (who.tenant_id, who.user_id, who.session_id)).get
        return None if found is None else int(found)


def _values(query: SessionQuery) -> dict[str, Any]:
    return {
        "tenant": query.tenant,
        "user": query.user,
        "session": query.session,
        "include_closed": query.include_closed,
        "only_opened": query.only_opened,
        "since": query.seen_since,
        "until": query.seen_until,
        "seen_before": query.seen_before,
        "opened_before": query.opened_before,
    }


def _way(query: SessionQuery) -> str:
    if query.tenant and query.user:
        return "session_by_name" if query.session else "session_by_user"
    if query.tenant:
        return "session_by_tenant"
    return "session_by_open" if query.only_opened and not query.include_closed else "session_by_age"


def _session(row: Any) -> SessionRow:
    number, tenant, user, session, opened_at, seen_at, closed_at, close_reason, events, context = row
    check_times(opened_at, seen_at, closed_at or 0)
    return SessionRow(
        number=number,
        who=Identity(tenant, user, session),
        opened_at=opened_at,
        seen_at=seen_at,
        closed_at=closed_at,
        close_reason=close_reason,
        events=events,
        is_opened=context is not None,
        context=context or b"",
    )
