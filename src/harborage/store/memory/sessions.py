"""The sessions of a store in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from harborage.identity import Identity
from harborage.store.rows import SessionChange, SessionRow

if TYPE_CHECKING:
    from harborage.store.queries import SessionListQuery, SessionQuery


class Sessions:
    """Every session, by whose it is. One that was never opened stays for as long as something is kept in it."""

    def __init__(self) -> None:
        self._rows: dict[Identity, SessionRow] = {}
        self._kept: Counter[Identity] = Counter()
        self._last = 0

    def get(self, who: Identity) -> SessionRow | None:
        """The session, if it is known."""
        return self._rows.get(who)

    def listed(self, query: SessionListQuery) -> list[SessionRow]:
        """The sessions of the principals whom a query names."""
        return [
            row
            for who, row in self._rows.items()
            if who.tenant_id in (query.tenants or (who.tenant_id,))
            and who.user_id in (query.users or (who.user_id,))
            and who.session_id in (query.sessions or (who.session_id,))
        ]

    def likely(self, query: SessionQuery) -> Iterable[SessionRow]:
        """The sessions that a query may find: at most one, where it names a whole identity."""
        if query.tenant and query.user and query.session:
            row = self._rows.get(Identity(query.tenant, query.user, query.session))
            return () if row is None else (row,)
        return self._rows.values()

    def see(self, who: Identity, now: int, *, events: int = 0) -> SessionRow:
        """The session, seen now and with so many events more; a new row where it was not known."""
        row = self._rows.get(who)
        if row is None:
            self._last += 1
            row = SessionRow(number=self._last, who=who, opened_at=now, seen_at=now)
        seen_at = row.seen_at if row.closed_at is not None else max(row.seen_at, now)
        row = self._rows[who] = replace(row, seen_at=seen_at, events=row.events + events)
        return row

    def hold(self, who: Identity, now: int) -> None:
        """See a session in which something more is kept from now on: a run, a group or a patch."""
        self.see(who, now)
        self._kept[who] += 1

    def release(self, who: Identity) -> None:
        """One thing less is kept in a session; it goes with the last, if it was never opened and it never had an
        event."""
        self._kept[who] -= 1
        if self._kept[who]:
            return
        del self._kept[who]
        row = self._rows[who]
        if not row.is_opened and not row.events:
            del self._rows[who]

    def open(self, who: Identity, context: bytes, now: int) -> SessionChange:
        """Open a session, unless it is open."""
        known = self._rows.get(who)
        if known is not None and known.is_opened:
            return SessionChange(known, False)
        row = self._rows[who] = replace(self.see(who, now), opened_at=now, is_opened=True, context=context)
        return SessionChange(row, True)

    def touch(self, who: Identity, before: int | None, now: int) -> SessionChange:
        """See a session now, if it is open and was not seen since `before`."""
        row = self._opened(who)
        if row is None or row.closed_at is not None or (before is not None and row.seen_at >= before):
            return SessionChange(row, False)
        return SessionChange(self.see(who, now), True)

    def close(self, who: Identity, reason: str, seen_at: int | None, now: int) -> SessionChange:
        """Close a session, if it is open and it was not used after `seen_at`."""
        row = self._opened(who)
        if row is None or row.closed_at is not None or seen_at not in (None, row.seen_at):
            return SessionChange(row, False)
        row = self._rows[who] = replace(row, closed_at=now, close_reason=reason)
        return SessionChange(row, True)

    def _opened(self, who: Identity) -> SessionRow | None:
        row = self._rows.get(who)
        return row if row is not None and row.is_opened else None
