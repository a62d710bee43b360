"""How pauses are found in their table: each method is one step of a transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from harborage import codec
from harborage.identity import Identity
from harborage.store.errors import RowNotFoundError
from harborage.store.queries import Page, PauseQuery
from harborage.store.rows import PauseRow, PauseStatus
from harborage.store.sqlite.failures import UnreadableError
from harborage.store.sqlite.salvage import UNREADABLE, check_times, salvaged_pause
from harborage.store.ways import pause_pieces

if TYPE_CHECKING:
    from harborage.store.sqlite.stations import Transaction

__all__ = ["Pauses"]

_END: Final = ((1 << 63) - 1, (1 << 63) - 1)
_STATUSES: Final = frozenset(PauseStatus)


class Pauses:
    """Finds pauses."""

    def __init__(self, sql: Mapping[str, str]) -> None:
        self._sql = sql

    def get(self, tx: Transaction, token: str) -> PauseRow:
        """The pause with this token.

        Raises:
            RowNotFoundError: there is none.
        """
        page = self.find(tx, PauseQuery(tokens=(token,), limit=1))
        if not page.rows:
            raise RowNotFoundError(f"no pause {token!r} in this store")
        return page.rows[0]

    def find(self, tx: Transaction, query: PauseQuery) -> Page[PauseRow]:
        """The pauses of a query; where one cannot be read they are read one by one."""
        at, num = query.after or _END
        values = _values(query) | {"at": at, "num": num, "limit": query.limit + 1}
        sql = self._sql
        which = f"{self._which(query)}\n{sql['newest_pause']}"
        try:
            page = f"{sql['pause_rows']}\n{sql['pause_page']}\n{which}\n{sql['pause_paged']}"
            found = [_pause(row) for row in tx.execute(page, values)]
            keys = [(row.opened_at, row.number) for row in found]
        except UNREADABLE:
            keys = list(tx.execute(f"{sql['pause_keys']}\n{which}", values))
            found = [self.row(tx, num) for _, num in keys]
        has_more = len(found) > query.limit
        return Page(found[: query.limit], keys[query.limit - 1] if has_more else None)

    def count(self, tx: Transaction, query: PauseQuery) -> int:
        """How many pauses a query finds."""
        sql = self._sql
        text = f"{sql['pause_count']}\n{self._which(query)}"
        count: Any = tx.execute(text, _values(query)).get
        return int(count)

    def _which(self, query: PauseQuery) -> str:
        return "\nAND ".join(self._sql[name] for name in pause_pieces(query))

    def row(self, tx: Transaction, num: int) -> PauseRow:
        """The pause with this number, as far as it can be read."""
        text = f"{self._sql['pause_rows']}\n{self._sql['pause_by_num']}"
        try:
            return _pause(tx.execute(text, (num,)).fetchone())
        except UNREADABLE:
            return salvaged_pause(tx.execute(self._sql["salvaged_pause"], (num,)).fetchone())


def _values(query: PauseQuery) -> dict[str, Any]:
    return {
        "tenant": query.tenant,
        "user": query.user,
        "session": query.session,
        "tokens": _json(query.tokens),
        "run_ids": _json(query.run_ids),
        "statuses": _json(query.statuses),
        "reasons": _json(query.reasons),
        "since": query.since,
        "until": query.until,
        "due": query.due,
    }


def _json(values: Sequence[Any]) -> str | None:
    return codec.encode(values).decode() if values else None


def _pause(row: Any) -> PauseRow:
    number, token, run_id, tenant, user, session, reason, status, opened_at, *rest = row
    deadline, settled_at, by, data, answer, answering = rest
    if session is None:
        raise UnreadableError("its session is not there")
    if status not in _STATUSES:
        raise UnreadableError(f"no pause has status {status}")
    check_times(opened_at, settled_at or 0, deadline or 0)
    return PauseRow(
        number=number,
        token=token,
        run_id=run_id,
        who=Identity(tenant, user, session),
        reason=reason,
        status=PauseStatus(status),
        opened_at=opened_at,
        deadline=deadline,
        settled_at=settled_at,
        settled_by=by,
        data=data,
        answer=answer,
        answering=answering,
    )
