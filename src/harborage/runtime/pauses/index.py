"""Which pauses a store holds: a record store has no list verb, so each tenant has one record with its open tokens.

Several processes may share a store. A writer reads the latest record and writes the next one under an event id made of
its number, so that two writers of the same number collide and the second reads again. A writer that is several numbers
behind can still undo others; everybody therefore puts back what is its own whenever it reads or writes the record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from harborage import codec
from harborage.identity import Quadruple
from harborage.runtime.pauses.errors import CheckpointCorruptError
from harborage.runtime.pauses.locks import KeyedLocks
from harborage.state import IdempotencyConflictError, NotFoundError, StateRecord, StateStore

__all__ = ["PauseIndex"]

INDEX_KIND = "pauseresume.index"
TENANTS_KIND = "pauseresume.tenants"
LOCATOR_KIND = "pauseresume.locator"

_ATTEMPTS = 8

# Records that belong to no single user live under names of our own.
_NOBODY = Quadruple("harborage..pauses", "harborage..pauses", "harborage..pauses")


class _Index(msgspec.Struct, frozen=True):
    """The stored form: how often it was written, and the names in it with their owners."""

    number: int = 0
    entries: dict[str, Quadruple] = {}


class PauseIndex:
    """Open tokens by tenant, owners by token, and the tenants there are, all in the records of one store."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._locks = KeyedLocks()
        self._mine: dict[str, dict[str, Quadruple]] = {}
        self._tenants: dict[str, Quadruple] = {}

    async def add(self, token: str, owner: Quadruple) -> None:
        """Let the pause be found by its token alone, and in the list of its tenant."""
        tenant = owner.tenant_id
        self._mine.setdefault(tenant, {})[token] = owner
        await self._store.save(
            StateRecord(event_id=f"{token}.owner", identity=_NOBODY, kind=_locator(token), data=codec.encode(owner))
        )
        if tenant not in self._tenants:
            await self._sync(_NOBODY, TENANTS_KIND, {tenant: _of_tenant(tenant)}, ())
            self._tenants[tenant] = _of_tenant(tenant)
        await self._sync_tenant(tenant, ())

    async def remove(self, tenant: str, tokens: Iterable[str]) -> None:
        """Forget pauses of a tenant; those that are not there stay so."""
        gone = frozenset(tokens)
        mine = self._mine.get(tenant, {})
        for token in gone:
            mine.pop(token, None)
        if not mine:
            self._mine.pop(tenant, None)
        await self._sync_tenant(tenant, gone)
        for token in gone:
            await self._store.delete(_NOBODY, _locator(token))

    async def owner(self, token: str) -> Quadruple | None:
        """Whose pause this is, or None when the store does not know it.

        Raises:
            CheckpointCorruptError: the record cannot be read.
        """
        try:
            found = await self._store.load(_NOBODY, _locator(token))
        except NotFoundError:
            return None
        try:
            owner: Quadruple = codec.decode(found.data, Quadruple)
        except msgspec.DecodeError as error:
            raise CheckpointCorruptError(token, "its locator") from error
        return owner

    async def entries(self, tenant: str) -> Mapping[str, Quadruple]:
        """The tokens of a tenant's open pauses, with their owners.

        Raises:
            CheckpointCorruptError: the record cannot be read.
        """
        return await self._sync_tenant(tenant, ())

    async def tenants(self) -> tuple[str, ...]:
        """Every tenant that ever had a pause in this store."""
        return tuple(await self._sync(_NOBODY, TENANTS_KIND, self._tenants, ()))

    async def _sync_tenant(self, tenant: str, gone: Collection[str]) -> Mapping[str, Quadruple]:
        return await self._sync(_of_tenant(tenant), INDEX_KIND, self._mine.get(tenant, {}), gone)

    async def _sync(
        self, slot: Quadruple, kind: str, mine: Mapping[str, Quadruple], gone: Collection[str]
    ) -> Mapping[str, Quadruple]:
        """The entries of a record, mine among them and those that are gone not; written when that changes it."""
        async with self._locks((slot, kind)):
            attempt = 1
            while True:
                found = await self._read(slot, kind)
                entries = {name: owner for name, owner in found.entries.items() if name not in gone} | {**mine}
                if entries == found.entries:
                    return entries
                try:
                    await self._write(slot, kind, _Index(found.number + 1, entries))
                except IdempotencyConflictError:
                    if attempt == _ATTEMPTS:
                        raise
                    attempt += 1
                else:
                    return entries

    async def _read(self, slot: Quadruple, kind: str) -> _Index:
        try:
            found = await self._store.load(slot, kind)
        except NotFoundError:
            return _Index()
        try:
            index: _Index = codec.decode(found.data, _Index)
        except msgspec.DecodeError as error:
            raise CheckpointCorruptError("", f"{kind} of tenant {slot.tenant_id}") from error
        return index

    async def _write(self, slot: Quadruple, kind: str, index: _Index) -> None:
        event_id = f"{kind}.{index.number}"
        await self._store.save(StateRecord(event_id=event_id, identity=slot, kind=kind, data=codec.encode(index)))


def _of_tenant(tenant: str) -> Quadruple:
    return Quadruple(tenant, _NOBODY.user_id, _NOBODY.session_id)


def _locator(token: str) -> str:
    return f"{LOCATOR_KIND}:{token}"
