"""Pauses in a record store: written when they are asked for, claimed by whoever settles them, dropped much later.

A claim overwrites the checkpoint with the settled pause under an event id that can be used once, so that of two
processes only one settles a pause. A settled pause stays: the run that waited for it may come for its answer in another
process, days later.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec.structs import replace

from harborage.concurrency import together
from harborage.errors import error_reason
from harborage.identity import Quadruple
from harborage.runtime.pauses.errors import CheckpointCorruptError, UnsupportedFormatVersionError
from harborage.runtime.pauses.index import PauseIndex, slot_of_tenant
from harborage.runtime.pauses.listing import owner_matches
from harborage.runtime.pauses.record import decode_pause, encode_pause
from harborage.state import IdempotencyConflictError, NotFoundError, StateRecord, StateStore
from harborage.state.directory import Directory, Entry, batched

if TYPE_CHECKING:
    from harborage.runtime.pauses.model import Pause, PauseFilter

__all__ = ["CHECKPOINT_KIND", "Checkpoints"]

CHECKPOINT_KIND = "pauseresume.checkpoint"
KEY_KIND = "pauseresume.key"
SETTLED_KIND = "pauseresume.settled"

logger = logging.getLogger(__name__)


class Checkpoints:
    """The pauses of one record store. Everything about one pause lies in its owner's slots, except how to find it."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._index = PauseIndex(store)
        self._settled: dict[str, Directory] = {}

    async def save(self, pause: Pause) -> tuple[Pause, bool]:
        """Keep an open pause; the one that stands under its key, and whether it is this one.

        When any part of that fails, what was written is taken back and the failure raised.
        """
        if pause.key:
            token = await self._hold_key(pause)
            if token != pause.token:
                known = await self.load(token, pause.identity)
                if known is not None:
                    return known, False
                # The key was kept and the pause was not: whoever held it went away, so this is that pause.
                pause = replace(pause, token=token)
        try:
            await together(self._write(pause, pause.token), self._index.locate(pause.token, pause.identity))
            await self._index.add(pause.token, pause.identity)
        except IdempotencyConflictError:
            known = await self.load(pause.token, pause.identity)
            if known is None or not pause.key:
                raise
            return known, False
        except BaseException:
            await self._take_back(pause)
            raise
        return pause, True

    async def enlist(self, pause: Pause) -> None:
        """Let an open pause be found; whoever opened it may have gone away when only the pause itself was kept."""
        await together(self._index.locate(pause.token, pause.identity), self._index.add(pause.token, pause.identity))

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
        try:
            await self._write(settled, f"{settled.token}.resumed")
        except IdempotencyConflictError:
            return False
        return True

    async def retire(self, settled: Pause) -> None:
        """Take a settled pause off the list of open ones, and note when it may be dropped. Failures are logged."""
        who = settled.identity
        at = "" if settled.resumed_at is None else settled.resumed_at.isoformat()
        entry = (settled.token, who.user_id, who.session_id, who.run_id, settled.key, at)
        try:
            await together(
                self._settled_of(who.tenant_id).add(entry), self._index.remove(who.tenant_id, (settled.token,))
            )
        except Exception:
            logger.warning("pause %s: settled, but its index entry could not be removed", settled.token, exc_info=True)

    async def of_tenant(self, tenant: str, filter: PauseFilter) -> tuple[list[Pause], list[str]]:
        """The pauses on a tenant's list of open ones whose owner fits the filter, and the tokens that lead nowhere.

        Some may have been settled all the same. One that cannot be read is logged and left out, so that it does not
        hide the others. Tokens that lead nowhere are taken off the list: a pause is written before it is listed.
        """
        entries = await self._index.entries(tenant)
        wanted = [token for token, owner in entries.items() if owner_matches(owner, filter)]
        rows: list[Pause] = []
        lost: list[str] = []
        for tokens in batched(wanted):
            found = await together(*(self._readable(token, entries[token], lost) for token in tokens))
            rows += [pause for pause in found if pause is not None]
        if lost:
            await self._prune(tenant, lost)
        return rows, lost

    async def tenants(self) -> tuple[str, ...]:
        """Every tenant that ever had a pause in this store."""
        return await self._index.tenants()

    async def flaws(self) -> list[str]:
        """What of the open pauses cannot be read, or is gone, named with its run; nothing is written.

        Raises:
            StateError: the list of tenants, or of the parts of a tenant's list, cannot be read.
        """
        flaws: list[str] = []
        for tenant in await self.tenants():
            entries, unreadable = await self._index.readable(tenant)
            flaws += unreadable
            for token, owner in entries.items():
                try:
                    is_there = await self.load(token, owner) is not None
                except (CheckpointCorruptError, UnsupportedFormatVersionError) as error:
                    flaws.append(f"run {owner.run_id}: {error_reason(error)}")
                else:
                    flaws += [] if is_there else [f"run {owner.run_id}: its pause {token} is listed, and gone"]
        return flaws

    async def drop_settled(self, tenant: str, before: datetime) -> int:
        """Drop the pauses of a tenant that were settled before then, oldest first; returns how many."""
        settled = self._settled_of(tenant)
        count = 0
        while (entries := await settled.oldest()) and _all_before(entries, before):
            for token, user, session, run, key, _ in entries:
                owner = Quadruple(tenant, user, session, run)
                await self._store.delete(owner, _kind(token))
                if key:
                    await self._store.delete(owner, _key_kind(key))
                await self._index.forget(token)
            await settled.drop_oldest()
            count += len(entries)
        return count

    async def _hold_key(self, pause: Pause) -> str:
        """The token that the key of this pause stands for, once and for all."""
        kind = _key_kind(pause.key)
        # Under this event id a record is written once; it differs between runs, which have keys of their own.
        event_id = f"{kind}/{pause.identity.run_id}"
        try:
            await self._store.save(StateRecord(event_id, pause.identity, kind, pause.token.encode()))
        except IdempotencyConflictError:
            return (await self._store.load(pause.identity, kind)).data.decode()
        return pause.token

    async def _write(self, pause: Pause, event_id: str) -> None:
        data = encode_pause(pause)
        await self._store.save(StateRecord(event_id, pause.identity, _kind(pause.token), data))

    async def _readable(self, token: str, owner: Quadruple, lost: list[str]) -> Pause | None:
        try:
            pause = await self.load(token, owner)
        except (CheckpointCorruptError, UnsupportedFormatVersionError) as error:
            logger.warning("pause %s cannot be listed: %s", token, error_reason(error))
            return None
        if pause is None:
            lost.append(token)
        return pause

    async def _prune(self, tenant: str, tokens: list[str]) -> None:
        try:
            await self._index.remove(tenant, tokens)
            await together(*(self._index.forget(token) for token in tokens))
        except Exception:
            logger.warning("tenant %s: stale index entries could not be removed", tenant, exc_info=True)

    async def _take_back(self, pause: Pause) -> None:
        try:
            await self._store.delete(pause.identity, _kind(pause.token))
            if pause.key:
                await self._store.delete(pause.identity, _key_kind(pause.key))
            await self._index.remove(pause.identity.tenant_id, (pause.token,))
            await self._index.forget(pause.token)
        except Exception:
            logger.warning("pause %s: a failed request left parts of itself in the store", pause.token, exc_info=True)

    def _settled_of(self, tenant: str) -> Directory:
        settled = self._settled.get(tenant)
        if settled is None:
            settled = self._settled[tenant] = Directory(self._store, slot_of_tenant(tenant), SETTLED_KIND)
        return settled


def _all_before(entries: Iterable[Entry], moment: datetime) -> bool:
    return all(not entry[5] or datetime.fromisoformat(entry[5]) < moment for entry in entries)


def _kind(token: str) -> str:
    return f"{CHECKPOINT_KIND}:{token}"


def _key_kind(key: str) -> str:
    return f"{KEY_KIND}:{hashlib.sha256(key.encode()).hexdigest()}"
