"""Pauses in a record store: written when they are asked for, claimed by whoever settles them, then deleted.

A claim overwrites the checkpoint with the settled pause under an event id that can be used once, so that of two
processes only one settles a pause, and a settlement that was cut short by a crash is not lost.
"""

from __future__ import annotations

import hashlib
import logging

from harborage.identity import Quadruple
from harborage.runtime.pauses.errors import CheckpointCorruptError, UnsupportedFormatVersionError
from harborage.runtime.pauses.index import PauseIndex
from harborage.runtime.pauses.listing import owner_matches
from harborage.runtime.pauses.model import Pause, PauseFilter
from harborage.runtime.pauses.record import decode_pause, encode_pause
from harborage.state import IdempotencyConflictError, NotFoundError, StateRecord, StateStore

__all__ = ["CHECKPOINT_KIND", "Checkpoints"]

CHECKPOINT_KIND = "pauseresume.checkpoint"
KEY_KIND = "pauseresume.key"

logger = logging.getLogger(__name__)


class Checkpoints:
    """The pauses of one record store. Everything about one pause lies in its owner's slots, except how to find it."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._index = PauseIndex(store)

    async def save(self, pause: Pause) -> None:
        """Keep an open pause; when any part of that fails, what was written is taken back and the failure raised."""
        data = encode_pause(pause)
        try:
            if pause.key:
                await self._store.save(_key_record(pause))
            await self._store.save(
                StateRecord(event_id=pause.token, identity=pause.identity, kind=_kind(pause.token), data=data)
            )
            await self._index.add(pause.token, pause.identity)
        except BaseException:
            await self._take_back(pause)
            raise

    async def load(self, token: str, owner: Quadruple | None = None) -> Pause | None:
        """The pause as it is kept, or None when the store has none. `owner` saves a look-up where it is known.

        Raises:
            CheckpointCorruptError, UnsupportedFormatVersionError: it is kept but cannot be read.
        """
        place = await self._index.owner(token) if owner is None else owner
        if place is None:
            return None
        try:
            found = await self._store.load(place, _kind(token))
        except NotFoundError:
            return None
        return decode_pause(found.data, token)

    async def load_by_key(self, owner: Quadruple, key: str) -> Pause | None:
        """The pause that this owner asked for under `key`, or None."""
        try:
            found = await self._store.load(owner, _key_kind(key))
        except NotFoundError:
            return None
        return await self.load(found.data.decode(), owner)

    async def claim(self, settled: Pause) -> bool:
        """Write a pause down as settled; False when somebody else has."""
        record = StateRecord(
            event_id=f"{settled.token}.resumed",
            identity=settled.identity,
            kind=_kind(settled.token),
            data=encode_pause(settled),
        )
        try:
            await self._store.save(record)
        except IdempotencyConflictError:
            return False
        return True

    async def delete(self, pause: Pause) -> None:
        """Forget a settled pause. Only the checkpoint itself must go; what points to it does no harm and is logged."""
        await self._store.delete(pause.identity, _kind(pause.token))
        try:
            await self._forget_pointers(pause)
        except Exception:
            logger.warning("pause %s: settled, but its index entry could not be removed", pause.token, exc_info=True)

    async def of_tenant(self, tenant: str, filter: PauseFilter, known: set[str]) -> list[Pause]:
        """The kept pauses of a tenant whose owner fits the filter, except the `known` ones.

        One that cannot be read is logged and left out, so that it does not hide the others. Entries of the index that
        lead nowhere are taken out of it: a checkpoint is written before its entry, so theirs was deleted.
        """
        rows: list[Pause] = []
        lost: list[str] = []
        for token, owner in (await self._index.entries(tenant)).items():
            if token in known or not owner_matches(owner, filter):
                continue
            try:
                pause = await self.load(token, owner)
            except (CheckpointCorruptError, UnsupportedFormatVersionError) as error:
                logger.warning("pause %s cannot be listed: %s", token, error)
                continue
            if pause is None:
                lost.append(token)
            else:
                rows.append(pause)
        if lost:
            await self._prune(tenant, lost)
        return rows

    async def tenants(self) -> tuple[str, ...]:
        """Every tenant that ever had a pause in this store."""
        return await self._index.tenants()

    async def _prune(self, tenant: str, tokens: list[str]) -> None:
        try:
            await self._index.remove(tenant, tokens)
        except Exception:
            logger.warning("tenant %s: stale index entries could not be removed", tenant, exc_info=True)

    async def _take_back(self, pause: Pause) -> None:
        try:
            await self._store.delete(pause.identity, _kind(pause.token))
            await self._forget_pointers(pause)
        except Exception:
            logger.warning("pause %s: a failed request left parts of itself in the store", pause.token, exc_info=True)

    async def _forget_pointers(self, pause: Pause) -> None:
        if pause.key:
            await self._store.delete(pause.identity, _key_kind(pause.key))
        await self._index.remove(pause.identity.tenant_id, (pause.token,))


def _kind(token: str) -> str:
    return f"{CHECKPOINT_KIND}:{token}"


def _key_kind(key: str) -> str:
    return f"{KEY_KIND}:{hashlib.sha256(key.encode()).hexdigest()}"


def _key_record(pause: Pause) -> StateRecord:
    return StateRecord(
        event_id=f"{pause.token}.key",
        identity=pause.identity,
        kind=_key_kind(pause.key),
        data=pause.token.encode(),
    )
