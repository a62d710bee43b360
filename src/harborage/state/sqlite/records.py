"""Records by slot, in SQLite."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harborage.clock import SYSTEM_CLOCK, Clock
from harborage.identity import Identity, Quadruple, effective_quadruple, require_triple
from harborage.state.errors import EventIdConflictError, InvalidRecordError, RecordNotFoundError, StoreClosedError
from harborage.state.store import StateRecord, check_record, check_slot
from harborage.store.sqlite.connection import statements
from harborage.store.times import micros, moment

if TYPE_CHECKING:
    from harborage.store.sqlite.database import Database
    from harborage.store.sqlite.transactions import Transaction


class SQLiteStateStore:
    """A record store in a database. With `owns_database` closing the store closes the database, too."""

    def __init__(self, database: Database, *, clock: Clock = SYSTEM_CLOCK, owns_database: bool = False) -> None:
        self._database = database
        self._clock = clock
        self._owns_database = owns_database
        self._sql = statements("records", __package__)
        self._is_closed = False

    async def save(self, record: StateRecord) -> None:
        self._check_open()
        check_record(record)
        updated_at = micros(record.updated_at or self._clock.now())
        data = bytes(record.data)
        await self._database.write(lambda transaction: self._save(transaction, record, data, updated_at))

    async def swap(self, record: StateRecord, *, after: str) -> bool:
        self._check_open()
        check_record(record)
        updated_at = micros(record.updated_at or self._clock.now())
        data = bytes(record.data)
        key = (*_triple(record.identity), record.identity.run_id, record.kind)

        def swapped(transaction: Transaction) -> bool:
            row: Any = transaction.execute(self._sql["in_slot"], key).get
            if ("" if row is None else row[2]) != after:
                return False
            self._save(transaction, record, data, updated_at)
            return True

        return await self._database.write(swapped)

    async def load(self, identity: Quadruple, kind: str) -> StateRecord:
        self._check_open()
        check_slot(identity, kind, "state.load")
        key = (*_triple(identity), identity.run_id, kind)
        row = await self._database.read(lambda transaction: transaction.execute(self._sql["in_slot"], key).get)
        if row is None:
            raise RecordNotFoundError(kind)
        return _record(identity, row)

    async def load_by_event_id(self, event_id: str, *, who: Identity | Quadruple | None = None) -> StateRecord:
        self._check_open()
        asked = effective_quadruple() if who is None else who
        require_triple(asked, "state.load_by_event_id")
        assert asked is not None  # for the type checker: None was refused above
        if not event_id:
            raise InvalidRecordError("state.load_by_event_id: event_id is empty")
        key = (*_triple(asked), event_id)
        row = await self._database.read(lambda transaction: transaction.execute(self._sql["under_event_id"], key).get)
        if row is None:
            raise RecordNotFoundError(event_id, what="state record of event")
        return _record(asked, row)

    async def delete(self, identity: Quadruple, kind: str) -> None:
        self._check_open()
        check_slot(identity, kind, "state.delete")
        key = (*_triple(identity), identity.run_id, kind)
        await self._database.write(lambda transaction: transaction.execute(self._sql["drop"], key))

    async def aclose(self) -> None:
        self._is_closed = True
        if self._owns_database:
            await self._database.aclose()

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreClosedError()

    def _save(self, transaction: Transaction, record: StateRecord, data: bytes, updated_at: int) -> None:
        who = record.identity
        row: Any = transaction.execute(self._sql["under_event_id"], (*_triple(who), record.event_id)).get
        if row is not None:
            if tuple(row[:2]) + tuple(row[3:5]) != (who.run_id, record.kind, data, record.version):
                raise EventIdConflictError(record.event_id)
            return
        values = (*_triple(who), who.run_id, record.kind, record.event_id, data, record.version, updated_at)
        transaction.execute(self._sql["put"], values)


def _triple(who: Identity | Quadruple) -> tuple[str, str, str]:
    return who.tenant_id, who.user_id, who.session_id


def _record(who: Identity | Quadruple, row: Any) -> StateRecord:
    run_id, kind, event_id, data, version, updated_at = row
    owner = Quadruple(*_triple(who), run_id)
    return StateRecord(event_id, owner, kind, data, version, moment(updated_at))
