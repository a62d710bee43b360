"""Sessions in a state store: a row each, a catalogue for each owner, and the owners there are.

A row is written under an event id made of its number, so that of two processes that change it at once one is refused.
A closed session has a row to itself, which is written once and counts before the other: no writer that comes late opens
it again. A session id belongs to the tenant and user who opened it first, for good.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final, TypeAlias

import msgspec

from harborage import codec
from harborage.concurrency import together
from harborage.identity import Identity, Quadruple
from harborage.ids import new_id
from harborage.sessions.errors import SessionCorruptError
from harborage.sessions.model import Session
from harborage.state import IdempotencyConflictError, NotFoundError, StateRecord, StateStore
from harborage.state.directory import Directory, batched

__all__ = ["CATALOG_SESSION", "Owner", "Row", "Rows"]

LIFECYCLE_KIND: Final = "session.lifecycle"
CLOSED_KIND: Final = "session.closed"
CATALOG_KIND: Final = "session.catalog"
OWNERS_KIND: Final = "session.owners"
OWNER_KIND: Final = "session.owner"

CATALOG_SESSION: Final = "<session-catalog>"
"""The reserved session under which an owner's catalogue lies."""

Owner: TypeAlias = tuple[str, str]

# Records that belong to no single user live under names of our own.
_NOBODY = Quadruple("harborage..sessions", "harborage..sessions", CATALOG_SESSION)
_MOST_CATALOGUES = 1_024
_log = logging.getLogger(__name__)


class Row(msgspec.Struct, frozen=True, omit_defaults=True):
    """A session as it is stored: how often it was written, and by which process last."""

    session: Session
    number: int = 0
    by: str = ""


class Rows:
    """The sessions of one store."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._by = new_id()
        self._owners = Directory(store, _NOBODY, OWNERS_KIND)
        self._catalogues: dict[Owner, Directory] = {}

    async def load(self, who: Identity) -> Row | None:
        """The session's row, or None.

        Raises:
            SessionCorruptError: it is there but cannot be read.
        """
        return await self._load(who, CLOSED_KIND) or await self._load(who, LIFECYCLE_KIND)

    async def _load(self, who: Identity, kind: str) -> Row | None:
        try:
            record = await self._store.load(who.with_run(""), kind)
        except NotFoundError:
            return None
        try:
            row: Row = codec.decode(record.data, Row)
        except msgspec.DecodeError as error:
            raise SessionCorruptError(who.session_id, str(error)) from error
        return row

    async def save(self, session: Session, number: int = 0) -> bool:
        """Write the row that follows number `number`, or the first one; False when another process has."""
        row = Row(session, number + 1, self._by)
        event_id = f"session/{session.id}/{'closed' if session.closed else row.number}"
        kind = CLOSED_KIND if session.closed else LIFECYCLE_KIND
        record = StateRecord(event_id, session.identity.with_run(""), kind, codec.encode(row, "session"))
        try:
            await self._store.save(record)
        except IdempotencyConflictError:
            return False
        return True

    async def own(self, who: Identity) -> bool:
        """Whether the session id is this owner's; from now on it is, unless it is another's."""
        kind = f"{OWNER_KIND}:{who.session_id}"
        try:
            await self._store.save(StateRecord(kind, _NOBODY, kind, codec.encode((who.tenant_id, who.user_id))))
        except IdempotencyConflictError:
            return False
        return True

    async def enter(self, who: Identity) -> None:
        """Let the session be found in its owner's catalogue."""
        if await self._catalogue((who.tenant_id, who.user_id)).add((who.session_id,)):
            await self._owners.add((who.tenant_id, who.user_id))

    async def owners(self) -> list[Owner]:
        """Everybody who ever had a session."""
        entries = await self._owners.entries()
        return list(dict.fromkeys((tenant, user) for tenant, user in entries))

    async def of_owner(self, owner: Owner) -> list[Identity]:
        """The sessions in an owner's catalogue."""
        entries = await self._catalogue(owner).entries()
        return [Identity(*owner, name) for name in dict.fromkeys(entry[0] for entry in entries)]

    async def read(self, sessions: Iterable[Identity]) -> list[Row]:
        """The rows of these sessions, as far as there are any; one that cannot be read is logged and left out."""
        found: list[Row] = []
        for some in batched(list(sessions)):
            rows = await together(*(self._readable(who) for who in some))
            found += [row for row in rows if row is not None]
        return found

    async def _readable(self, who: Identity) -> Row | None:
        try:
            return await self.load(who)
        except SessionCorruptError as error:
            _log.warning("sessions: %s", error)
            return None

    def _catalogue(self, owner: Owner) -> Directory:
        found = self._catalogues.pop(owner, None)
        if found is None:
            found = Directory(self._store, Quadruple(*owner, CATALOG_SESSION), CATALOG_KIND)
        self._catalogues[owner] = found
        while len(self._catalogues) > _MOST_CATALOGUES:
            del self._catalogues[next(iter(self._catalogues))]
        return found
