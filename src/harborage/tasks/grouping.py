"""Groups of tasks: opened, sealed, cancelled, resolved and watched; and ended once their members have.

What a group may do is decided by `rules`. A group that is to be cancelled with its members is `ending` first: it takes
no more members, and is cancelled once those it has have ended. Whoever sees the last one end does it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from harborage.errors import HarborageError, error_reason
from harborage.identity import Identity, IdentityRequiredError
from harborage.ids import new_id
from harborage.store import ChangeGroup, Commit, GroupQuery, NewGroup, Status
from harborage.store import GroupStatus as RowStatus
from harborage.store.errors import RowNotFoundError, RunOverError, StatusConflictError
from harborage.store.times import moment
from harborage.tasks import announcements
from harborage.tasks.changes import Closing
from harborage.tasks.ends import Ends
from harborage.tasks.errors import GroupInvalidTransitionError, GroupNotFoundError, StaleChangeError
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
from harborage.tasks.rules import (
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
from harborage.tasks.trees import below, cancellation

if TYPE_CHECKING:
    from datetime import datetime

    from harborage.clock import Timers
    from harborage.events import Redactor
    from harborage.identity import Quadruple
    from harborage.store import Committed, GroupLeft, GroupRow, RunRow, Store
    from harborage.tasks.changes import Changes, EndedRun, Runs
    from harborage.tasks.ends import GroupWatch

ACTION_CANCEL_REASON: Final = "action:cancel"
"""The reason of a group that was cancelled by `apply_group`."""

MAX_TRIES: Final = 10
"""How often a change is tried again that others were faster with."""

_log = logging.getLogger(__name__)

_TAKES_PART: Final = (RowStatus.OPEN, RowStatus.SEALED)


class _Due(msgspec.Struct, frozen=True):
    """How a group is to end, and from which statuses."""

    status: GroupStatus
    reason: str
    expected: tuple[RowStatus, ...]


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
        group = new_group(request, self._redactor, self._clock.now())
        new = row_of_new(group)
        await self._changes.commit(Commit(groups=(new,)), [announcements.group_created(group)])
        return await self.get(group.id, caller) if request.id else group

    async def get(self, group_id: TaskGroupID, who: Identity) -> TaskGroup:
        """The group as it is now.

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
                was_mine = await self._end(row, _Due(GroupStatus.CANCELLED, reason, _TAKES_PART))
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

    async def tasks_ended(self, tasks: Sequence[Task], done: Committed, closing: Closing | None = None) -> None:
        """Wake those who wait for tasks that this process has ended, and do what follows for their groups; `closing` is
        what was to end one of these in the same commit."""
        for task in tasks:
            self.ends.task_ended(task)
        left = {one.run_id: one for one in done.left}
        if closing is not None and any(one.status.is_final for one in done.left):
            self.ends.group_ended(closing.completion, retains_turn=any(one.retains_turn for one in done.left))
        for task in {task.group_id: task for task in tasks if task.group_id}.values():
            if has_to_follow(left.get(task.id), Status(task.status)):
                await self.member_ended(task.identity.identity, task.group_id, outcome_of(task))

    async def closing(self, who: Identity, group_id: TaskGroupID, member: MemberOutcome) -> Closing | None:
        """What ends the group together with its last member, which is about to end so; None where the group goes on."""
        row = await self._row(group_id, who)
        due = await self._due(row, member) if row.open_members == 1 else None
        return None if due is None else await self._closing(row, due, is_empty=True, last=member)

    async def closing_with(self, task: Task) -> Closing | None:
        """The same for a task without a worker, where the event of the group's end can be part of that commit."""
        if not (task.group_id and self._changes.is_recorded):
            return None
        try:
            return await self.closing(task.identity.identity, task.group_id, outcome_of(task))
        except GroupNotFoundError:
            return None

    def sole_closing(self, who: Identity, group_id: TaskGroupID, owner: str, member: MemberOutcome) -> Closing:
        """The same of a sealed group of this owner that has had no other member, without a look at it.

        The store refuses it where the group is another one. It may not be a failed member's, who may cancel it.
        """
        now = self._clock.now()
        group = TaskGroup(id=group_id, session=who, owner_task_id=owner, created_at=now)
        completion = completion_of(group, (member,), GroupStatus.COMPLETED, "", now)
        change = ChangeGroup(
            group_id=group_id,
            who=who,
            expected=(RowStatus.SEALED,),
            status=RowStatus.COMPLETED,
            is_empty=True,
            members=1,
            owner=owner,
        )
        return Closing(change, announcements.group_ended(completion), completion)

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
        """End the group if all its members have ended and it has not ended yet."""
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
        due = None if row.open_members else await self._due(row, last)
        if due is not None:
            await self._end(row, due, is_empty=True, last=last)

    async def _due(self, row: GroupRow, last: MemberOutcome | None) -> _Due | None:
        """How a group ends whose members have, `last` the last of them; None for one that goes on, or has ended."""
        if row.status.is_final or not (row.members or row.status is RowStatus.ENDING):
            return None
        if row.status is RowStatus.ENDING:
            return _Due(GroupStatus.CANCELLED, row.reason, (RowStatus.ENDING,))
        reason = await self._failure_in(row, last) if row.fails_fast else ""
        if reason:
            return _Due(GroupStatus.CANCELLED, reason, _TAKES_PART)
        is_sealed = row.status is RowStatus.SEALED
        return _Due(GroupStatus.COMPLETED, "", (RowStatus.SEALED,)) if is_sealed else None

    async def _failure_in(self, row: GroupRow, last: MemberOutcome | None) -> str:
        """Why a fail-fast group ends, whose members have ended; it is still there when a process died over its end."""
        failures = [
            failure for member in await self._outcomes(row, last) if (failure := failure_of(member)) is not None
        ]
        return fail_fast_reason(failures[0]) if failures else ""

    async def _resolve(self, row: GroupRow) -> None:
        check_resolvable(row.group_id, facts_of(row))
        if not await self._end(row, _Due(GroupStatus.COMPLETED, "", (RowStatus.SEALED,))):
            raise StatusConflictError(f"group {row.group_id}", row.status, (RowStatus.SEALED,))

    async def _end(
        self, row: GroupRow, due: _Due, *, is_empty: bool = False, last: MemberOutcome | None = None
    ) -> bool:
        """End a group, with its members as they are; False where another process has changed it first."""
        closing = await self._closing(row, due, is_empty=is_empty, last=last)
        try:
            await self._changes.commit(Commit(groups=(closing.change,)), [closing.event])
        except StatusConflictError:
            return False
        self.ends.group_ended(closing.completion, retains_turn=row.retains_turn)
        return True

    async def _closing(self, row: GroupRow, due: _Due, *, is_empty: bool, last: MemberOutcome | None) -> Closing:
        """The change that ends a group, with its members as they are."""
        members = await self._outcomes(row, last)
        completion = completion_of(group_of(row), members, due.status, due.reason, self._clock.now())
        is_early = any(not member.status.is_terminal for member in members)
        change = ChangeGroup(
            group_id=row.group_id,
            who=row.who,
            expected=due.expected,
            status=RowStatus(due.status),
            reason=due.reason,
            is_empty=is_empty,
            members=row.members if is_empty else 0,
            outcome=members_document(members) if is_early else b"",
        )
        return Closing(change, announcements.group_ended(completion), completion)

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
            done = await self._changes.commit(replace(cancelled.commit, groups=(change,)), cancelled.events)
        except (StatusConflictError, RunOverError, RowNotFoundError):
            return False
        await self.tasks_ended(cancelled.ended, done)
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
        """Carry out a change of a group as it is now; again where others changed it meanwhile."""
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
        """The members, `last` as it has just ended, or is about to; for one that was alone nothing is read."""
        if last is not None and row.members == 1:
            return [last]
        members = [outcome_of(task_of(member)) for member in await self._members(row)] if row.members else []
        return [last if last is not None and member.task_id == last.task_id else member for member in members]

    async def _members(self, row: GroupRow) -> list[RunRow]:
        """The members, whole, in the order they joined."""
        try:
            return (await self._store.group(row.group_id, who=row.who))[1]
        except RowNotFoundError as error:
            raise GroupNotFoundError(row.group_id) from error


