"""What a state store holds of tasks: read by id, and listed by session, by group and by parent.

Records come and go whole; what they mean, and in which order a change becomes true, is not decided here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec.structs import replace

from harborage.concurrency import together
from harborage.identity import Identity, Quadruple
from harborage.state import IdempotencyConflictError, NotFoundError, StateRecord, StateStore
from harborage.state.directory import CHUNK, Directory, batched
from harborage.tasks.records import (
    AFTER_KIND,
    ENDED_KIND,
    GROUP_ENDED_KIND,
    GROUP_KIND,
    OWED_KIND,
    PATCH_KIND,
    TASK_KIND,
    WAIT_KIND,
    HeldKey,
    KeptTask,
    StoredGroup,
    after_end,
    decode_after,
    decode_group,
    decode_key,
    decode_owed,
    decode_owner,
    decode_patch,
    decode_task,
    decode_wait,
    key_record,
    owed_record,
    owner_record,
    wait_record,
)

if TYPE_CHECKING:
    from harborage.tasks.ledger import FollowUp
    from harborage.tasks.model import Task, TaskGroup, TaskGroupID, TaskID, TaskPatch

__all__ = ["Shelf"]

T = TypeVar("T")

SESSIONS_KIND: Final = "task.sessions"
INDEX_KIND: Final = "task.index"
MEMBERS_KIND: Final = "task.members"
CHILDREN_KIND: Final = "task.children"
TREE_KIND: Final = "task.tree"

# Records that belong to no single session live under names of our own.
_NOBODY = Quadruple("harborage..tasks", "harborage..tasks", "harborage..tasks")
_MOST_LISTS = 1_024


class Shelf:
    """The tasks, groups and patches in one store. The lists it adds to are remembered, so that a chunk is filled up."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._sessions = Directory(store, _NOBODY, SESSIONS_KIND)
        self._lists: dict[tuple[Quadruple, str], Directory] = {}

    async def task(self, session: Identity, task_id: TaskID) -> KeptTask | None:
        """The task as it is kept, or None.

        Raises:
            TaskCorruptError: it is kept but cannot be read; so for everything that is read here.
        """
        slot = session.with_run(task_id)
        # Both at once: most tasks that are asked for have not ended, and a store takes as long for one as for two.
        ended, kept = await together(
            self._load(slot, ENDED_KIND, decode_task), self._load(slot, TASK_KIND, decode_task)
        )
        if ended is None:
            return kept  # type: ignore[no-any-return]
        after = await self._load(slot, AFTER_KIND, decode_after)
        return ended if after is None else after_end(ended, after)

    async def tasks(self, session: Identity, ids: list[TaskID]) -> list[KeptTask]:
        """Those of these tasks that are kept, in the same order."""
        found: list[KeptTask] = []
        for some in batched(ids):
            kept = await together(*(self.task(session, task_id) for task_id in some))
            found += [task for task in kept if task is not None]
        return found

    async def group(self, session: Identity, group_id: TaskGroupID) -> StoredGroup | None:
        """The group as it is kept, or None."""
        slot = session.with_run(group_id)
        return await self._load(slot, GROUP_ENDED_KIND, decode_group) or await self._load(
            slot, GROUP_KIND, decode_group
        )

    async def groups(self, session: Identity, tasks: Iterable[Task]) -> list[TaskGroup]:
        """The groups that these tasks are in; those that have not ended with their members."""
        found: list[TaskGroup] = []
        for group_id in dict.fromkeys(task.group_id for task in tasks if task.group_id):
            kept = await self.group(session, group_id)
            if kept is None:
                continue
            group = kept.group
            if not group.status.is_terminal and not group.members:
                group = replace(group, members=tuple(await self.members(session, group_id)))
            found.append(group)
        return found

    async def patch(self, session: Identity, patch_id: str) -> TaskPatch | None:
        """The patch as it is kept, or None."""
        return await self._load(session.with_run(patch_id), PATCH_KIND, decode_patch)

    async def enter(self, task: Task) -> None:
        """Let a task be found in its session, in its group and under its parent."""
        session = task.identity.identity
        lists: list[Awaitable[object]] = [self._list(session.with_run(""), INDEX_KIND).add((task.id,))]
        if task.group_id:
            lists.append(self._list(session.with_run(task.group_id), MEMBERS_KIND).add((task.id,)))
        if task.parent_task_id:
            lists.append(self._list(session.with_run(task.parent_task_id), CHILDREN_KIND).add((task.id,)))
            lists.append(self._list(session.with_run(task.root_task_id), TREE_KIND).add((task.id,)))
        is_first, *_ = await together(*lists)
        if is_first:
            await self._sessions.add((session.tenant_id, session.user_id, session.session_id))

    async def ids(self, session: Identity) -> list[TaskID]:
        """The tasks that were entered in the session; some may never have been kept."""
        return await self._names(session.with_run(""), INDEX_KIND)

    async def members(self, session: Identity, group_id: TaskGroupID) -> list[TaskID]:
        """The tasks that were entered in the group, in the order they joined."""
        return await self._names(session.with_run(group_id), MEMBERS_KIND)

    async def children(self, session: Identity, task_id: TaskID) -> list[TaskID]:
        """The tasks that were entered under this one."""
        return await self._names(session.with_run(task_id), CHILDREN_KIND)

    async def has_fewer_children(self, session: Identity, parent: TaskID, most: int) -> bool:
        """Whether fewer than `most` tasks were entered under `parent`."""
        return await self._list(session.with_run(parent), CHILDREN_KIND).has_fewer_than(most)

    async def has_smaller_tree(self, session: Identity, root: TaskID, most: int) -> bool:
        """Whether fewer than `most` tasks were entered below `root`."""
        return await self._list(session.with_run(root), TREE_KIND).has_fewer_than(most)

    async def awaited(self, session: Identity, waiter: TaskID) -> TaskID | TaskGroupID:
        """What the run `waiter` waits for; "" for nothing."""
        return await self._load(session.with_run(waiter), WAIT_KIND, decode_wait) or ""

    async def keep_wait(self, session: Identity, waiter: TaskID, target: TaskID | TaskGroupID) -> None:
        """Note what the run `waiter` waits for; "" for nothing any more."""
        if target:
            await self._store.save(wait_record(session, waiter, target))
        else:
            await self._store.delete(session.with_run(waiter), WAIT_KIND)

    async def children_of(self, session: Identity, parents: list[TaskID]) -> list[TaskID]:
        """The tasks that were entered under these."""
        found: list[TaskID] = []
        for some in batched(parents):
            for children in await together(*(self.children(session, parent) for parent in some)):
                found += children
        return found

    async def sessions(self) -> list[Identity]:
        """The sessions that have tasks."""
        return [Identity(*entry) for entry in dict.fromkeys(await self._sessions.entries())]

    async def forget(self, session: Identity, tasks: Iterable[Task]) -> None:
        """Drop these tasks, their groups and their keys, and then the session's list: they are all that it has."""
        groups: dict[TaskGroupID, None] = {}
        for task in tasks:
            slot = session.with_run(task.id)
            for kind in (TASK_KIND, ENDED_KIND, AFTER_KIND, WAIT_KIND):
                await self._store.delete(slot, kind)
            for kind in (CHILDREN_KIND, TREE_KIND):
                await Directory(self._store, slot, kind).clear()
                self._lists.pop((slot, kind), None)
            if task.idempotency_key:
                await self.release(session, task.idempotency_key)
            if task.group_id:
                groups[task.group_id] = None
        for group_id in groups:
            slot = session.with_run(group_id)
            for kind in (GROUP_KIND, GROUP_ENDED_KIND):
                await self._store.delete(slot, kind)
            await Directory(self._store, slot, MEMBERS_KIND).clear()
            await self.disown_group(group_id)
        await Directory(self._store, session.with_run(""), INDEX_KIND).clear()
        self._lists.pop((session.with_run(""), INDEX_KIND), None)
        await self._shorten()

    async def _shorten(self) -> None:
        """Drop the oldest entries of the list of sessions, as far as they have no tasks any more."""
        while len(entries := await self._sessions.oldest()) >= CHUNK:
            for entry in entries:
                if await self.ids(Identity(*entry)):
                    return
            await self._sessions.drop_oldest()

    async def held(self, session: Identity, key: str) -> HeldKey | None:
        """What the key stands for, or None."""
        record = key_record(session, key)
        return await self._load(record.identity, record.kind, decode_key)

    async def hold(self, session: Identity, key: str, held: HeldKey) -> HeldKey:
        """Let the key stand for this, unless it stands for something already; what it stands for now."""
        record = key_record(session, key, held)
        return held if await self._put_once(record) else await self.held(session, key) or held

    async def release(self, session: Identity, key: str) -> None:
        """Let the key stand for nothing."""
        record = key_record(session, key)
        await self._store.delete(record.identity, record.kind)

    async def own_group(self, group_id: TaskGroupID, session: Identity) -> Identity:
        """Let the group id be this session's, unless it is somebody's already; whose it is now."""
        record = owner_record(_NOBODY, group_id, session)
        if await self._put_once(record):
            return session
        return await self._load(record.identity, record.kind, decode_owner) or session

    async def disown_group(self, group_id: TaskGroupID) -> None:
        """Let the group id be nobody's."""
        record = owner_record(_NOBODY, group_id)
        await self._store.delete(record.identity, record.kind)

    async def owed(self, session: Identity) -> tuple[FollowUp, ...]:
        """What an earlier process still had to carry out in the session."""
        return await self._load(session.with_run(""), OWED_KIND, decode_owed) or ()

    async def keep_owed(self, session: Identity, steps: tuple[FollowUp, ...]) -> None:
        """Note what has to be carried out in the session; nothing, once there are no steps."""
        if steps:
            await self._store.save(owed_record(session, steps))
        else:
            await self._store.delete(session.with_run(""), OWED_KIND)

    def _list(self, place: Quadruple, kind: str) -> Directory:
        found = self._lists.pop((place, kind), None)
        if found is None:
            found = Directory(self._store, place, kind)
        self._lists[place, kind] = found
        while len(self._lists) > _MOST_LISTS:
            del self._lists[next(iter(self._lists))]
        return found

    async def _names(self, place: Quadruple, kind: str) -> list[str]:
        entries = await Directory(self._store, place, kind).entries()
        return list(dict.fromkeys(entry[0] for entry in entries))

    async def _put_once(self, record: StateRecord) -> bool:
        try:
            await self._store.save(record)
        except IdempotencyConflictError:
            return False
        return True

    async def _load(self, slot: Quadruple, kind: str, decode: Callable[[bytes], T]) -> T | None:
        try:
            record = await self._store.load(slot, kind)
        except NotFoundError:
            return None
        return decode(record.data)
