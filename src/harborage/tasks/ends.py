"""Who waits for the end of a task or a group, and how they learn of it.

A watch costs no task and no timer; one that is given up leaves no trace. What this process ends wakes its watches at
once. What others end is looked for whenever the store says that something changed, and every second: a process without
a worker gets no notice of what others change.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from msgspec.structs import replace

from harborage.concurrency import Crew
from harborage.errors import HarborageError, error_reason
from harborage.identity import Identity
from harborage.store import GroupQuery, GroupRow, GroupStatus, RunQuery, Status
from harborage.store.times import micros
from harborage.tasks.errors import RegistryClosedError, TaskCorruptError
from harborage.tasks.model import GroupCompletion, TaskGroupID
from harborage.tasks.rows import task_of

if TYPE_CHECKING:
    from harborage.clock import Timer, Timers
    from harborage.identity import Quadruple
    from harborage.store import Store
    from harborage.tasks.model import Task, TaskID

T = TypeVar("T")


class Watch(Generic[T]):
    """One value that will arrive once, or never: read it without waiting, wait for it, or give up.

    Any number of callers may wait on one watch. It ends by its value, by `cancel`, or when the registry closes; only
    the first of the three counts.
    """

    __slots__ = ("_arrived", "_forget", "_is_closed", "_value")

    def __init__(self, forget: Callable[[Watch[T]], None] | None = None) -> None:
        self._value: T | None = None
        self._is_closed = False
        self._arrived: asyncio.Event | None = None
        self._forget = forget

    @property
    def is_closed(self) -> bool:
        """Whether nothing more will come: the value is there, or never will be."""
        return self._is_closed

    def peek(self) -> T | None:
        """The value if it is there already, else None. Never: waits."""
        return self._value

    async def wait(self) -> T | None:
        """The value once it is there; None when the watch was cancelled or the registry closed without one."""
        if not self._is_closed:
            if self._arrived is None:
                self._arrived = asyncio.Event()
            await self._arrived.wait()
        return self._value

    def cancel(self) -> None:
        """Give up: waiters get None. After the value arrived, and a second time, this does nothing."""
        if not self._is_closed and self._forget is not None:
            self._forget(self)
        self.close()

    def close(self) -> None:
        """End the watch without a value; the registry calls this."""
        self._end(None)

    def deliver(self, value: T) -> None:
        """End the watch with its value; the registry calls this."""
        self._end(value)

    def _end(self, value: T | None) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._value = value
        self._forget = None
        if self._arrived is not None:
            self._arrived.set()


class GroupWatch(Watch[GroupCompletion]):
    """Delivers how a group ended, exactly once."""

    __slots__ = ()

    async def completion(self) -> GroupCompletion | None:
        """How the group ended, once it has; None when the watch was cancelled or the registry closed first."""
        return await self.wait()


class RetainTurnWaiter(Watch[TaskGroupID]):
    """Delivers the id of the next group of a session to end among those that hold their owner's turn."""

    __slots__ = ("since",)
    since: int
    """When it began to wait, in microseconds: a group that ended before is not the next one."""

    async def group_id(self) -> TaskGroupID | None:
        """The group's id, once one has ended; None when the waiter was cancelled or the registry closed first."""
        return await self.wait()


K = TypeVar("K")
W = TypeVar("W", bound=Watch[Any])
GroupKey = tuple[Identity, str]

_FINAL: Final = tuple(status for status in Status if status.is_final)
_GROUP_FINAL: Final = tuple(status for status in GroupStatus if status.is_final)
_PAGE: Final = 200
_RETRY_S: Final = 1.0
_RECHECK_S: Final = 1.0

_log = logging.getLogger(__name__)


