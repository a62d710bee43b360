"""Patches: changes that wait for a decision, one decision each. Ids are unique in a session."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from harborage.identity import Identity, require_triple
from harborage.tasks import announcements, records
from harborage.tasks.errors import GroupInvalidTransitionError, InvalidRequestError, PatchNotFoundError
from harborage.tasks.model import PatchAction, PatchStatus, TaskPatch

if TYPE_CHECKING:
    from harborage.tasks.books import Books
    from harborage.tasks.ledger import SessionLedger

__all__ = ["PatchKeeper"]

_DECIDED: Final[Mapping[str, PatchStatus]] = {
    PatchAction.ACCEPT: PatchStatus.APPLIED,
    PatchAction.REJECT: PatchStatus.REJECTED,
}


class PatchKeeper:
    """The patch verbs of the registry."""

    __slots__ = ("_books",)

    def __init__(self, books: Books) -> None:
        self._books = books

    async def create(self, session: Identity, patch_id: str) -> TaskPatch:
        """The session's patch with this id, new and pending unless there is one."""
        self._books.check_open()
        require_triple(session, "tasks.create_pending_patch")
        if not patch_id:
            raise InvalidRequestError("patch_id", "must not be empty")
        ledger = self._books.open(session)
        return await self._books.alone(ledger, partial(self._create, ledger, patch_id))

    async def apply(self, session: Identity, patch_id: str, action: PatchAction | str) -> bool:
        """Whether this call decided the patch."""
        self._books.check_open()
        require_triple(session, "tasks.apply_patch")
        if action not in _DECIDED:
            raise InvalidRequestError("action", f"{action!r} is not one of accept, reject")
        ledger = self._books.of_session(session)
        if ledger is None:
            raise PatchNotFoundError(patch_id)
        return await self._books.alone(ledger, partial(self._apply, ledger, patch_id, action))

    async def _create(self, ledger: SessionLedger, patch_id: str) -> TaskPatch:
        known = await self._books.patch(ledger, patch_id)
        if known is not None:
            return known
        patch = TaskPatch(id=patch_id, session=ledger.session, created_at=self._books.clock.now())
        await self._put(ledger, patch, None)
        return patch

    async def _apply(self, ledger: SessionLedger, patch_id: str, action: str) -> bool:
        prior = await self._books.patch(ledger, patch_id)
        if prior is None:
            raise PatchNotFoundError(patch_id)
        target = _DECIDED[action]
        if prior.status is target:
            return False
        if prior.status is not PatchStatus.PENDING:
            raise GroupInvalidTransitionError(patch_id, prior.status, action)
        await self._put(
            ledger, msgspec.structs.replace(prior, status=target, decided_at=self._books.clock.now()), prior
        )
        return True

    async def _put(self, ledger: SessionLedger, patch: TaskPatch, prior: TaskPatch | None) -> None:
        event = announcements.patch_decided(patch, patch.decided_at) if patch.decided_at is not None else None
        await self._books.writer.commit(
            event,
            partial(ledger.patches.__setitem__, patch.id, patch),
            partial(records.patch_write, patch, prior, by=self._books.writer.id),
        )
