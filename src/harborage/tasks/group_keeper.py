"""Groups on behalf of callers: found or created, sealed, cancelled, resolved, watched.

What a group's rules say is in `groups`; how its end is carried out is in `books`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from harborage.identity import Identity, IdentityRequiredError, require_triple
from harborage.ids import new_id
from harborage.tasks import announcements, records
from harborage.tasks.errors import GroupInvalidTransitionError, GroupNotFoundError
from harborage.tasks.groups import check_resolvable, check_sealable
from harborage.tasks.ledger import EndGroup, GroupState, SessionLedger, key_of
from harborage.tasks.model import GroupAction, GroupRequest, GroupStatus, TaskGroup, TaskGroupID
from harborage.tasks.redaction import redacted_text

if TYPE_CHECKING:
    from harborage.events import Redactor
    from harborage.tasks.books import Books
    from harborage.tasks.port import Who
    from harborage.tasks.watch import GroupWatch, RetainTurnWaiter

__all__ = ["ACTION_CANCEL_REASON", "GroupKeeper"]

ACTION_CANCEL_REASON = "action:cancel"
"""The reason of a group that was cancelled by `apply_group`."""


class GroupKeeper:
    """The group verbs of the registry."""

    __slots__ = ("_books", "_redactor")

    def __init__(self, books: Books, redactor: Redactor | None) -> None:
        self._books = books
        self._redactor = redactor

    async def resolve_or_create(self, request: GroupRequest, who: Who | None) -> TaskGroup:
        """The session's group with this id, or a new one."""
        caller = self._books.caller(who, "tasks.resolve_or_create_group")
        require_triple(request.session, "tasks.resolve_or_create_group")
        if key_of(caller) != key_of(request.session):
            raise IdentityRequiredError("tasks.resolve_or_create_group: the caller is not the session it asks for")
        ledger = self._books.open(caller)
        return await self._books.alone(ledger, partial(self._resolve_or_create, ledger, request))

    async def get(self, group_id: TaskGroupID, who: Who | None) -> TaskGroup:
        """The group as it stands."""
        ledger = await self._books.of_group(group_id, who, "tasks.group")
        return (await self._books.alone(ledger, partial(self._books.group, ledger, group_id))).snapshot()

    async def seal(self, group_id: TaskGroupID, who: Who | None) -> TaskGroup:
        """The group, sealed, and ended when its members have."""
        ledger = await self._books.of_group(group_id, who, "tasks.seal_group")
        return (await self._books.alone(ledger, partial(self._seal, ledger, group_id))).snapshot()

    async def cancel(self, group_id: TaskGroupID, reason: str, propagate: bool, who: Who | None) -> bool:
        """Whether this call cancelled the group."""
        ledger = await self._books.of_group(group_id, who, "tasks.cancel_group")
        return await self._books.alone(ledger, partial(self._cancel, ledger, group_id, reason, propagate))

    async def apply(self, group_id: TaskGroupID, action: GroupAction | str, who: Who | None) -> TaskGroup:
        """The group after `action`."""
        ledger = await self._books.of_group(group_id, who, "tasks.apply_group")
        change: Callable[[], Coroutine[Any, Any, GroupState]]
        match action:
            case GroupAction.SEAL:
                change = partial(self._seal, ledger, group_id)
            case GroupAction.RESOLVE:
                change = partial(self._resolve, ledger, group_id)
            case GroupAction.CANCEL:
                change = partial(self._cancel_by_action, ledger, group_id)
            case _:
                change = partial(self._unknown, ledger, group_id, action)
        return (await self._books.alone(ledger, change)).snapshot()

    async def watch(self, session: Identity, group_id: TaskGroupID) -> GroupWatch:
        """A watch on the end of the group."""
        caller = self._explicit(session, "tasks.watch_group")
        return await self._books.watch(await self._books.of_group(group_id, caller, "tasks.watch_group"), group_id)

    def turn_waiter(self, session: Identity) -> RetainTurnWaiter:
        """A waiter for the next group of the session to end that holds its owner's turn."""
        caller = self._explicit(session, "tasks.register_retain_turn_waiter")
        return self._books.turn_waiter(self._books.open(caller))

    def _explicit(self, session: Identity, what: str) -> Who:
        self._books.check_open()
        require_triple(session, what)
        return session

    async def _resolve_or_create(self, ledger: SessionLedger, request: GroupRequest) -> TaskGroup:
        if request.id:
            try:
                return (await self._books.group(ledger, request.id)).snapshot()
            except GroupNotFoundError:
                pass
        header = self._new_header(request)
        await self._books.commit_group(ledger, header)
        return header

    def _new_header(self, request: GroupRequest) -> TaskGroup:
        return TaskGroup(
            id=request.id or new_id(),
            session=request.session,
            owner_task_id=request.owner_task_id,
            retain_turn=request.retain_turn,
            fail_fast=request.fail_fast,
            description=redacted_text(self._redactor, request.description),
            created_at=self._books.clock.now(),
        )

    async def _seal(self, ledger: SessionLedger, group_id: TaskGroupID) -> GroupState:
        state = await self._books.group(ledger, group_id)
        prior = state.header
        check_sealable(prior.id, state.facts())
        now = self._books.clock.now()
        header = msgspec.structs.replace(prior, status=GroupStatus.SEALED, sealed_at=now, members=tuple(state.members))
        await self._books.writer.commit(
            announcements.group_sealed(header, now),
            partial(setattr, state, "header", header),
            partial(records.group_write, header, prior, by=self._books.writer.id),
        )
        await self._books.judge(ledger, state)
        return state

    async def _unknown(self, ledger: SessionLedger, group_id: TaskGroupID, action: str) -> GroupState:
        state = await self._books.group(ledger, group_id)
        raise GroupInvalidTransitionError(group_id, state.header.status, f"action {action!r}")

    async def _cancel(self, ledger: SessionLedger, group_id: TaskGroupID, reason: str, propagate: bool) -> bool:
        state = await self._books.group(ledger, group_id)
        header = state.header
        if header.status.is_terminal:
            return False
        end = EndGroup(header.id, GroupStatus.CANCELLED, reason)
        await self._books.end_group_now(ledger, state, end, take_members=propagate)
        return True

    async def _cancel_by_action(self, ledger: SessionLedger, group_id: TaskGroupID) -> GroupState:
        await self._cancel(ledger, group_id, ACTION_CANCEL_REASON, True)
        return await self._books.group(ledger, group_id)

    async def _resolve(self, ledger: SessionLedger, group_id: TaskGroupID) -> GroupState:
        state = await self._books.group(ledger, group_id)
        header = state.header
        check_resolvable(header.id, state.facts())
        end = EndGroup(header.id, GroupStatus.COMPLETED)
        await self._books.end_group_now(ledger, state, end, take_members=False)
        return state