class Ends:
    """Those who wait here for the end of tasks and groups of one store. `completed` says how a group ended."""

    def __init__(
        self, store: Store, clock: Timers, completed: Callable[[GroupRow], Awaitable[GroupCompletion]]
    ) -> None:
        self._store = store
        self._clock = clock
        self._completed = completed
        self._tasks: defaultdict[TaskID, list[asyncio.Future[Task]]] = defaultdict(list)
        self._groups: defaultdict[GroupKey, list[GroupWatch]] = defaultdict(list)
        self._turns: defaultdict[Identity, list[RetainTurnWaiter]] = defaultdict(list)
        self._listeners: dict[object, Callable[[Quadruple], None]] = {}
        self._unlisten: Callable[[], None] | None = None
        self._crew = Crew(lambda name, error: _log.error("%s: %s", name, error_reason(error)))
        self._is_looking = self._must_look_again = False
        self._retry: Timer | None = None
        self._recheck: Timer | None = None

    @contextmanager
    def waiting(self, task_id: TaskID) -> Iterator[asyncio.Future[Task]]:
        """A future that is done when the task has ended from now on."""
        self._listen()
        future: asyncio.Future[Task] = asyncio.get_running_loop().create_future()
        self._tasks[task_id].append(future)
        try:
            yield future
        finally:
            waiting = self._tasks.get(task_id)
            if waiting is not None and future in waiting:
                waiting.remove(future)
            if not waiting:
                self._tasks.pop(task_id, None)

    def watch_group(self, who: Identity, group_id: TaskGroupID) -> GroupWatch:
        """A watch that delivers how the group ends from now on."""
        self._listen()
        watch = GroupWatch(lambda gone: _leave(self._groups, (who, group_id), gone))
        self._groups[who, group_id].append(watch)
        return watch

    def watch_turns(self, who: Identity) -> RetainTurnWaiter:
        """A watch that delivers the next group of the session to end that holds its owner's turn."""
        self._listen()
        waiter = RetainTurnWaiter(lambda gone: _leave(self._turns, who, gone))
        waiter.since = micros(self._clock.now())
        self._turns[who].append(waiter)
        return waiter

    def is_awaited(self, task_id: TaskID) -> bool:
        """Whether a caller waits here for the end of this task."""
        return task_id in self._tasks

    def listen(self, listener: Callable[[Quadruple], None]) -> Callable[[], None]:
        """Call `listener` with the run of each task that ends here, until the returned function is called."""
        key = object()
        self._listeners[key] = listener

        def unlisten() -> None:
            self._listeners.pop(key, None)

        return unlisten

    def task_ended(self, task: Task) -> None:
        """Wake those who wait for a task that this process has ended, and call the listeners."""
        self.wake(task)
        self.run_ended(task.identity.identity.with_run(task.id))

    def run_ended(self, who: Quadruple) -> None:
        """Tell the listeners of a run that has ended, whatever one of them makes of it."""
        for listener in tuple(self._listeners.values()):
            try:
                listener(who)
            except Exception:  # noqa: BLE001 - logged
                _log.exception("a listener failed on the end of task %s", who.run_id)

    def wake(self, task: Task) -> None:
        """Wake those who wait for this task, whichever process has ended it."""
        for future in self._tasks.pop(task.id, ()):
            if not future.done():
                future.set_result(task)

    def _turn_away(self, task_id: TaskID, error: Exception) -> None:
        for future in self._tasks.pop(task_id, ()):
            if not future.done():
                future.set_exception(error)

    def group_ended(self, completion: GroupCompletion, *, retains_turn: bool) -> None:
        """Wake those who wait for this group, or for the turn that it held."""
        for watch in self._groups.pop((completion.session, completion.group_id), ()):
            watch.deliver(completion)
        if retains_turn:
            for waiter in self._turns.pop(completion.session, ()):
                waiter.deliver(completion.group_id)

    async def look(self) -> None:
        """Look whether others ended what a caller waits for here."""
        await self._look_at_tasks(list(self._tasks))
        sessions = {who for who, _ in self._groups} | set(self._turns)
        for who in sessions:
            await self._look_at_groups(who)

    async def aclose(self) -> None:
        """Turn away those who wait for tasks, and close all watches without a value."""
        if self._unlisten is not None:
            self._unlisten()
        for timer in (self._retry, self._recheck):
            if timer is not None:
                timer.cancel()
        await self._crew.aclose()
        tasks, groups, turns = dict(self._tasks), dict(self._groups), dict(self._turns)
        for kept in (self._tasks, self._groups, self._turns, self._listeners):
            kept.clear()
        for future in (future for futures in tasks.values() for future in futures):
            if not future.done():
                future.set_exception(RegistryClosedError())
        for watch in (watch for watches in groups.values() for watch in watches):
            watch.close()
        for waiter in (waiter for waiters in turns.values() for waiter in waiters):
            waiter.close()

    def _listen(self) -> None:
        if self._unlisten is None:
            self._unlisten = self._store.on_change(self._changed)
        if self._recheck is None and self._store.is_shared:
            self._recheck = self._clock.call_later(_RECHECK_S, self._look_again)

    def _look_again(self) -> None:
        """Look every so often while a caller waits: without a worker in this process no change of others is noticed."""
        self._recheck = None
        if (self._tasks or self._groups or self._turns) and not self._crew.is_closed:
            self._changed()
            self._listen()

    def _changed(self) -> None:
        self._must_look_again = True
        if not self._is_looking and (self._tasks or self._groups or self._turns) and not self._crew.is_closed:
            self._is_looking = True
            self._crew.start(self._look(), "the ends of tasks")

    async def _look(self) -> None:
        try:
            while self._must_look_again:
                self._must_look_again = False
                await self.look()
        except HarborageError as error:
            _log.warning("whether tasks have ended is asked again in a moment: %s", error_reason(error))
            self._retry = self._clock.call_later(_RETRY_S, self._changed)
        finally:
            self._is_looking = False

    async def _look_at_tasks(self, awaited: Sequence[TaskID]) -> None:
        for start in range(0, len(awaited), _PAGE):
            some = tuple(awaited[start : start + _PAGE])
            ended = RunQuery(run_ids=some, statuses=_FINAL, is_whole=True, limit=len(some))
            for row in (await self._store.runs(ended)).rows:
                try:
                    self.wake(task_of(row))
                except TaskCorruptError as error:
                    self._turn_away(row.run_id, error)

    async def _look_at_groups(self, who: Identity) -> None:
        awaited = tuple(group_id for session, group_id in self._groups if session == who)
        query: GroupQuery | None = GroupQuery(
            tenant=who.tenant_id,
            user=who.user_id,
            session=who.session_id,
            group_ids=() if who in self._turns else awaited,
            statuses=_GROUP_FINAL,
            limit=_PAGE,
        )
        while query is not None:
            page = await self._store.groups(query)
            for row in page.rows:
                await self._found_ended(row)
            query = None if page.cursor is None else replace(query, after=page.cursor)

    async def _found_ended(self, row: GroupRow) -> None:
        at = row.ended_at or 0
        turns = [waiter for waiter in self._turns.get(row.who, ()) if row.retains_turn and waiter.since <= at]
        for waiter in turns:
            _leave(self._turns, row.who, waiter)
            waiter.deliver(row.group_id)
        if (row.who, row.group_id) in self._groups:
            try:
                self.group_ended(await self._completed(row), retains_turn=False)
            except TaskCorruptError as error:
                _log.error("the end of group %s cannot be published: %s", row.group_id, error)


def _leave(watches: dict[K, list[W]], key: K, gone: Watch[Any]) -> None:
    left = [watch for watch in watches.get(key, ()) if watch is not gone]
    if left:
        watches[key] = left
    else:
        watches.pop(key, None)