def new_group(request: GroupRequest, redactor: Redactor | None, at: datetime) -> TaskGroup:
    """The group that is asked for, open and without secrets."""
    return TaskGroup(
        id=request.id or new_id(),
        session=request.session,
        owner_task_id=request.owner_task_id,
        retain_turn=request.retain_turn,
        fail_fast=request.fail_fast,
        description=redacted_text(redactor, request.description),
        created_at=at,
    )


def row_of_new(group: TaskGroup) -> NewGroup:
    """What a store opens such a group with."""
    return NewGroup(
        group_id=group.id,
        who=group.session,
        owner=group.owner_task_id,
        retains_turn=group.retain_turn,
        fails_fast=group.fail_fast,
        description=group.description,
    )


def has_to_follow(left: GroupLeft | None, ended: Status) -> bool:
    """Whether the group of a member that ended so has to be looked at; always where it is not known what is left."""
    if left is None:
        return True
    if left.status.is_final:
        return False
    if left.open_members:
        return left.fails_fast and ended is Status.FAILED
    return left.fails_fast or left.status is not RowStatus.OPEN


def facts_of(row: GroupRow) -> GroupFacts:
    """What the rules of groups need to know."""
    return GroupFacts(
        status=group_of(row).status,
        fail_fast=row.fails_fast,
        size=row.members,
        live=row.open_members,
        is_ending=row.status is RowStatus.ENDING,
    )


class EndedRuns:
    """The ends of runs as the tasks of one store see them; `read` gives the task of a run."""

    def __init__(self, groups: Groups, read: Callable[[Quadruple], Awaitable[Task]]) -> None:
        self._groups = groups
        self._ends = groups.ends
        self._read = read
        self.is_closed = False

    async def closing(self, end: EndedRun) -> Closing | None:
        """What ends the group of a run that ends so in the commit that ends the run; None where the group goes on."""
        return await self._groups.closing(end.who.identity, end.group, end.member)

    def sole_closing(self, end: EndedRun) -> Closing:
        """The same of a sealed group of the run's parent that never had another member, without a look at it."""
        return self._groups.sole_closing(end.who.identity, end.group, end.parent, end.member)

    def ended(
        self, end: EndedRun, left: GroupLeft | None = None, closing: Closing | None = None
    ) -> Coroutine[Any, Any, None] | None:
        """What follows from an end that was recorded, with the end of its group if that is `closing`; None where
        nothing does. `left` is the group as it then is, where that is known."""
        if self.is_closed:
            return None
        self._ends.run_ended(end.who)
        if closing is not None:
            self._ends.group_ended(closing.completion, retains_turn=left is not None and left.retains_turn)
        follows = bool(end.group) and closing is None and has_to_follow(left, end.status)
        return self._follow(end, follows=follows) if follows or self._ends.is_awaited(end.who.run_id) else None

    async def _follow(self, end: EndedRun, *, follows: bool) -> None:
        if self._ends.is_awaited(end.who.run_id):
            self._ends.wake(await self._read(end.who))
        if follows:
            await self._groups.member_ended(end.who.identity, end.group, end.member)
