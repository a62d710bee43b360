"""The record store in memory: for tests and for processes whose state may end with them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from harborage.clock import SYSTEM_CLOCK, Clock
from harborage.identity import Identity, Quadruple, effective_quadruple, require_triple
from harborage.state.errors import EventIdConflictError, InvalidRecordError, RecordNotFoundError, StoreClosedError
from harborage.state.store import StateRecord, StateStore, check_record, check_slot

if TYPE_CHECKING:
    from harborage.state.store import StateConfig

Slot: TypeAlias = tuple[Quadruple, str]
EventKey: TypeAlias = tuple[Identity, str]


class MemoryStateStore:
    """Records in two dictionaries, for one event loop; nothing outlives the process."""

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._records: dict[Slot, StateRecord] = {}
        self._slots: dict[EventKey, Slot] = {}
        self._is_closed = False

    async def save(self, record: StateRecord) -> None:
        self._check_open()
        check_record(record)
        slot = (record.identity, record.kind)
        event = (record.identity.identity, record.event_id)
        known = self._slots.get(event)
        if known is not None:
            _check_same(self._records[known], record)
            return
        replaced = self._records.get(slot)
        if replaced is not None:
            del self._slots[replaced.identity.identity, replaced.event_id]
        self._records[slot] = _owned(record, self._clock.now())
        self._slots[event] = slot

    async def swap(self, record: StateRecord, *, after: str) -> bool:
        self._check_open()
        check_record(record)
        kept = self._records.get((record.identity, record.kind))
        if ("" if kept is None else kept.event_id) != after:
            return False
        await self.save(record)
        return True

    async def load(self, identity: Quadruple, kind: str) -> StateRecord:
        self._check_open()
        check_slot(identity, kind, "state.load")
        record = self._records.get((identity, kind))
        if record is None:
            raise RecordNotFoundError(kind)
        return record

    async def load_by_event_id(self, event_id: str, *, who: Identity | Quadruple | None = None) -> StateRecord:
        self._check_open()
        owner = _triple(who)
        if not event_id:
            raise InvalidRecordError("state.load_by_event_id: event_id is empty")
        slot = self._slots.get((owner, event_id))
        if slot is None:
            raise RecordNotFoundError(event_id, what="state record of event")
        return self._records[slot]

    async def delete(self, identity: Quadruple, kind: str) -> None:
        self._check_open()
        check_slot(identity, kind, "state.delete")
        record = self._records.pop((identity, kind), None)
        if record is not None:
            del self._slots[identity.identity, record.event_id]

    async def aclose(self) -> None:
        self._is_closed = True
        self._records.clear()
        self._slots.clear()

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreClosedError()


async def make(config: StateConfig) -> StateStore:
    """An empty store in memory; nothing in `config` matters to it."""
    return MemoryStateStore()


def _triple(who: Identity | Quadruple | None) -> Identity:
    asked = effective_quadruple() if who is None else who
    require_triple(asked, "state.load_by_event_id")
    assert asked is not None  # for the type checker: None was refused above
    return asked.identity if isinstance(asked, Quadruple) else asked


def _check_same(stored: StateRecord, record: StateRecord) -> None:
    same = (stored.identity, stored.kind, stored.data, stored.version)
    if same != (record.identity, record.kind, record.data, record.version):
        raise EventIdConflictError(record.event_id)


def _owned(record: StateRecord, now: datetime) -> StateRecord:
    """The record as the store keeps it: its own bytes, and a time."""
    return msgspec.structs.replace(record, data=bytes(record.data), updated_at=record.updated_at or now)
