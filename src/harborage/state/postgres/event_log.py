"""Events by session in Postgres: rows that are only ever added, under the number they came with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from harborage.events.errors import LogClosedError, SequenceTakenError
from harborage.events.log import Logged
from harborage.identity import Identity, require_triple
from harborage.state.errors import StoreClosedError
from harborage.state.postgres.database import PACKAGE, Database, Work
from harborage.state.postgres.faults import is_unique_violation
from harborage.state.sql_files import read_statements

if TYPE_CHECKING:
    from harborage.state.postgres.driver import Connection

__all__ = ["PostgresEventLog"]

T = TypeVar("T")

_SQL = read_statements(PACKAGE, "statements/events.sql")


class PostgresEventLog:
    """`EventLog` over one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._is_closed = False

    async def append(self, events: Sequence[Logged]) -> None:
        self._check_open()
        columns = _columns(events)
        if not columns[0]:
            return

        async def work(connection: Connection, _: bool) -> None:
            try:
                await connection.execute(_SQL["append"], *columns)
            except Exception as error:
                if not is_unique_violation(error):
                    raise
                await _append_missing(connection, columns)

        await self._run(work)

    async def last(self, who: Identity) -> int:
        self._check("event_log.last", who)
        return await self._run(lambda connection, _: connection.fetchval(_SQL["last"], *_triple(who)))

    async def read(self, who: Identity, *, after: int = 0, limit: int = 1000) -> list[Logged]:
        self._check("event_log.read", who)
        rows = await self._run(lambda connection, _: connection.fetch(_SQL["read"], *_triple(who), after, limit))
        return [Logged(who, row["sequence"], row["data"]) for row in rows]

    async def forget(self, who: Identity) -> None:
        self._check("event_log.forget", who)
        await self._run(lambda connection, _: connection.execute(_SQL["forget"], *_triple(who)))

    async def aclose(self) -> None:
        self._is_closed = True

    async def _run(self, work: Work[T]) -> T:
        try:
            return await self._database.run(work)
        except StoreClosedError as error:
            raise LogClosedError() from error

    def _check_open(self) -> None:
        if self._is_closed:
            raise LogClosedError()

    def _check(self, what: str, who: Identity) -> None:
        self._check_open()
        require_triple(who, what)


async def _append_missing(connection: Connection, columns: Sequence[Sequence[Any]]) -> None:
    """Keep those events that are not kept already, unless a number stands for another one."""
    async with connection.transaction():
        await connection.execute(_SQL["append_missing"], *columns)
        other = await connection.fetchrow(_SQL["other"], *columns)
        if other is not None:
            raise SequenceTakenError(other["session_id"], other["sequence"])


def _columns(events: Sequence[Logged]) -> tuple[list[Any], ...]:
    """The events as columns, each number of a session once.

    Raises:
        SequenceTakenError: a number stands for two of them.
    """
    found: dict[tuple[str, str, str, int], bytes] = {}
    for who, sequence, data in events:
        require_triple(who, "event_log.append")
        if found.setdefault((*_triple(who), sequence), bytes(data)) != data:
            raise SequenceTakenError(who.session_id, sequence)
    keys = sorted(found)
    return (*([key[column] for key in keys] for column in range(4)), [found[key] for key in keys])


def _triple(who: Identity) -> tuple[str, str, str]:
    return (who.tenant_id, who.user_id, who.session_id)
