"""Groups of tasks: opened, sealed, cancelled, resolved and watched; and ended once their members have.

What a group may do is decided by the rules in `groups`. A group that is to be cancelled with its members is `ending`
first: it takes no more members, and is cancelled once those it has have ended. Whoever sees the last one end does it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from harborage.errors import HarborageError, error_reason
from harborage.identity import Identity, IdentityRequiredError
from harborage.ids import new_id
from harborage.store import ChangeGroup, Commit, GroupQuery, NewGroup
from harborage.store import GroupStatus as RowStatus
from harborage.store.errors import RowNotFoundError, RunOverError, StatusConflictError
from harborage.store.times import moment
from harborage.tasks import announcements
from harborage.tasks.ends import Ends
from harborage.tasks.errors import GroupInvalidTransitionError, GroupNotFoundError, StaleChangeError
from harborage.tasks.groups import (
    FailFast,
    GroupFacts,
    check_resolvable,
    check_sealable,
    completion_of,
    fail_fast_reason,
    failure_of,
    outcome_of,
    verdict,
)
from harborage.tasks.model import (
    GroupAction,
    GroupCompletion,
    GroupRequest,
    GroupStatus,
    MemberOutcome,
    Task,
    TaskGroup,
    TaskGroupID,
)
from harborage.tasks.requests import redacted_text
from harborage.tasks.rows import group_of, kept_members, members_document, task_of
from harborage.tasks.trees import below, cancellation

if TYPE_CHECKING:
    from harborage.clock import Timers
    from harborage.events import Redactor
    from harborage.store import GroupRow, RunRow, Store
    from harborage.tasks.changes import Changes, Runs
    from harborage.tasks.watch import GroupWatch

ACTION_CANCEL_REASON: Final = "action:cancel"
"""The reason of a group that was cancelled by `apply_group`."""

MAX_TRIES: Final = 10
"""How often a change is tried again that others were faster with."""

_log = logging.getLogger(__name__)

_TAKES_PART: Final = (RowStatus.OPEN, RowStatus.SEALED)


class Groups:
    """The groups of one store."""

    def __init__(
        self, store: Store, changes: Changes, clock: Timers, redactor: Redactor | None, runs: Runs | None
    ) -> None:
        self._store = store
        self._changes = changes
        self._clock = clock
        self._redactor = redactor
        self._runs = runs
        self.ends = Ends(store, clock, self.completion)

    async def resolve_or_create(self, request: GroupRequest, caller: Identity) -> TaskGroup:
        """The session's group with this id, or a new one."""
        if caller != request.session:
            raise IdentityRequiredError("tasks.resolve_or_create_group: the caller is not the session it asks for")
        if request.id:
            known = (await self._store.groups(GroupQuery(group_ids=(request.id,)))).rows
            mine = [row for row in known if row.who == caller]
            if mine:
                return await self._snapshot(mine[0])
            if known:
                raise GroupNotFoundError(request.id)
        group = TaskGroup(
            id=request.id or new_id(),
            session=request.session,
            owner_task_id=request.owner_task_id,
            retain_turn=request.retain_turn,
            fail_fast=request.fail_fast,
            description=redacted_text(self._redactor, request.description),
            created_at=self._clock.now(),
        )
        new = NewGroup(
            group_id=group.id,
            who=group.session,
            owner=group.owner_task_id,
            retains_turn=group.retain_turn,
            fails_fast=group.fail_fast,
            description=group.description,
        )
        await self._changes.commit(Commit(groups=(new,)), [announcements.group_created(group)])
        return await self.get(group.id, caller) if request.id else group

    async def get(self, group_id: TaskGroupID, who: Identity) -> TaskGroup:
        """The group as it stands.

        Raises:
            GroupNotFoundError: unknown, or another session's.
        """
        return await self._snapshot(await self._row(group_id, who))

    async def seal(self, group_id: TaskGroupID, who: Identity) -> TaskGroup:
        """The group, sealed, and ended when its members have."""

        async def seal(row: GroupRow) -> None:
            check_sealable(group_id, facts_of(row))
            group = replace(await self._snapshot(row), status=GroupStatus.SEALED)
            change = ChangeGroup(group_id=group_id, who=who, expected=(RowStatus.OPEN,), status=RowStatus.SEALED)
            event = announcements.group_sealed(group, self._clock.now())
            await self._changes.commit(Commit(groups=(change,)), [event])

        await self._changed(group_id, who, seal)
        await self._follow(group_id, self.settle(who, group_id))
        return await self.get(group_id, who)

    async def cancel(self, group_id: TaskGroupID, who: Identity, reason: str, *, propagate: bool) -> bool:
        """Whether this call cancelled the group."""
        row = await self._row(group_id, who)
        while not row.status.is_final and row.status is not RowStatus.ENDING:
            if propagate:
                was_mine = await self._begin_to_end(row, reason)
            else:
                was_mine = await self._end(row, GroupStatus.CANCELLED, reason, expected=_TAKES_PART)
            if was_mine:
                return True
            row = await self._row(group_id, who)
        await self.settle(who, group_id)
        return False

    async def apply(self, group_id: TaskGroupID, action: GroupAction | str, who: Identity) -> TaskGroup:
        """The group after `action`."""
        match action:
            case GroupAction.SEAL:
                return await self.seal(group_id, who)
            case GroupAction.CANCEL:
                await self.cancel(group_id, who, ACTION_CANCEL_REASON, propagate=True)
            case GroupAction.RESOLVE:
                await self._changed(group_id, who, self._resolve)
            case _:
                row = await self._row(group_id, who)
                raise GroupInvalidTransitionError(group_id, group_of(row).status, f"action {action!r}")
        return await self.get(group_id, who)

    async def watch(self, group_id: TaskGroupID, who: Identity) -> GroupWatch:
        """A watch on the end of the group."""
        watch = self.ends.watch_group(who, group_id)
        try:
            row = await self._row(group_id, who)
            await self._settle(row)
            if row.status.is_final and watch.peek() is None:
                watch.deliver(await self.completion(row))
        except BaseException:
            watch.cancel()
            raise
        return watch

    async def tasks_ended(self, tasks: Sequence[Task]) -> None:
        """Wake those who wait for tasks that this process has ended, and do what follows for their groups."""
        for task in tasks:
            self.ends.task_ended(task)
        for task in {task.group_id: task for task in tasks}.values():
            await self.member_ended(task.identity.identity, task.group_id, outcome_of(task))

    async def member_ended(self, who: Identity, group_id: TaskGroupID, member: MemberOutcome) -> None:
        """Do what follows for the group of a task that has ended: a failed one may end it, the last one does."""
        if not group_id:
            return
        failure = failure_of(member)

        async def follow(row: GroupRow) -> None:
            match verdict(facts_of(row), failure):
                case FailFast(reason):
                    if not await self._begin_to_end(row, reason):
                        raise StatusConflictError(f"group {row.group_id}", row.status, _TAKES_PART)
                case _:
                    await self._settle(row, member)

        await self._follow(group_id, self._changed(group_id, who, follow))

    async def settle(self, who: Identity, group_id: TaskGroupID) -> None:
        """End the group if all its members have ended and nobody has ended it yet."""
        await self._settle(await self._row(group_id, who))

    async def completion(self, row: GroupRow) -> GroupCompletion:
        """How a group has ended."""
        group = group_of(row)
        at = moment(row.ended_at or 0)
        if row.outcome:
            completion = completion_of(group, (), GroupStatus(row.status), row.reason, at)
            return replace(completion, members=kept_members(row))
        return completion_of(group, await self._outcomes(row), GroupStatus(row.status), row.reason, at)

    async def _settle(self, row: GroupRow, last: MemberOutcome | None = None) -> None:
        """End the group if it has to; `last` is the member that ended just now."""
        if row.open_members or row.status.is_final or not (row.members or row.status is RowStatus.ENDING):
            return
        reason = await self._failure_in(row, last) if row.fails_fast and row.status is not RowStatus.ENDING else ""
        if reason:
            await self._end(row, GroupStatus.CANCELLED, reason, expected=_TAKES_PART, is_empty=True, last=last)
        elif row.status is RowStatus.SEALED:
            await self._end(row, GroupStatus.COMPLETED, "", expected=(RowStatus.SEALED,), is_empty=True, last=last)
        elif row.status is RowStatus.ENDING:
            ending = (RowStatus.ENDING,)
            await self._end(row, GroupStatus.CANCELLED, row.reason, expected=ending, is_empty=True, last=last)

    async def _failure_in(self, row: GroupRow, last: MemberOutcome | None) -> str:
        """Why a fail-fast group ends, whose members have ended; it is still there when a process died over its end."""
        failures = [
            failure for member in await self._outcomes(row, last) if (failure := failure_of(member)) is not None
        ]
        return fail_fast_reason(failures[0]) if failures else ""

    async def _resolve(self, row: GroupRow) -> None:
        check_resolvable(row.group_id, facts_of(row))
        if not await self._end(row, GroupStatus.COMPLETED, "", expected=(RowStatus.SEALED,)):
            raise StatusConflictError(f"group {row.group_id}", row.status, (RowStatus.SEALED,))

    async def _end(
        self,
        row: GroupRow,
        status: GroupStatus,
        reason: str,
        *,
        expected: tuple[RowStatus, ...],
        is_empty: bool = False,
        last: MemberOutcome | None = None,
    ) -> bool:
        """End a group, its members as they stand; False where somebody else has changed it first."""
        members = await self._outcomes(row, last)
        completion = completion_of(group_of(row), members, status, reason, self._clock.now())
        is_early = any(not member.status.is_terminal for member in members)
        change = ChangeGroup(
            group_id=row.group_id,
            who=row.who,
            expected=expected,
            status=RowStatus(status),
            reason=reason,
            is_empty=is_empty,
            outcome=members_document(members) if is_early else b"",
        )
        try:
            await self._changes.commit(Commit(groups=(change,)), [announcements.group_ended(completion)])
        except StatusConflictError:
            return False
        self.ends.group_ended(completion, retains_turn=row.retains_turn)
        return True

    async def _begin_to_end(self, row: GroupRow, reason: str) -> bool:
        """Cancel the members of a group, each with what its policy takes along, and the group once they have ended."""
        members = [member for member in await self._members(row) if not member.status.is_final]
        cascading = [member for member in members if member.is_cascading]
        going = {one.run_id: one for one in (*members, *await below(self._store, cascading))}
        cancelled = cancellation([(one, True) for one in going.values()], reason, self._clock.now(), self._runs)
        change = ChangeGroup(
            group_id=row.group_id, who=row.who, expected=_TAKES_PART, status=RowStatus.ENDING, reason=reason
        )
        try:
            await self._changes.commit(replace(cancelled.commit, groups=(change,)), cancelled.events)
        except (StatusConflictError, RunOverError, RowNotFoundError):
            return False
        await self.tasks_ended(cancelled.ended)
        await self._follow(row.group_id, self.settle(row.who, row.group_id))
        return True

    async def _follow(self, group_id: TaskGroupID, work: Awaitable[None]) -> None:
        """Do what follows from a change that has been made. What fails is done when the group is looked at again."""
        try:
            await work
        except HarborageError as error:
            _log.warning("group %s is ended later: %s", group_id, error_reason(error))

    async def _changed(
        self, group_id: TaskGroupID, who: Identity, change: Callable[[GroupRow], Awaitable[None]]
    ) -> None:
        """Carry out a change of a group as it stands; again where others changed it meanwhile."""
        for _ in range(MAX_TRIES):
            try:
                await change(await self._row(group_id, who))
                return
            except StatusConflictError:
                continue
        raise StaleChangeError(group_id)

    async def _row(self, group_id: TaskGroupID, who: Identity) -> GroupRow:
        query = GroupQuery(
            tenant=who.tenant_id, user=who.user_id, session=who.session_id, group_ids=(group_id,), limit=1
        )
        rows = (await self._store.groups(query)).rows
        if not rows:
            raise GroupNotFoundError(group_id)
        return rows[0]

    async def _snapshot(self, row: GroupRow) -> TaskGroup:
        return group_of(row, [member.run_id for member in await self._members(row)] if row.members else ())

    async def _outcomes(self, row: GroupRow, last: MemberOutcome | None = None) -> list[MemberOutcome]:
        """The members; a group that has had one alone is not read for it."""
        if last is not None and row.members == 1:
            return [last]
        return [outcome_of(task_of(member)) for member in await self._members(row)] if row.members else []

    async def _members(self, row: GroupRow) -> list[RunRow]:
        """The members, whole, in the order they joined."""
        try:
            return (await self._store.group(row.group_id, who=row.who))[1]
        except RowNotFoundError as error:
            raise GroupNotFoundError(row.group_id) from error


def facts_of(row: GroupRow) -> GroupFacts:
    """What the rules of groups need to know."""
    return GroupFacts(
        status=group_of(row).status,
        fail_fast=row.fails_fast,
        size=row.members,
        live=row.open_members,
        is_ending=row.status is RowStatus.ENDING,
    )
