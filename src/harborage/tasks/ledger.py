"""What the registry remembers of one session, and the bookkeeping that keeps it small.

Memory only: no I/O, no events, no clock. There is one ledger for each (tenant, user, session), so nothing in here can
be reached with another identity. What only matters while a task lives (its place under its parent, those who wait for
it) is released when it ends.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from harborage.tasks.errors import GroupNotFoundError, NotFoundError
from harborage.tasks.groups import FailFast, GroupFacts, Resolve, failure_of, verdict
from harborage.tasks.model import (
    GroupCompletion,
    GroupStatus,
    Propagate,
    Task,
    TaskGroup,
    TaskGroupID,
    TaskID,
    TaskPatch,
)
from harborage.tasks.watch import EndWaiters, GroupWatch, RetainTurnWaiter, Watch

if TYPE_CHECKING:
    from harborage.identity import Identity, Quadruple

__all__ = [
    "CancelTask",
    "EndGroup",
    "FollowUp",
    "GroupState",
    "JudgeGroup",
    "Mark",
    "SessionKey",
    "SessionLedger",
    "independent",
    "key_of",
    "of_levels",
]

SessionKey: TypeAlias = tuple[str, str, str]


def key_of(who: Identity | Quadruple) -> SessionKey:
    """The key under which everything of this identity is kept."""
    return (who.tenant_id, who.user_id, who.session_id)


class CancelTask(msgspec.Struct, frozen=True, tag=True):
    """A task is to be cancelled because something above it was, or because its group ended.

    Those of one `level` of a tree may be cancelled in any order; -1 keeps a task in its place.
    """

    task_id: TaskID
    reason: str
    is_cascaded: bool = True
    level: int = -1


class EndGroup(msgspec.Struct, frozen=True, tag=True):
    """A group is to end in this way."""

    group_id: TaskGroupID
    status: GroupStatus
    reason: str = ""


class JudgeGroup(msgspec.Struct, frozen=True, tag=True):
    """A member of a group ended, so it is to be seen whether the group has to."""

    group_id: TaskGroupID
    task_id: TaskID


FollowUp: TypeAlias = CancelTask | EndGroup | JudgeGroup


class Mark(msgspec.Struct, frozen=True):
    """What a task's record says beside the task: its request, how often it was written, the tool calls counted then."""

    fingerprint: str = ""
    revision: int = 0
    counted: int = 0


def independent(steps: Iterable[FollowUp], most: int) -> list[FollowUp]:
    """The first of `steps`, up to `most`, that may be carried out at once: of one kind, and each about another one."""
    found: list[FollowUp] = []
    subjects: set[str] = set()
    for step in steps:
        subject = step.task_id if isinstance(step, CancelTask) else step.group_id
        if len(found) == most or subject in subjects or (found and not _may_join(step, found[0])):
            break
        found.append(step)
        subjects.add(subject)
    return found


def _may_join(step: FollowUp, first: FollowUp) -> bool:
    if isinstance(step, CancelTask) and isinstance(first, CancelTask):
        return step.level == first.level >= 0
    return type(step) is type(first)


def of_levels(levels: Iterable[Iterable[TaskID]], reason: str) -> list[CancelTask]:
    """The cancellation of tasks that are given level by level of their tree, the uppermost first."""
    return [CancelTask(task_id, reason, level=number) for number, level in enumerate(levels) for task_id in level]


class Families:
    """The tasks that were spawned under each parent, in order, and how many were below each root."""

    __slots__ = ("_children", "_trees")

    def __init__(self) -> None:
        self._children: dict[TaskID, list[TaskID]] = {}
        self._trees: Counter[TaskID] = Counter()

    def add(self, task: Task) -> None:
        """Enter a new task."""
        if task.parent_task_id is not None:
            self._children.setdefault(task.parent_task_id, []).append(task.id)
            self._trees[task.root_task_id] += 1

    def children(self, parent: TaskID) -> Sequence[TaskID]:
        """The tasks that were spawned under this one."""
        return self._children.get(parent, ())

    def below(self, root: TaskID) -> int:
        """How many tasks were spawned below this root."""
        return self._trees[root]


