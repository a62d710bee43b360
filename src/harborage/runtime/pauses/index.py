"""Which pauses a store holds: a record store lists nothing, so the open tokens of a tenant lie in many small records.

A token's record follows from the token, so that one more pause costs the same however many are open. Several processes
may share a store. A writer reads the latest record and writes the next one under an event id made of its number, so
that two writers of the same number collide and the second reads again. A writer that is several numbers behind can
still undo others; everybody therefore puts back what is its own whenever it reads or writes the record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from zlib import crc32

import msgspec

from harborage import codec
from harborage.concurrency import together
from harborage.identity import Quadruple
from harborage.runtime.pauses.errors import CheckpointCorruptError
from harborage.runtime.pauses.locks import KeyedLocks
from harborage.state import IdempotencyConflictError, NotFoundError, StateRecord, StateStore
from harborage.state.directory import Directory

__all__ = ["NOBODY", "PauseIndex", "slot_of_tenant"]

INDEX_KIND = "pauseresume.index"
PARTS_KIND = "pauseresume.parts"
TENANTS_KIND = "pauseresume.tenants"
LOCATOR_KIND = "pauseresume.locator"

_ATTEMPTS = 8
_PARTS = 256

# Records that belong to no single user live under names of our own.
NOBODY = Quadruple("harborage..pauses", "harborage..pauses", "harborage..pauses")


class _Index(msgspec.Struct, frozen=True):
    """The stored form of one part: how often it was written, and the tokens in it with their owners."""

    number: int = 0
    entries: dict[str, Quadruple] = {}


class _Tenant:
    """What this process knows of one tenant: which parts its list has, and in each the tokens that are our own."""

    __slots__ = ("known", "mine", "parts")

    def __init__(self, parts: Directory) -> None:
        self.parts = parts
        self.known: set[int] = set()
        self.mine: dict[int, dict[str, Quadruple]] = {}


class PauseIndex:
    """Open tokens by tenant, owners by token, and the tenants there are, all in the records of one store."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._locks = KeyedLocks()
        self._all = Directory(store, NOBODY, TENANTS_KIND)
        self._known: set[str] = set()
        self._tenants: dict[str, _Tenant] = {}

    async def add(self, token: str, owner: Quadruple) -> None:
        """Let the pause be found in the list of its tenant."""
        tenant, part = self._tenant(owner.tenant_id), part_of(token)
        tenant.mine.setdefault(part, {})[token] = owner
        if owner.tenant_id not in self._known:
            await self._enter(owner.tenant_id)
        if part not in tenant.known:
            tenant.known.update(await _parts(tenant))
        if part not in tenant.known:
            await tenant.parts.add((str(part),))
            tenant.known.add(part)
        # Settled meanwhile, it may have gone, and its part of the list with it.
        await self._sync(owner.tenant_id, part, tenant.mine.get(part, {}), ())

    async def locate(self, token: str, owner: Quadruple) -> None:
        """Let the pause be found by its token alone."""
        await self._store.save(
            StateRecord(event_id=f"{token}.owner", identity=NOBODY, kind=_locator(token), data=codec.encode(owner))
        )

    async def remove(self, tenant_id: str, tokens: Iterable[str]) -> None:
        """Take pauses out of the list of their tenant; those that are not there stay so."""
        tenant = self._tenant(tenant_id)
        gone: dict[int, list[str]] = {}
        for token in tokens:
            part = part_of(token)
            gone.setdefault(part, []).append(token)
            if part in tenant.mine:
                tenant.mine[part].pop(token, None)
        for part, names in gone.items():
            await self._sync(tenant_id, part, tenant.mine.get(part, {}), names)
            if not tenant.mine.get(part, True):
                del tenant.mine[part]

    async def forget(self, token: str) -> None:
        """Let the pause be found no more by its token."""
        await self._store.delete(NOBODY, _locator(token))

    async def owner(self, token: str) -> Quadruple | None:
        """Whose pause this is, or None when the store does not know it.

        Raises:
            CheckpointCorruptError: the record cannot be read.
        """
        try:
            found = await self._store.load(NOBODY, _locator(token))
        except NotFoundError:
            return None
        try:
            owner: Quadruple = codec.decode(found.data, Quadruple)
        except msgspec.DecodeError as error:
            raise CheckpointCorruptError(token, "its locator") from error
        return owner

    async def entries(self, tenant_id: str) -> Mapping[str, Quadruple]:
        """The tokens of a tenant's open pauses, with their owners.

        Raises:
            CheckpointCorruptError: a record cannot be read.
        """
        tenant = self._tenant(tenant_id)
        tenant.known.update(await _parts(tenant))
        found = await together(
            *(self._sync(tenant_id, part, tenant.mine.get(part, {}), ()) for part in sorted(tenant.known))
        )
        return {token: owner for part in found for token, owner in part.items()}

    async def readable(self, tenant_id: str) -> tuple[Mapping[str, Quadruple], list[str]]:
        """The same as far as it can be read, and what cannot; nothing is written."""
        entries: dict[str, Quadruple] = {}
        flaws: list[str] = []
        for part in sorted(await _parts(self._tenant(tenant_id))):
            try:
                entries |= (await self._read(tenant_id, f"{INDEX_KIND}:{part:02x}")).entries
            except CheckpointCorruptError:
                flaws.append(f"tenant {tenant_id}: part {part:02x} of its list of open pauses cannot be read")
        return entries, flaws

    async def tenants(self) -> tuple[str, ...]:
        """Every tenant that ever had a pause in this store."""
        self._known.update(name for (name,) in await self._all.entries())
        return tuple(sorted(self._known))

    def _tenant(self, tenant_id: str) -> _Tenant:
        tenant = self._tenants.get(tenant_id)
        if tenant is None:
            parts = Directory(self._store, slot_of_tenant(tenant_id), PARTS_KIND)
            tenant = self._tenants[tenant_id] = _Tenant(parts)
        return tenant

    async def _enter(self, tenant_id: str) -> None:
        if tenant_id not in await self.tenants():
            await self._all.add((tenant_id,))
            self._known.add(tenant_id)

    async def _sync(
        self, tenant_id: str, part: int, mine: Mapping[str, Quadruple], gone: Collection[str]
    ) -> Mapping[str, Quadruple]:
        """The entries of a part, mine among them and those that are gone not; written when that changes it."""
        kind = f"{INDEX_KIND}:{part:02x}"
        async with self._locks((tenant_id, part)):
            attempt = 1
            while True:
                found = await self._read(tenant_id, kind)
                entries = {name: owner for name, owner in found.entries.items() if name not in gone} | {**mine}
                if entries == found.entries:
                    return entries
                try:
                    await self._write(tenant_id, kind, _Index(found.number + 1, entries))
                except IdempotencyConflictError:
                    if attempt == _ATTEMPTS:
                        raise
                    attempt += 1
                else:
                    return entries

    async def _read(self, tenant_id: str, kind: str) -> _Index:
        try:
            found = await self._store.load(slot_of_tenant(tenant_id), kind)
        except NotFoundError:
            return _Index()
        try:
            index: _Index = codec.decode(found.data, _Index)
        except msgspec.DecodeError as error:
            raise CheckpointCorruptError("", f"{kind} of tenant {tenant_id}") from error
        return index

    async def _write(self, tenant_id: str, kind: str, index: _Index) -> None:
        event_id = f"{kind}.{index.number}"
        data = codec.encode(index)
        await self._store.save(StateRecord(event_id=event_id, identity=slot_of_tenant(tenant_id), kind=kind, data=data))


def part_of(token: str) -> int:
    """Which part of its tenant's list a token is in: the same in every process."""
    return crc32(token.encode()) % _PARTS


def slot_of_tenant(tenant_id: str) -> Quadruple:
    """Where the records of a whole tenant lie."""
    return Quadruple(tenant_id, NOBODY.user_id, NOBODY.session_id)


async def _parts(tenant: _Tenant) -> set[int]:
    return {int(name) for (name,) in await tenant.parts.entries()}


def _locator(token: str) -> str:
    return f"{LOCATOR_KIND}:{token}"
