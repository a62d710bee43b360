"""Every session's ledger, and the one way to change one: alone, with what was owed done first, and to the end.

The rules live in `transitions` and `groups`, the bookkeeping in `ledger`; this file only sees to the order in which
changes become true. `Books` keeps everything in memory; `StoredBooks` finds it in a store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, assert_never

import msgspec

from harborage.concurrency import Crew
from harborage.events import Event, unix_ns
from harborage.identity import Identity, Quadruple, effective_quadruple, require_triple
from harborage.tasks import announcements, records
from harborage.tasks.commit import Writer, to_the_end
from harborage.tasks.errors import (
    FollowUpPendingError,
    GroupNotFoundError,
    IdempotencyConflictError,
    NotFoundError,
    RegistryClosedError,
)
from harborage.tasks.groups import completion_of
from harborage.tasks.ledger import (
    CancelTask,
    EndGroup,
    FollowUp,
    GroupState,
    JudgeGroup,
    SessionKey,
    SessionLedger,
    independent,
    key_of,
)
from harborage.tasks.listeners import Listeners
from harborage.tasks.transitions import Move, target_of
from harborage.tasks.waiting import MemoryWaits, Waits

if TYPE_CHECKING:
    from harborage.clock import Clock
    from harborage.tasks.model import Task, TaskGroup, TaskGroupID, TaskID, TaskPatch
    from harborage.tasks.port import Who
    from harborage.tasks.watch import GroupWatch, RetainTurnWaiter

__all__ = ["Books", "cancelled_task", "is_past"]

T = TypeVar("T")


class Books:
    """The ledgers of all sessions. `ended` hears of tasks that end, `spawned` of new ones."""

    is_stored = False
    at_once = 1
    """How many steps that do not depend on each other are carried out at once."""

    def __init__(self, writer: Writer, clock: Clock) -> None:
        self.writer = writer
        self.clock = clock
        self.is_closed = False
        self.waits: Waits = MemoryWaits()
        self.spawned = Listeners("tasks.on_spawned")
        self.ended = Listeners("tasks.on_ended")
        self._group_owners: dict[TaskGroupID, SessionKey] = {}
        self._ledgers: dict[SessionKey, SessionLedger] = {}
        # A change that fails is reported to the caller who asked for it, by `to_the_end`.
        self._crew = Crew(on_error=lambda name, error: None)

    def __iter__(self) -> Iterator[SessionLedger]:
        return iter(self._ledgers.values())

    def check_open(self) -> None:
        """Accept that the registry is open.

        Raises:
            RegistryClosedError: it is not.
        """
        if self.is_closed:
            raise RegistryClosedError()

    def caller(self, who: Who | None, what: str) -> Who:
        """Who is asking: `who`, else the ambient identity.

        Raises:
            RegistryClosedError, IdentityRequiredError: in this order.
        """
        self.check_open()
        asking = effective_quadruple() if who is None else who
        require_triple(asking, what)
        assert asking is not None
        return asking

    def find(self, who: Who) -> SessionLedger | None:
        """The ledger of this session, if it is in memory."""
        return self._ledgers.get((who.tenant_id, who.user_id, who.session_id))

    def open(self, who: Who) -> SessionLedger:
        """The ledger of this session, new if need be."""
        key = key_of(who)
        ledger = self._ledgers.get(key)
        if ledger is None:
            session = who.identity if isinstance(who, Quadruple) else who
            ledger = self._ledgers[key] = SessionLedger(session, is_stored=self.is_stored)
        return ledger

    def of_session(self, session: Identity) -> SessionLedger | None:
        """The ledger of a session that may have something; None when it is known to have nothing."""
        return self.find(session)

    # What callers ask for, outside of any change

    async def of_task(self, task_id: TaskID, who: Who | None, what: str, *, fresh: bool = True) -> SessionLedger:
        """The caller's ledger, with this task in it; as it stood a moment ago, where `fresh` does not matter.

        Raises:
            RegistryClosedError, IdentityRequiredError, NotFoundError: in this order.
        """
        ledger = self.find(self.caller(who, what))
        if ledger is None or task_id not in ledger.tasks:
            raise NotFoundError(task_id)
        return ledger

    async def of_group(self, group_id: TaskGroupID, who: Who | None, what: str) -> SessionLedger:
        """The ledger of the caller, whose group this is; over a store that is seen only in the change itself.

        Raises:
            RegistryClosedError, IdentityRequiredError, GroupNotFoundError: in this order.
        """
        ledger = self.find(self.caller(who, what))
        if ledger is None:
            raise GroupNotFoundError(group_id)
        ledger.group(group_id)
        return ledger

    async def watch(self, ledger: SessionLedger, group_id: TaskGroupID) -> GroupWatch:
        """A watch on the end of the group."""
        return ledger.group(group_id).watch()

    async def read(self, session: Identity, parent: TaskID | None = None) -> list[Task]:
        """The session's tasks in the order they were spawned; of one parent only, where one is named."""
        ledger = self.find(session)
        if ledger is None:
            return []
        if parent is None:
            return list(ledger.tasks.values())
        return [ledger.tasks[task_id] for task_id in ledger.families.children(parent)]

    async def groups(self, session: Identity) -> list[TaskGroup]:
        """The groups of the session that have tasks and have not ended."""
        ledger = self.find(session)
        if ledger is None:
            return []
        named = dict.fromkeys(task.group_id for task in ledger.tasks.values() if task.group_id)
        found = [ledger.groups[group_id].snapshot() for group_id in named if group_id in ledger.groups]
        return [group for group in found if not group.status.is_terminal]

    async def sessions(self) -> list[Identity]:
        """The sessions that have tasks."""
        return [ledger.session for ledger in self if ledger.tasks]

    def turn_waiter(self, ledger: SessionLedger) -> RetainTurnWaiter:
        """A waiter for the next group of the session to end that holds its owner's turn."""
        return ledger.turn_waiter()

    async def forget(self, session: Identity, before: int) -> int:
        """Drop the session's tasks if all of them ended before then, in unix nanoseconds; how many were dropped."""
        ledger = self.find(session)
        if ledger is None or not is_past(ledger.tasks.values(), before):
            return 0
        for group_id in ledger.groups:
            self._group_owners.pop(group_id, None)
        del self._ledgers[key_of(session)]
        return len(ledger.tasks)

    async def wait_ended(self, ledger: SessionLedger, task_id: TaskID) -> Task:
        """The task as it ended, once it has."""
        return await ledger.end_waiters.wait(task_id)

    # What changes ask for; the session is theirs alone

    async def task(self, ledger: SessionLedger, task_id: TaskID) -> Task:
        """The task as it stands.

        Raises:
            NotFoundError: the session has none with this id.
        """
        return ledger.task(task_id)

    async def group(self, ledger: SessionLedger, group_id: TaskGroupID, *, members: bool = True) -> GroupState:
        """The group as it stands; what is said of its members counts only when they are asked for.

        Raises:
            GroupNotFoundError: the session has none with this id.
        """
        return ledger.group(group_id)

    async def patch(self, ledger: SessionLedger, patch_id: str) -> TaskPatch | None:
        """The patch as it stands."""
        return ledger.patches.get(patch_id)

    async def spawned_before(self, ledger: SessionLedger, key: str, mark: str) -> TaskID | None:
        """The task that an earlier request with this key made.

        Raises:
            IdempotencyConflictError: it was another request.
        """
        known = ledger.idempotency.get(key)
        if known is None:
            return None
        if known[0] != mark:
            raise IdempotencyConflictError(key, known[1])
        return known[1]

    async def has_fewer_children(self, ledger: SessionLedger, parent: TaskID, most: int) -> bool:
        """Whether fewer than `most` tasks were ever spawned under `parent`."""
        return len(ledger.families.children(parent)) < most

    async def has_smaller_tree(self, ledger: SessionLedger, root: TaskID, most: int) -> bool:
        """Whether fewer than `most` tasks were ever spawned below `root`."""
        return ledger.families.below(root) < most

    async def below(self, ledger: SessionLedger, *roots: TaskID) -> list[list[TaskID]]:
        """The living tasks below `roots`, level by level. The walk does not go below a task that has ended."""
        return ledger.descendants(*roots)

    async def member_tree(self, ledger: SessionLedger, state: GroupState) -> list[TaskID]:
        """The group's living members, each followed by what its policy takes along."""
        return ledger.member_tree(state)

    async def judge(self, ledger: SessionLedger, state: GroupState) -> None:
        """Claim the group if it has to end now that it was sealed."""
        ledger.judge(state)

    # Changes

    async def alone(self, ledger: SessionLedger, change: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Make `change` while nothing else changes the session, then what follows from it.

        What an earlier change still owes is done first. With a store, a caller that is cancelled meanwhile is
        cancelled when all is done.

        Raises:
            RegistryClosedError: the registry closed while the caller waited for its turn.
            FollowUpPendingError: the change was made, but not all that follows from it.
        """
        ledger.users += 1
        try:
            async with ledger.lock:
                self.check_open()
                work = self._settled(ledger, change)
                return await (to_the_end(self._crew, work) if self.is_stored else work)
        finally:
            ledger.users -= 1

    async def again(self, change: Callable[[], Awaitable[T]]) -> T:
        """Make a change of one thing, as often as other processes come in between."""
        return await change()

    async def enter(self, ledger: SessionLedger, task: Task, mark: str, at: datetime) -> TaskID:
        """Make a new task true; its id."""
        await self.writer.commit(
            announcements.spawned(task, at),
            partial(self._enter, ledger, task, mark),
            partial(records.task_write, task, None, mark, by=self.writer.id),
        )
        return task.id

    async def commit_task(self, ledger: SessionLedger, task: Task, prior: Task, event: Event | None) -> None:
        """Make one change of a task true."""
        await self.writer.commit(event, partial(self._put, ledger, task, prior))

    async def commit_group(self, ledger: SessionLedger, header: TaskGroup) -> None:
        """Make a new group true.

        Raises:
            GroupNotFoundError: its id is another session's.
        """
        owner = key_of(ledger.session)
        # Claimed before the event goes out, so that two sessions cannot both get the id.
        if self._group_owners.setdefault(header.id, owner) != owner:
            raise GroupNotFoundError(header.id)
        try:
            await self.writer.commit(
                announcements.group_created(header),
                partial(ledger.groups.__setitem__, header.id, GroupState(header)),
                partial(records.group_write, header, None, by=self.writer.id),
            )
        except BaseException:
            del self._group_owners[header.id]
            raise

    async def intend(self, ledger: SessionLedger, steps: Iterable[FollowUp]) -> None:
        """Note what is about to be done, so that it is done even when this process dies; no steps take that back."""

    async def settle(self, ledger: SessionLedger) -> None:
        """Carry out what is owed, in order; at a failure the rest stays owed."""
        while ledger.owed:
            steps = independent(ledger.owed, self.at_once)
            work = [self.again(partial(self._carry_out, ledger, step)) for step in steps]
            done: list[BaseException | None] = [None]
            if len(work) == 1:
                await work[0]
            else:
                done = await asyncio.gather(*work, return_exceptions=True)
            failures = [result for result in done if isinstance(result, BaseException)]
            left = [step for step, result in zip(steps, done, strict=True) if isinstance(result, BaseException)]
            for _ in steps:
                ledger.owed.popleft()
            ledger.owed.extendleft(reversed(left))
            if failures:
                raise failures[0]

    async def end_group_now(
        self, ledger: SessionLedger, state: GroupState, end: EndGroup, *, take_members: bool
    ) -> None:
        """End a group because somebody asked for it.

        Raises: what the bus or the store raised when nothing has happened; the group is as it was.
            FollowUpPendingError: some members were cancelled already, so the rest stays owed.
        """
        members = await self.member_tree(ledger, state) if take_members else ()
        ledger.claim(state, end.status, end.reason, members=members)
        first = ledger.owed[0]
        try:
            await self.settle(ledger)
        except BaseException as error:
            if ledger.owed and ledger.owed[0] is first:
                ledger.owed.clear()
                state.is_ending = False
                await self.intend(ledger, ())
                raise
            if isinstance(error, Exception):
                raise FollowUpPendingError(len(ledger.owed)) from error
            raise

    async def aclose(self) -> None:
        """Send away all who wait, and return when no change is under way any more."""
        self.is_closed = True
        for ledger in list(self):
            ledger.close()
        for ledger in list(self):
            async with ledger.lock:
                pass
        self.spawned.clear()
        self.ended.clear()

    async def _settled(self, ledger: SessionLedger, change: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if ledger.owed:
            await self.settle(ledger)
        done = await self.again(change)
        if ledger.owed:
            try:
                await self.settle(ledger)
            except Exception as error:
                raise FollowUpPendingError(len(ledger.owed)) from error
        return done

    def _enter(self, ledger: SessionLedger, task: Task, mark: str) -> None:
        ledger.add(task, mark)
        self.spawned.tell(task)

    def _put(self, ledger: SessionLedger, task: Task, prior: Task) -> None:
        ledger.put(task, prior)
        if task.status.is_terminal and not prior.status.is_terminal:
            self.ended.tell(ledger.tasks[task.id])

    async def _carry_out(self, ledger: SessionLedger, step: FollowUp) -> None:
        match step:
            case CancelTask():
                await self._cancel_member(ledger, step)
            case EndGroup():
                await self._end_group(ledger, step)
            case JudgeGroup():
                await self._judge_group(ledger, step)
            case _:
                assert_never(step)

    async def _cancel_member(self, ledger: SessionLedger, step: CancelTask) -> None:
        prior = await self.task(ledger, step.task_id)
        if prior.status.is_terminal:
            return
        now = self.clock.now()
        task = cancelled_task(prior, now)
        event = announcements.cancelled(task, step.reason, step.is_cascaded, now)
        await self.commit_task(ledger, task, prior, event)

    async def _end_group(self, ledger: SessionLedger, step: EndGroup) -> None:
        state = await self.group(ledger, step.group_id)
        prior = state.header
        if prior.status.is_terminal:
            return
        now = self.clock.now()
        members = [ledger.tasks[task_id] for task_id in state.members]
        completion = completion_of(prior, members, step.status, step.reason, now)
        header = msgspec.structs.replace(prior, status=step.status, resolved_at=now, reason=step.reason)
        await self.writer.commit(
            announcements.group_ended(completion),
            partial(ledger.end_group, state, header, completion),
            partial(records.group_write, header, prior, completion, by=self.writer.id),
        )

    async def _judge_group(self, ledger: SessionLedger, step: JudgeGroup) -> None:
        ledger.judge(await self.group(ledger, step.group_id), await self.task(ledger, step.task_id))


def is_past(tasks: Collection[Task], before: int) -> bool:
    """Whether there are tasks, and all of them ended before then, in unix nanoseconds."""
    return bool(tasks) and all(task.status.is_terminal and task.updated_at < before for task in tasks)


def cancelled_task(prior: Task, now: datetime) -> Task:
    """What becomes of a task that is cancelled.

    Raises:
        InvalidTransitionError: it has ended.
    """
    status = target_of(Move.CANCEL, prior.status, prior.id)
    return msgspec.structs.replace(prior, status=status, updated_at=unix_ns(now))
