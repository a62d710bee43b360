"""Events by session, in SQLite."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from harborage.events.errors import LogClosedError, SequenceTakenError
from harborage.events.log import Logged
from harborage.identity import Identity, require_triple
from harborage.store.sqlite.connection import statements
from harborage.store.sqlite.stations import Rows, Transaction

if TYPE_CHECKING:
    from harborage.store.sqlite.database import Database

__all__ = ["SQLiteEventLog"]

T = TypeVar("T")


class SQLiteEventLog:
    """An event log in a database, which outlives it: whoever opened the database closes it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._sql = statements("events", __package__)
        self._rows = Rows(self._sql["add"], 3)
        self._is_closed = False

    async def append(self, events: Sequence[Logged]) -> None:
        self._check_open()
        for event in events:
            require_triple(event.who, "event_log.append")
        if events:
            await self._database.write(lambda transaction: self._append(transaction, events))

    async def last(self, who: Identity) -> int:
        return await self._of("event_log.last", who, self._last, 0)

    async def read(self, who: Identity, *, after: int = 0, limit: int = 1000) -> list[Logged]:
        def read(transaction: Transaction, session: int) -> list[Logged]:
            rows: list[Any] = transaction.execute(self._sql["read"], (session, after, limit)).fetchall()
            return [Logged(who, sequence, data) for sequence, data in rows]

        return await self._of("event_log.read", who, read, [])

    async def forget(self, who: Identity) -> None:
        self._check_open()
        require_triple(who, "event_log.forget")
        await self._database.write(lambda transaction: self._forget(transaction, who))

    async def aclose(self) -> None:
        self._is_closed = True

    def _check_open(self) -> None:
        if self._is_closed or self._database.is_closed:
            raise LogClosedError()

    def _of(self, what: str, who: Identity, read: Callable[[Transaction, int], T], nothing: T) -> Awaitable[T]:
        """What `read` finds in the session, or `nothing` when there is no such session."""
        self._check_open()
        require_triple(who, what)

        def work(transaction: Transaction) -> T:
            session = self._session(transaction, who)
            return nothing if session is None else read(transaction, session)

        return self._database.read(work)

    def _append(self, transaction: Transaction, events: Sequence[Logged]) -> None:
        sessions: dict[Identity, int] = {}
        values: list[Any] = []
        for who, sequence, data in events:
            session = sessions.get(who)
            if session is None:
                session = sessions[who] = self._opened(transaction, who)
            values += (session, sequence, data)
        changes = transaction.connection.total_changes
        before = changes()
        for sql, some in self._rows.portions(values):
            transaction.execute(sql, some)
        if changes() != before + len(events):
            self._check(transaction, sessions, events)

    def _opened(self, transaction: Transaction, who: Identity) -> int:
        """The number of the session; it gets one with its first event."""
        session = self._session(transaction, who)
        if session is None:
            made: Any = transaction.execute(self._sql["add_session"], (who.tenant_id, who.user_id, who.session_id)).get
            session = int(made)
        return session

    def _check(self, transaction: Transaction, sessions: Mapping[Identity, int], events: Sequence[Logged]) -> None:
        """Accept events that are kept by now, if need be from an earlier try.

        Raises:
            SequenceTakenError: the number of one of them is another's.
        """
        for who, sequence, data in events:
            if transaction.execute(self._sql["under"], (sessions[who], sequence)).get != data:
                raise SequenceTakenError(who.session_id, sequence)

    def _last(self, transaction: Transaction, session: int) -> int:
        last: Any = transaction.execute(self._sql["last"], (session,)).get
        return int(last or 0)

    def _forget(self, transaction: Transaction, who: Identity) -> None:
        session = self._session(transaction, who)
        if session is not None:
            transaction.execute(self._sql["drop_events"], (session,))
            transaction.execute(self._sql["drop_session"], (session,))

    def _session(self, transaction: Transaction, who: Identity) -> int | None:
        number: Any = transaction.execute(self._sql["session"], (who.tenant_id, who.user_id, who.session_id)).get
        return None if number is None else int(number)
