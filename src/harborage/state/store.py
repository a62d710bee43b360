"""The record store's port, which of them a configuration can name, and the one way from a name to an open store.

A record store keeps the latest record of each kind for each run, overwritten in place. A slot is (tenant, user,
session, run, kind); an empty run is a slot of its own. It holds one record, not a history: what must be kept entry by
entry belongs in a journal.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Protocol, TypeAlias, runtime_checkable

import msgspec

from harborage.drivers import DriverTable
from harborage.identity import Identity, Quadruple, require_triple
from harborage.state.errors import InvalidRecordError


class StateRecord(msgspec.Struct, frozen=True):
    """What a slot holds. `event_id` names the change that wrote it (a ULID); `updated_at` None means now.

    `version` is the version of the format of `data`, the caller's own business.
    """

    event_id: str
    identity: Quadruple
    kind: str
    data: bytes = b""
    version: int = 1
    updated_at: datetime | None = None


@runtime_checkable
class StateStore(Protocol):
    """Keeps records by slot. Every call checks, in this order: closed, identity, event id and kind.

    Never: shows one identity what another one stored, or keeps a caller's buffer.
    """

    async def save(self, record: StateRecord) -> None:
        """Put `record` in its slot; the last write wins, and the replaced record's event id is forgotten.

        Saving the same event id with the same slot, data and version again does nothing.

        Raises:
            EventIdConflictError: the event id was already used for something else in this session.
            InvalidRecordError: the event id or the kind is empty.
        """
        ...

    async def load(self, identity: Quadruple, kind: str) -> StateRecord:
        """The record in the slot, with `updated_at` filled in.

        Raises:
            RecordNotFoundError: the slot is empty.
            InvalidRecordError: the kind is empty.
        """
        ...

    async def load_by_event_id(self, event_id: str, *, who: Identity | Quadruple | None = None) -> StateRecord:
        """The record that `event_id` wrote in this session, as long as it is still in its slot.

        Raises:
            RecordNotFoundError: no such record, or it was replaced or deleted.
            InvalidRecordError: the event id is empty.
        """
        ...

    async def delete(self, identity: Quadruple, kind: str) -> None:
        """Empty the slot; an empty one stays so."""
        ...

    async def aclose(self) -> None:
        """Release what the store holds; later calls raise StoreClosedError. Closing twice does nothing."""
        ...


@runtime_checkable
class SwappingStateStore(StateStore, Protocol):
    """A record store that can also change a record only where no other process has done so since it was read."""

    async def swap(self, record: StateRecord, *, after: str) -> bool:
        """Put `record` in its slot as long as that holds what event id `after` wrote; "" means an empty slot.

        False, and nothing done, where it holds something else: load it again, and swap that.

        Raises:
            EventIdConflictError, InvalidRecordError: as for `save`.
        """
        ...


def check_record(record: StateRecord) -> None:
    """Accept a record that may be saved.

    Raises:
        IdentityRequiredError: tenant, user or session is empty.
        InvalidRecordError: the event id or the kind is empty.
    """
    require_triple(record.identity, "state.save")
    if not record.event_id:
        raise InvalidRecordError("state.save: event_id is empty; give each change a new id")
    if not record.kind:
        raise InvalidRecordError("state.save: kind is empty; name what the record is")


def check_slot(identity: Quadruple, kind: str, what: str) -> None:
    """Accept a complete slot for the operation named by `what`.

    Raises:
        IdentityRequiredError: tenant, user or session is empty.
        InvalidRecordError: the kind is empty.
    """
    require_triple(identity, what)
    if not kind:
        raise InvalidRecordError(f"{what}: kind is empty; name what the record is")


class StateConfig(msgspec.Struct, frozen=True):
    """Which driver to open and where its data is; `dsn` may hold a password, so it is never logged."""

    driver: str = "inmem"
    dsn: str = ""


StateFactory: TypeAlias = Callable[[StateConfig], Awaitable[StateStore]]

STATE_DRIVERS: DriverTable[StateFactory] = DriverTable(
    "state",
    {
        "inmem": "harborage.state.memory:make",
        "postgres": "harborage.state.postgres:make",
        "sqlite": "harborage.state.sqlite:make",
    },
)


async def open_state(config: StateConfig, *, drivers: DriverTable[StateFactory] = STATE_DRIVERS) -> StateStore:
    """The store that `config` asks for, ready for use; a blank driver name means `inmem`.

    Raises:
        DriverUnknownError: no such driver; the text lists those there are.
    """
    return await drivers.factory(config.driver or "inmem")(config)
