"""How sessions are opened, seen and closed: each method is one step of a transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from harborage.store.rows import SessionChange

if TYPE_CHECKING:
    from harborage.identity import Identity
    from harborage.store.sqlite.reading import Reading
    from harborage.store.sqlite.transactions import Transaction

    Publish: TypeAlias = Callable[[Transaction], tuple[int, int]]
    """Keeps events in a transaction; the number of the first, and its place."""


class Sessions:
    """Opens, sees and closes sessions."""

    def __init__(self, sql: Mapping[str, str], reading: Reading) -> None:
        self._sql = sql
        self._reading = reading

    def open(self, tx: Transaction, who: Identity, context: bytes, now: int, publish: Publish) -> SessionChange:
        """Open a session, unless it is open, and keep the events of its opening."""
        values = (who.tenant_id, who.user_id, who.session_id, now, context)
        made: Any = tx.execute(self._sql["open_session"], values).get
        if made is None:
            return self._changed(tx, who, made)
        first, place = publish(tx)
        return self._changed(tx, who, made)._replace(first=first, place=place)

    def touch(self, tx: Transaction, who: Identity, before: int | None, now: int) -> SessionChange:
        """See a session now, if it is open and was not seen since `before`."""
        return self._change(tx, who, "touch_session", now=now, before=before)

    def close(self, tx: Transaction, who: Identity, reason: str, seen_at: int | None, now: int) -> SessionChange:
        """Close a session, if it is open and was not used after `seen_at`."""
        return self._change(tx, who, "close_session", now=now, reason=reason, seen_at=seen_at)

    def _change(self, tx: Transaction, who: Identity, name: str, **values: Any) -> SessionChange:
        changed: Any = tx.execute(self._sql[name], {**values, "num": self._number(tx, who)}).get
        return self._changed(tx, who, changed)

    def _changed(self, tx: Transaction, who: Identity, changed: int | None) -> SessionChange:
        num = self._number(tx, who) if changed is None else changed
        return SessionChange(None if num is None else self._reading.session_row(tx, num), changed is not None)

    def _number(self, tx: Transaction, who: Identity) -> int | None:
        """The number of a session that was opened."""
        found: Any = tx.execute(self._sql["opened_session"], (who.tenant_id, who.user_id, who.session_id)).get
        return None if found is None else int(found)