class GroupState:
    """A group while the registry runs: its header, who joined, how many of them live, who watches."""

    __slots__ = ("completion", "header", "is_ending", "live", "members", "watchers")

    def __init__(self, header: TaskGroup) -> None:
        self.header = header
        self.members: list[TaskID] = []
        self.live = 0
        self.is_ending = False
        self.completion: GroupCompletion | None = None
        self.watchers: list[GroupWatch] = []

    def facts(self) -> GroupFacts:
        """What the rules of groups need to know."""
        header = self.header
        return GroupFacts(header.status, header.fail_fast, len(self.members), self.live, self.is_ending)

    def snapshot(self) -> TaskGroup:
        """The group as it stands."""
        return msgspec.structs.replace(self.header, members=tuple(self.members))

    def watch(self) -> GroupWatch:
        """A watch on the group's end; it holds the completion already when there is one."""
        watch = GroupWatch(self._forget)
        if self.completion is not None:
            watch.deliver(self.completion)
        else:
            self.watchers.append(watch)
        return watch

    def end(self, header: TaskGroup, completion: GroupCompletion) -> None:
        """Close the group's book and tell everybody who watches."""
        self.header = header
        self.completion = completion
        self.is_ending = False
        watchers, self.watchers = self.watchers, []
        for watch in watchers:
            watch.deliver(completion)

    def close(self) -> None:
        """Send the watchers away without a value."""
        watchers, self.watchers = self.watchers, []
        for watch in watchers:
            watch.close()

    def _forget(self, watch: Watch[GroupCompletion]) -> None:
        self.watchers = [kept for kept in self.watchers if kept is not watch]


