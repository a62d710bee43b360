"""Ledgers over a store: the store is the truth, memory holds what somebody waits for and what was used last.

A living task is read from the store each time it is asked for or changed, since another process may carry its run; what
has ended never changes, and is served from memory while it is there. A change is written under an event id that the
same change by another process would have, so of two that meet one is refused, reads again and decides anew.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from datetime import datetime
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec.structs import replace

from harborage.clock import Clock, Timer, timers_of
from harborage.tasks import announcements, records
from harborage.tasks.books import Books, is_past
from harborage.tasks.errors import (
    GroupNotFoundError,
    IdempotencyConflictError,
    NotFoundError,
    StaleChangeError,
)
from harborage.tasks.groups import FailFast, Resolve, failure_of, verdict
from harborage.tasks.ledger import FollowUp, GroupState, JudgeGroup, Mark, SessionKey, SessionLedger, key_of
from harborage.tasks.model import (
    GroupCompletion,
    GroupStatus,
    Propagate,
    Task,
    TaskGroup,
    TaskGroupID,
    TaskID,
    TaskPatch,
    TaskStatus,
)
from harborage.tasks.records import HeldKey, KeptTask, StoredGroup
from harborage.tasks.shelf import Shelf
from harborage.tasks.standing import (
    counted,
    drop,
    is_needed,
    is_older,
    is_uncounted,
    is_watched,
    members_of,
    told_completion,
)

if TYPE_CHECKING:
    from harborage.events import Event
    from harborage.identity import Identity
    from harborage.state import StateStore
    from harborage.tasks.commit import Writer
    from harborage.tasks.port import Who
    from harborage.tasks.watch import GroupWatch, RetainTurnWaiter

__all__ = ["KEEP", "RECHECK_S", "StoredBooks"]

KEEP: Final = 1_000
"""How many tasks stay in memory that nobody waits for."""

RECHECK_S: Final = 5.0
"""How often those who wait for what another process may end look at the store."""

T = TypeVar("T")
_ATTEMPTS = 8
_MOST_AT_ONCE = 32
_log = logging.getLogger(__name__)


class StoredBooks(Books):
    """The ledgers of the sessions that this process works on, over one store for all processes."""

    is_stored = True
    at_once = _MOST_AT_ONCE

    def __init__(
        self, writer: Writer, clock: Clock, store: StateStore, *, keep: int = KEEP, recheck_s: float = RECHECK_S
    ) -> None:
        super().__init__(writer, clock)
        self._shelf = self.waits = Shelf(store)
        self._keep = keep
        self._recheck_s = recheck_s
        self._recent: OrderedDict[tuple[SessionKey, TaskID], None] = OrderedDict()
        self._timer: Timer | None = None

    def of_session(self, session: Identity) -> SessionLedger | None:
        return self.open(session)

    # What callers ask for

    async def of_task(self, task_id: TaskID, who: Who | None, what: str, *, fresh: bool = True) -> SessionLedger:
        caller = self.caller(who, what)
        ledger = self.open(caller)
        known = ledger.tasks.get(task_id)
        if known is not None and (known.status.is_terminal or not fresh or ledger.lock.locked()):
            # While this process changes the session, readers see what is true and told, not what is being written.
            self._touch(ledger, task_id)
            return ledger
        kept = await self._shelf.task(ledger.session, task_id)
        self.check_open()
        ledger = self.open(caller)
        if kept is None:
            self._let_go(ledger)
            raise NotFoundError(task_id)
        if not ledger.lock.locked() or task_id not in ledger.tasks:
            self._adopt(ledger, kept)
        return ledger

    async def of_group(self, group_id: TaskGroupID, who: Who | None, what: str) -> SessionLedger:
        return self.open(self.caller(who, what))

    async def watch(self, ledger: SessionLedger, group_id: TaskGroupID) -> GroupWatch:
        self._arm()
        return await self.alone(ledger, partial(self._watch, ledger, group_id))

    async def read(self, session: Identity, parent: TaskID | None = None) -> list[Task]:
        if parent is None:
            ids = await self._shelf.ids(session)
        else:
            ids = await self._shelf.children(session, parent)
        ledger = self.find(session)
        known = {} if ledger is None else ledger.tasks
        is_changing = ledger is not None and ledger.lock.locked()
        here = [known[task_id] for task_id in ids if task_id in known]
        sure = {task.id: task for task in here if is_changing or task.status.is_terminal}
        kept = await self._shelf.tasks(session, [task_id for task_id in ids if task_id not in sure])
        tasks = [*sure.values(), *(counted(one.task, known.get(one.task.id)) for one in kept)]
        tasks.sort(key=lambda task: (task.created_at, task.id))
        return tasks

    async def groups(self, session: Identity) -> list[TaskGroup]:
        found = await self._shelf.groups(session, await self.read(session))
        return [group for group in found if not group.status.is_terminal]

    async def sessions(self) -> list[Identity]:
        return await self._shelf.sessions()

    def turn_waiter(self, ledger: SessionLedger) -> RetainTurnWaiter:
        self._arm()
        return ledger.turn_waiter(self.clock.now())

    async def forget(self, session: Identity, before: int) -> int:
        tasks = await self.read(session)
        if not is_past(tasks, before):
            return 0
        await self._shelf.forget(session, tasks)
        if (ledger := self.find(session)) is not None:
            drop(ledger, tasks)
            self._let_go(ledger)
        return len(tasks)

    async def wait_ended(self, ledger: SessionLedger, task_id: TaskID) -> Task:
        self._arm()
        return await ledger.end_waiters.wait(task_id)

    async def recheck(self) -> None:
        """Look at the store for everybody who waits here for what another process may have ended."""
        for ledger in list(self):
            for task_id in ledger.end_waiters.awaited():
                kept = await self._shelf.task(ledger.session, task_id)
                if kept is not None and not ledger.lock.locked():
                    self._adopt(ledger, kept)
            for state in [state for state in ledger.groups.values() if state.watchers]:
                await self.alone(ledger, partial(self._standing, ledger, state.header.id))
            if ledger.turn_waiters:
                for group in await self._shelf.groups(ledger.session, await self.read(ledger.session)):
                    if group.status.is_terminal:
                        ledger.turn_ended(group)

    # What changes ask for

    async def task(self, ledger: SessionLedger, task_id: TaskID) -> Task:
        kept = await self._shelf.task(ledger.session, task_id)
        if kept is None:
            raise NotFoundError(task_id)
        return self._adopt(ledger, kept)

    async def group(self, ledger: SessionLedger, group_id: TaskGroupID, *, members: bool = True) -> GroupState:
        state = ledger.groups.get(group_id)
        if state is not None and state.completion is not None:
            return state
        stored = await self._shelf.group(ledger.session, group_id)
        if stored is None:
            raise GroupNotFoundError(group_id)
        if state is None:
            state = ledger.groups[group_id] = GroupState(stored.group)
        state.header = stored.group
        if stored.group.status.is_terminal:
            completion = await self._completion(ledger, stored)
            state.members = [outcome.task_id for outcome in completion.members]
            ledger.end_group(state, stored.group, completion)
        elif members:
            await self._gather(ledger, state)
        return state

    async def patch(self, ledger: SessionLedger, patch_id: str) -> TaskPatch | None:
        patch = await self._shelf.patch(ledger.session, patch_id)
        if patch is not None:
            ledger.patches[patch_id] = patch
        return patch

    async def spawned_before(self, ledger: SessionLedger, key: str, mark: str) -> TaskID | None:
        held = await self._shelf.held(ledger.session, key)
        if held is None:
            return None
        kept = await self._shelf.task(ledger.session, held.task_id)
        if kept is None:
            if held.fingerprint != mark:
                # A crash came between the key and its task, so the key stands for nothing yet.
                await self._shelf.release(ledger.session, key)
            return None
        if held.fingerprint != mark:
            raise IdempotencyConflictError(key, held.task_id)
        is_news = held.task_id not in ledger.tasks
        task = self._adopt(ledger, kept)
        if is_news and task.status is TaskStatus.PENDING:
            # Another process kept it, and may have died before anybody there was told to begin it.
            self.spawned.tell(task)
        return held.task_id

    async def has_fewer_children(self, ledger: SessionLedger, parent: TaskID, most: int) -> bool:
        return await self._shelf.has_fewer_children(ledger.session, parent, most)

    async def has_smaller_tree(self, ledger: SessionLedger, root: TaskID, most: int) -> bool:
        return await self._shelf.has_smaller_tree(ledger.session, root, most)

    async def below(self, ledger: SessionLedger, *roots: TaskID) -> list[list[TaskID]]:
        found: list[list[TaskID]] = [list(roots)]
        while found[-1]:
            kept = await self._shelf.tasks(ledger.session, await self._shelf.children_of(ledger.session, found[-1]))
            found.append([one.task.id for one in kept if not one.task.status.is_terminal])
        return found[1:-1]

    async def member_tree(self, ledger: SessionLedger, state: GroupState) -> list[TaskID]:
        found: dict[TaskID, None] = {}
        for member in state.members:
            task = ledger.tasks[member]
            if not task.status.is_terminal:
                found[member] = None
                if task.propagate_on_cancel is Propagate.CASCADE:
                    found.update(dict.fromkeys(chain(*await self.below(ledger, member))))
        return list(found)

    async def judge(self, ledger: SessionLedger, state: GroupState) -> None:
        await self._judge(ledger, state, None)

    # Changes

    async def again(self, change: Callable[[], Awaitable[T]]) -> T:
        for _ in range(_ATTEMPTS - 1):
            try:
                return await change()
            except StaleChangeError as error:
                _log.debug("%s", error)
        return await change()

    async def enter(self, ledger: SessionLedger, task: Task, mark: str, at: datetime) -> TaskID:
        key = task.idempotency_key
        if key:
            held = await self._shelf.hold(ledger.session, key, HeldKey(mark, task.id))
            if held.fingerprint != mark:
                raise StaleChangeError(task.id)
            # Whoever held the key before went away before there was a task, so this is that task.
            task = replace(task, id=held.task_id)
        enter = partial(self._shelf.enter, task)
        try:
            if key:
                # A task that can be asked for again must be found in its lists as soon as it is kept.
                await enter()
            await self.writer.commit(
                announcements.spawned(task, at),
                partial(self._enter, ledger, task, mark),
                partial(records.task_write, task, None, mark, by=self.writer.id),
                beside=None if key else enter,
            )
        except StaleChangeError:
            raise
        except BaseException:
            if key:
                await self._release(ledger.session, key)
            raise
        return task.id

    async def commit_task(self, ledger: SessionLedger, task: Task, prior: Task, event: Event | None) -> None:
        mark = ledger.marks[prior.id]
        task = counted(task, ledger.tasks[prior.id])
        await self.writer.commit(
            event,
            partial(self._put_marked, ledger, task, prior, mark),
            partial(records.task_write, task, prior, mark.fingerprint, mark.revision, by=self.writer.id),
        )

    async def commit_group(self, ledger: SessionLedger, header: TaskGroup) -> None:
        if await self._shelf.own_group(header.id, ledger.session) != ledger.session:
            raise GroupNotFoundError(header.id)
        try:
            await self.writer.commit(
                announcements.group_created(header),
                partial(ledger.groups.__setitem__, header.id, GroupState(header)),
                partial(records.group_write, header, None, by=self.writer.id),
            )
        except StaleChangeError:
            raise
        except BaseException:
            await self._disown(header.id)
            raise

    async def alone(self, ledger: SessionLedger, change: Callable[[], Coroutine[Any, Any, T]]) -> T:
        try:
            return await super().alone(ledger, change)
        finally:
            self._spare()
            self._let_go(ledger)

    async def intend(self, ledger: SessionLedger, steps: Iterable[FollowUp]) -> None:
        noted = tuple(steps)
        if noted or ledger.is_owed_kept:
            await self._shelf.keep_owed(ledger.session, noted)
        ledger.is_owed_kept = bool(noted)

    async def settle(self, ledger: SessionLedger) -> None:
        if len(ledger.owed) > 1 and not ledger.is_owed_kept:
            await self.intend(ledger, ledger.owed)
        try:
            await super().settle(ledger)
        finally:
            if not ledger.owed and ledger.is_owed_kept:
                await self.intend(ledger, ())

    async def aclose(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for ledger in list(self):
            for task_id in [task_id for task_id in ledger.tasks if is_uncounted(ledger, task_id)]:
                await self._count(ledger, task_id)
        await super().aclose()
        self._recent.clear()
        await self._crew.join()

    async def _settled(self, ledger: SessionLedger, change: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if not ledger.is_open:
            ledger.owed.extend(await self._shelf.owed(ledger.session))
            ledger.is_owed_kept = bool(ledger.owed)
            ledger.is_open = True
        try:
            return await super()._settled(ledger, change)
        finally:
            ledger.patches.clear()
            for group_id in [group_id for group_id, state in ledger.groups.items() if not state.watchers]:
                if not ledger.owed:
                    del ledger.groups[group_id]

    async def _watch(self, ledger: SessionLedger, group_id: TaskGroupID) -> GroupWatch:
        return (await self._standing(ledger, group_id)).watch()

    async def _standing(self, ledger: SessionLedger, group_id: TaskGroupID) -> GroupState:
        """The group as it stands, about to end if a crash kept it from that."""
        state = await self.group(ledger, group_id)
        await self._judge(ledger, state, None)
        return state

    async def _judge_group(self, ledger: SessionLedger, step: JudgeGroup) -> None:
        state = await self.group(ledger, step.group_id, members=False)
        if state.header.status is GroupStatus.SEALED or state.header.fail_fast:
            state = await self.group(ledger, step.group_id)
            await self._judge(ledger, state, ledger.tasks.get(step.task_id))

    async def _judge(self, ledger: SessionLedger, state: GroupState, ended: Task | None) -> None:
        """Claim the group if it has to end. A failed member counts whoever it was that ended now."""
        failed = next((task for task in members_of(ledger, state) if failure_of(task) is not None), None)
        counts = ended if ended is not None and failure_of(ended) is not None else failed
        match verdict(state.facts(), None if counts is None else failure_of(counts)):
            case Resolve():
                ledger.claim(state, GroupStatus.COMPLETED)
            case FailFast(reason):
                members = await self.member_tree(ledger, state)
                ledger.claim(state, GroupStatus.CANCELLED, reason, members=members)
            case None:
                pass

    async def _gather(self, ledger: SessionLedger, state: GroupState) -> None:
        """Find the members of a group that has not ended, and how they stand."""
        ids = list(state.header.members) or await self._shelf.members(ledger.session, state.header.id)
        kept = await self._shelf.tasks(ledger.session, ids)
        for one in kept:
            self._adopt(ledger, one)
        state.members = [one.task.id for one in kept]
        state.live = sum(not one.task.status.is_terminal for one in kept)

    async def _completion(self, ledger: SessionLedger, stored: StoredGroup) -> GroupCompletion:
        kept = await self._shelf.tasks(ledger.session, [task_id for task_id, _ in stored.outcomes])
        return told_completion(stored, [one.task for one in kept], self.clock.now())

    async def _release(self, session: Identity, key: str) -> None:
        try:
            await self._shelf.release(session, key)
        except Exception as error:  # noqa: BLE001 - logged, with the failure that is already on its way
            _log.warning("an idempotency key stays held by a task that was not spawned: %s", error)

    async def _disown(self, group_id: TaskGroupID) -> None:
        try:
            await self._shelf.disown_group(group_id)
        except Exception as error:  # noqa: BLE001 - logged, with the failure that is already on its way
            _log.warning("group id %s stays held by a group that was not created: %s", group_id, error)

    # Memory

    def _adopt(self, ledger: SessionLedger, kept: KeptTask) -> Task:
        """Take a task over from the store. Those who wait for it learn of an end that another process gave it."""
        task = kept.task
        known = ledger.tasks.get(task.id)
        mark = ledger.marks.get(task.id)
        if known is not None and mark is not None and is_older(kept, known, mark):
            return known  # it was read before this process wrote
        ledger.marks[task.id] = Mark(kept.fingerprint, kept.revision, task.tool_count)
        task = ledger.tasks[task.id] = counted(task, known)
        self._touch(ledger, task.id)
        if task.status.is_terminal and known is not None and not known.status.is_terminal:
            ledger.end_waiters.ended(task)
            self.ended.tell(task)
        return task

    def _enter(self, ledger: SessionLedger, task: Task, mark: str) -> None:
        ledger.marks[task.id] = Mark(mark, 0, 0)
        super()._enter(ledger, task, mark)
        self._touch(ledger, task.id)

    def _put_marked(self, ledger: SessionLedger, task: Task, prior: Task, mark: Mark) -> None:
        ledger.marks[task.id] = Mark(mark.fingerprint, mark.revision + 1, task.tool_count)
        self._put(ledger, task, prior)
        self._touch(ledger, task.id)

    def _touch(self, ledger: SessionLedger, task_id: TaskID) -> None:
        place = (key_of(ledger.session), task_id)
        self._recent[place] = None
        self._recent.move_to_end(place)
        self._spare()

    def _spare(self) -> None:
        """Let go of what was not used for long, and of sessions that nothing is left of."""
        excess = len(self._recent) - self._keep
        if excess <= 0:
            return
        for place in list(islice(self._recent, min(excess, _MOST_AT_ONCE))):
            key, task_id = place
            ledger = self._ledgers.get(key)
            if ledger is None or task_id not in ledger.tasks:
                del self._recent[place]
            elif ledger.users or task_id in ledger.end_waiters:
                self._recent.move_to_end(place)
            elif is_uncounted(ledger, task_id):
                self._recent.move_to_end(place)
                self._crew.start(self._count(ledger, task_id), "tasks.count")
            else:
                del self._recent[place]
                del ledger.tasks[task_id]
                ledger.marks.pop(task_id, None)
                self._let_go(ledger)

    def _let_go(self, ledger: SessionLedger) -> None:
        key = key_of(ledger.session)
        if self._ledgers.get(key) is ledger and not is_needed(ledger):
            del self._ledgers[key]

    async def _count(self, ledger: SessionLedger, task_id: TaskID) -> None:
        """Keep the tool calls that were counted since the task was last written; a failure is logged."""
        try:
            await self.alone(ledger, partial(self._write_count, ledger, task_id))
        except Exception as error:  # noqa: BLE001 - logged
            _log.warning("task %s: the tool calls counted last are not kept: %s", task_id, error)

    async def _write_count(self, ledger: SessionLedger, task_id: TaskID) -> None:
        prior = await self.task(ledger, task_id)
        if is_uncounted(ledger, task_id):
            await self.commit_task(ledger, prior, prior, None)

    def _arm(self) -> None:
        if self._timer is None and not self.is_closed:
            self._timer = timers_of(self.clock).call_later(self._recheck_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self.is_closed or not any(is_watched(ledger) for ledger in self):
            return
        self._crew.start(self._recheck(), "tasks.recheck")

    async def _recheck(self) -> None:
        try:
            await self.recheck()
        except Exception as error:  # noqa: BLE001 - logged, and tried again
            _log.warning("tasks: those who wait could not be told what another process did: %s", error)
        finally:
            self._arm()
