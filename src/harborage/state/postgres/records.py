"""Records by slot in Postgres: one row each, overwritten in place by one statement.

Free text goes through `kept_text`, since it may hold what Postgres refuses in text; names are kept as they are.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from harborage.clock import SYSTEM_CLOCK, Clock
from harborage.identity import Identity, Quadruple, effective_quadruple, require_triple
from harborage.state.errors import EventIdConflictError, InvalidRecordError, RecordNotFoundError, StoreClosedError
from harborage.state.postgres.database import PACKAGE, Database
from harborage.state.postgres.driver import is_unique_violation
from harborage.state.sql_files import read_statements
from harborage.state.store import StateRecord, check_record, check_slot

if TYPE_CHECKING:
    from harborage.state.postgres.driver import Connection, Row

_ESCAPED = re.compile(r"\\(.)")


def kept_text(text: str) -> str:
    r"""Text without NUL: it becomes `\0`, and a backslash becomes two."""
    if "\0" not in text and "\\" not in text:
        return text
    return text.replace("\\", "\\\\").replace("\0", "\\0")


def read_text(text: str) -> str:
    """What was kept by `kept_text`."""
    if "\\" not in text:
        return text
    return _ESCAPED.sub(lambda found: "\0" if found[1] == "0" else found[1], text)


def state_record_of(row: Row, tenant_id: str, user_id: str, session_id: str) -> StateRecord:
    """The record in a row of a slot of this session."""
    who = Quadruple(tenant_id, user_id, session_id, row["run_id"])
    return StateRecord(row["event_id"], who, row["kind"], row["data"], row["version"], row["updated_at"])


_SQL = read_statements(PACKAGE, "statements/records.sql")


class PostgresStateStore:
    """`StateStore` over one database; `beneath` is what is closed with it, when nothing else uses it."""

    def __init__(
        self,
        database: Database,
        *,
        clock: Clock = SYSTEM_CLOCK,
        beneath: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._database = database
        self._clock = clock
        self.beneath = beneath
        self._is_closed = False

    async def save(self, record: StateRecord) -> None:
        self._check_open()
        check_record(record)
        data = bytes(record.data)
        who = record.identity
        slot = (who.tenant_id, who.user_id, who.session_id, who.run_id, record.kind)
        args = (*slot, record.event_id, data, record.version, record.updated_at or self._clock.now())

        async def work(connection: Connection, _: bool) -> bool:
            """Whether it is kept now; False to try again, after another process changed the slot meanwhile."""
            try:
                row = await connection.fetchrow(_SQL["save"], *args)
            except Exception as error:
                if not is_unique_violation(error):
                    raise
                row = await connection.fetchrow(_SQL["load_by_event_id"], *slot[:3], record.event_id)
                if row is not None and (row["run_id"], row["kind"]) != (who.run_id, record.kind):
                    raise EventIdConflictError(record.event_id) from None
                return False
            if row is None:
                return False
            if not row["is_new"] and (row["data"], row["version"]) != (data, record.version):
                raise EventIdConflictError(record.event_id)
            return True

        while not await self._database.run(work):
            continue

    async def swap(self, record: StateRecord, *, after: str) -> bool:
        self._check_open()
        check_record(record)
        who = record.identity
        slot = (who.tenant_id, who.user_id, who.session_id, who.run_id, record.kind)
        args = (*slot, record.event_id, bytes(record.data), record.version, record.updated_at or self._clock.now())

        async def work(connection: Connection, is_again: bool) -> bool:
            try:
                row = await connection.fetchrow(_SQL["swap"], *args, after)
            except Exception as error:
                if not is_unique_violation(error):
                    raise
                raise EventIdConflictError(record.event_id) from None
            if row is not None or not is_again:
                return row is not None
            # Of a change whose answer was lost it may have been this very call that made it.
            kept = await connection.fetchrow(_SQL["load_by_event_id"], *slot[:3], record.event_id)
            return kept is not None

        return await self._database.run(work)

    async def load(self, identity: Quadruple, kind: str) -> StateRecord:
        self._check_open()
        check_slot(identity, kind, "state.load")
        who = (identity.tenant_id, identity.user_id, identity.session_id)
        row = await self._database.fetchrow(_SQL["load"], *who, identity.run_id, kind)
        if row is None:
            raise RecordNotFoundError(kind)
        return state_record_of(row, *who)

    async def load_by_event_id(self, event_id: str, *, who: Identity | Quadruple | None = None) -> StateRecord:
        self._check_open()
        asked = effective_quadruple() if who is None else who
        require_triple(asked, "state.load_by_event_id")
        assert asked is not None  # for the type checker: None was refused above
        if not event_id:
            raise InvalidRecordError("state.load_by_event_id: event_id is empty")
        triple = (asked.tenant_id, asked.user_id, asked.session_id)
        row = await self._database.fetchrow(_SQL["load_by_event_id"], *triple, event_id)
        if row is None:
            raise RecordNotFoundError(event_id, what="state record of event")
        return state_record_of(row, *triple)

    async def delete(self, identity: Quadruple, kind: str) -> None:
        self._check_open()
        check_slot(identity, kind, "state.delete")
        slot = (identity.tenant_id, identity.user_id, identity.session_id, identity.run_id, kind)
        await self._database.fetch(_SQL["delete"], *slot)

    async def aclose(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self.beneath is not None:
            await self.beneath()

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreClosedError()
