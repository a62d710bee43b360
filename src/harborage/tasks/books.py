"""Every session's ledger, and the one way to change one: alone, with what was owed done first, and to the end.

The rules live in `transitions` and `groups`, the bookkeeping in `ledger`; this file only sees to the order in which
changes become true.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from datetime import datetime
from functools import partial
from typing import Any, TypeVar, assert_never

import msgspec

from harborage.clock import Clock
from harborage.concurrency import Crew
from harborage.events import Event, unix_ns
from harborage.identity import Quadruple, effective_quadruple, require_triple
from harborage.tasks import announcements, records
from harborage.tasks.commit import Writer, to_the_end
from harborage.tasks.errors import FollowUpPendingError, NotFoundError, RegistryClosedError
from harborage.tasks.groups import completion_of
from harborage.tasks.ledger import CancelTask, EndGroup, FollowUp, GroupState, SessionKey, SessionLedger, key_of
from harborage.tasks.listeners import Listeners
from harborage.tasks.model import Task, TaskGroupID, TaskID
from harborage.tasks.port import Who
from harborage.tasks.transitions import Move, target_of

__all__ = ["Books", "cancelled_task"]

T = TypeVar("T")


class Books:
    """The ledgers of all sessions. `group_owners` says whose a group id is; `ended` hears of tasks that end."""

    def __init__(self, writer: Writer, clock: Clock) -> None:
        self.writer = writer
        self.clock = clock
        self.is_closed = False
        self.ended = Listeners("tasks.on_ended")
        self.group_owners: dict[TaskGroupID, SessionKey] = {}
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

    def of_task(self, task_id: TaskID, who: Who | None, what: str) -> SessionLedger:
        """The caller's ledger, which holds this task.

        Raises:
            RegistryClosedError, IdentityRequiredError, NotFoundError: in this order.
        """
        ledger = self.find(self.caller(who, what))
        if ledger is None or task_id not in ledger.tasks:
            raise NotFoundError(task_id)
        return ledger

    def find(self, who: Who) -> SessionLedger | None:
        """The ledger of this session, if it has one."""
        return self._ledgers.get((who.tenant_id, who.user_id, who.session_id))

    def open(self, who: Who) -> SessionLedger:
        """The ledger of this session, new if need be."""
        key = key_of(who)
        ledger = self._ledgers.get(key)
        if ledger is None:
            ledger = self._ledgers[key] = SessionLedger(who.identity if isinstance(who, Quadruple) else who)
        return ledger

    async def alone(self, ledger: SessionLedger, change: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Make `change` while nothing else changes the session, then what follows from it.

        What an earlier change still owes is done first. With a store, a caller that is cancelled meanwhile is
        cancelled when all is done.

        Raises:
            RegistryClosedError: the registry closed while the caller waited for its turn.
            FollowUpPendingError: the change was made, but not all that follows from it.
        """
        async with ledger.lock:
            self.check_open()
            work = self._settled(ledger, change)
            return await (to_the_end(self._crew, work) if self.writer.is_durable else work)

    async def commit_task(self, ledger: SessionLedger, task: Task, prior: Task, event: Event | None) -> None:
        """Make one change of a task true."""
        write = partial(records.task_write, task, prior, ledger.fingerprint(prior))
        await self.writer.commit(event, partial(self._put, ledger, task, prior), write)

    def _put(self, ledger: SessionLedger, task: Task, prior: Task) -> None:
        ledger.put(task, prior)
        if task.status.is_terminal and not prior.status.is_terminal:
            self.ended.tell(ledger.tasks[task.id])

    async def settle(self, ledger: SessionLedger) -> None:
        """Carry out what is owed, in order; at a failure the rest stays owed."""
        while ledger.owed:
            step = ledger.owed[0]
            await self._carry_out(ledger, step)
            if ledger.owed and ledger.owed[0] is step:
                ledger.owed.popleft()

    async def end_group_now(
        self, ledger: SessionLedger, state: GroupState, end: EndGroup, *, take_members: bool
    ) -> None:
        """End a group because somebody asked for it.

        Raises: what the bus or the store raised when nothing has happened; the group is as it was.
            FollowUpPendingError: some members were cancelled already, so the rest stays owed.
        """
        ledger.claim(state, end.status, end.reason, cancel_members=take_members)
        first = ledger.owed[0]
        try:
            await self.settle(ledger)
        except BaseException as error:
            if ledger.owed and ledger.owed[0] is first:
                ledger.owed.clear()
                state.is_ending = False
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

    async def _settled(self, ledger: SessionLedger, change: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if ledger.owed:
            await self.settle(ledger)
        done = await change()
        if ledger.owed:
            try:
                await self.settle(ledger)
            except Exception as error:
                raise FollowUpPendingError(len(ledger.owed)) from error
        return done

    async def _carry_out(self, ledger: SessionLedger, step: FollowUp) -> None:
        match step:
            case CancelTask():
                await self._cancel_member(ledger, step)
            case EndGroup():
                await self._end_group(ledger, step)
            case _:
                assert_never(step)

    async def _cancel_member(self, ledger: SessionLedger, step: CancelTask) -> None:
        prior = ledger.tasks[step.task_id]
        if prior.status.is_terminal:
            return
        now = self.clock.now()
        task = cancelled_task(prior, now)
        await self.commit_task(ledger, task, prior, announcements.cancelled(task, step.reason, True, now))

    async def _end_group(self, ledger: SessionLedger, step: EndGroup) -> None:
        state = ledger.groups[step.group_id]
        prior = state.header
        if prior.status.is_terminal:
            return
        now = self.clock.now()
        members = (ledger.tasks[task_id] for task_id in state.members)
        completion = completion_of(prior, members, step.status, step.reason, now)
        header = msgspec.structs.replace(prior, status=step.status, resolved_at=now, reason=step.reason)
        await self.writer.commit(
            announcements.group_ended(completion),
            partial(ledger.end_group, state, header, completion),
            partial(records.group_write, header, prior, completion),
        )


def cancelled_task(prior: Task, now: datetime) -> Task:
    """What becomes of a task that is cancelled.

    Raises:
        InvalidTransitionError: it has ended.
    """
    status = target_of(Move.CANCEL, prior.status, prior.id)
    return msgspec.structs.replace(prior, status=status, updated_at=unix_ns(now))