class SessionLedger:
    """One session's tasks, groups and patches.

    `lock` is held while the session changes; reading needs no lock, because a change is applied in one go. `owed` is
    what follows from a change that is true already and still has to be carried out, in order.

    Over a store (`is_stored`) this is only what of the session is in memory right now: what is true of families, groups
    and keys is read from the store. `marks` go with the tasks; `is_owed_kept` says that the store knows what is owed,
    `is_open` that what an earlier process owed has been looked up. `users` are those who change it or wait for that.
    """

    __slots__ = (
        "children",
        "end_waiters",
        "families",
        "groups",
        "idempotency",
        "is_open",
        "is_owed_kept",
        "is_stored",
        "lock",
        "marks",
        "owed",
        "patches",
        "session",
        "tasks",
        "turn_waiters",
        "users",
    )

    def __init__(self, session: Identity, *, is_stored: bool = False) -> None:
        self.session = session
        self.is_stored = is_stored
        self.is_open = not is_stored
        self.is_owed_kept = False
        self.marks: dict[TaskID, Mark] = {}
        self.lock = asyncio.Lock()
        self.users = 0
        self.tasks: dict[TaskID, Task] = {}
        self.children: dict[TaskID, dict[TaskID, None]] = {}
        self.families = Families()
        self.idempotency: dict[str, tuple[str, TaskID]] = {}
        self.groups: dict[TaskGroupID, GroupState] = {}
        self.patches: dict[str, TaskPatch] = {}
        self.owed: deque[FollowUp] = deque()
        self.end_waiters = EndWaiters()
        self.turn_waiters: list[RetainTurnWaiter] = []

    def task(self, task_id: TaskID) -> Task:
        """The task with this id.

        Raises:
            NotFoundError: the session has none.
        """
        task = self.tasks.get(task_id)
        if task is None:
            raise NotFoundError(task_id)
        return task

    def group(self, group_id: TaskGroupID) -> GroupState:
        """The group with this id.

        Raises:
            GroupNotFoundError: the session has none.
        """
        state = self.groups.get(group_id)
        if state is None:
            raise GroupNotFoundError(group_id)
        return state

    def fingerprint(self, task: Task) -> str:
        """The fingerprint of the request that made the task; empty for one without an idempotency key."""
        return self.idempotency[task.idempotency_key][0] if task.idempotency_key else ""

    def add(self, task: Task, fingerprint: str) -> None:
        """Enter a new task, under its parent and into its group."""
        self.tasks[task.id] = task
        if self.is_stored:
            return
        self.families.add(task)
        if task.idempotency_key:
            self.idempotency[task.idempotency_key] = (fingerprint, task.id)
        if task.parent_task_id is not None:
            # Only a living parent of this session can ever be cancelled, so no other needs an entry.
            parent = self.tasks.get(task.parent_task_id)
            if parent is not None and not parent.status.is_terminal:
                self.children.setdefault(parent.id, {})[task.id] = None
        if task.group_id:
            group = self.groups[task.group_id]
            group.members.append(task.id)
            group.live += 1

    def put(self, task: Task, prior: Task) -> None:
        """Replace a task by what became of `prior`; one that ended wakes its waiters and may end its group."""
        current = self.tasks[task.id]
        if current is not prior:
            # The tool counter moves without the lock.
            task = msgspec.structs.replace(task, tool_count=current.tool_count)
        self.tasks[task.id] = task
        if task.status.is_terminal and not prior.status.is_terminal:
            self._ended(task)

    def descendants(self, *roots: TaskID) -> list[list[TaskID]]:
        """The living tasks below `roots`, level by level. The walk does not go below a task that has ended."""
        found: list[list[TaskID]] = []
        level: Iterable[TaskID] = roots
        while level := [child for parent in level for child in self.children.get(parent, ())]:
            found.append(level)
        return found

    def member_tree(self, state: GroupState) -> list[TaskID]:
        """The group's living members in the order they joined, each followed by what its policy takes along."""
        found: dict[TaskID, None] = {}
        for member in state.members:
            task = self.tasks[member]
            if not task.status.is_terminal:
                found[member] = None
                if task.propagate_on_cancel is Propagate.CASCADE:
                    found.update(dict.fromkeys(chain(*self.descendants(member))))
        return list(found)

    def claim(
        self, state: GroupState, status: GroupStatus, reason: str = "", *, members: Iterable[TaskID] = ()
    ) -> None:
        """Decide how a group ends, taking these members along: from here on nothing else can end it.

        What has to be done is owed. The claim comes before the members' cancellation; their ends then find a group that
        is spoken for.
        """
        state.is_ending = True
        self.owed.extend(CancelTask(task_id, reason) for task_id in members)
        self.owed.append(EndGroup(state.header.id, status, reason))

    def judge(self, state: GroupState, ended: Task | None = None) -> None:
        """Claim the group if it has to end now that it was sealed, or that `ended` did."""
        match verdict(state.facts(), failure_of(ended) if ended is not None else None):
            case Resolve():
                self.claim(state, GroupStatus.COMPLETED)
            case FailFast(reason):
                self.claim(state, GroupStatus.CANCELLED, reason, members=self.member_tree(state))
            case None:
                pass

    def end_group(self, state: GroupState, header: TaskGroup, completion: GroupCompletion) -> None:
        """Close a group's book; a group that held its owner's turn wakes all who wait for one."""
        state.end(header, completion)
        self.turn_ended(header)

    def turn_ended(self, header: TaskGroup) -> None:
        """Wake those who waited for an owner's turn when this group, which has ended, was still holding it."""
        if not header.retain_turn:
            return
        waiters = self.turn_waiters
        self.turn_waiters = [one for one in waiters if _is_before(header, one.since)]
        for waiter in waiters:
            if not _is_before(header, waiter.since):
                waiter.deliver(header.id)

    def turn_waiter(self, since: datetime | None = None) -> RetainTurnWaiter:
        """A waiter for the next group to end that holds its owner's turn; what ended before `since` is no news."""
        waiter = RetainTurnWaiter(self._forget_turn)
        waiter.since = since
        self.turn_waiters.append(waiter)
        return waiter

    def close(self) -> None:
        """Send everybody away who waits for something here."""
        self.end_waiters.close()
        for state in self.groups.values():
            state.close()
        waiters, self.turn_waiters = self.turn_waiters, []
        for waiter in waiters:
            waiter.close()

    def _ended(self, task: Task) -> None:
        self.children.pop(task.id, None)
        if task.parent_task_id is not None:
            siblings = self.children.get(task.parent_task_id)
            if siblings is not None:
                siblings.pop(task.id, None)
                if not siblings:
                    del self.children[task.parent_task_id]
        self.end_waiters.ended(task)
        if task.group_id and self.is_stored:
            self.owed.append(JudgeGroup(task.group_id, task.id))
        elif task.group_id:
            state = self.groups[task.group_id]
            state.live -= 1
            self.judge(state, task)

    def _forget_turn(self, waiter: Watch[TaskGroupID]) -> None:
        self.turn_waiters = [kept for kept in self.turn_waiters if kept is not waiter]


def _is_before(header: TaskGroup, since: datetime | None) -> bool:
    """Whether the group had ended before that moment."""
    return since is not None and header.resolved_at is not None and header.resolved_at < since
