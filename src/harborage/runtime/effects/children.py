"""Tasks that a run starts and waits for, on the task registry: spawned within limits, alone or in groups, and awaited.

A group that a decision names is opened by the first spawn of the run that names it; the same name in another run, a
child too, is another group, which other runs reach by its id only. The run that opened it seals it when it waits for
it, or when it ends; one that stays open is sealed some time after its last member joined, by the run that waits for it.
So every wait for a group ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harborage.concurrency import CancelScope
from harborage.ids import new_id
from harborage.planner.spawning import (
    check_spawn_depth,
    is_own_group,
    named_group_id,
    own_group_id,
    spawn_request,
)
from harborage.runtime.durable.steps import Waiting
from harborage.runtime.effects.heavy import heavy_answer
from harborage.tasks import (
    GroupCompletion,
    GroupInvalidTransitionError,
    GroupNotFoundError,
    GroupRequest,
    GroupSealedError,
    GroupStatus,
    MemberOutcome,
    RegistryClosedError,
    Task,
    TaskGroup,
    TaskGroupID,
    TaskHandle,
    TaskID,
    TaskLimitError,
    TaskNotFoundError,
    TaskRegistry,
    WaitCycleError,
)

if TYPE_CHECKING:
    from harborage.clock import Timers
    from harborage.events.bus import RunWriter
    from harborage.identity import Quadruple
    from harborage.planner import SpawnTask

SPAWNED: Final = "_spawn_task"
"""The name under which the outcome of a child that its spawn waits for is shown and kept."""

AWAITED: Final = "_await_task"
"""The name under which the outcome of an awaited task is shown and kept."""

SEAL_AFTER: Final = timedelta(minutes=5)
"""How long after its last member joined an open group is sealed by the run that waits for it."""

LOOK_AGAIN: Final = timedelta(minutes=5)
"""How long a run that waits for a group may be out of memory before it looks at the group again."""

OnWaiting = Callable[[Waiting], None]


class Spawned(msgspec.Struct, frozen=True, kw_only=True):
    """A spawned task. `group_name` is the group as the decision named it, "" for a task in a group of its own."""

    task_id: TaskID
    kind: str
    group_id: TaskGroupID
    group_name: str = ""

    @property
    def handle(self) -> dict[str, Any]:
        """What the planner is shown."""
        named = {"group_id": self.group_name} if self.group_name else {}
        return {"task_id": self.task_id, "kind": self.kind, "status": "spawned", **named}


async def spawn_task(
    registry: TaskRegistry,
    who: Quadruple,
    spawn: SpawnTask,
    *,
    key: str,
    max_depth: int,
    deadline: datetime | None = None,
    write: RunWriter | None = None,
) -> Spawned:
    """Spawn a child of the run `who`, alone in a group of its own unless the decision names one.

    A `deadline` later than the run's own is cut to it. `write` is how the run commits, here and below.

    Raises:
        SpawnDepthExceededError: the child would be too deep.
        TaskLimitError: the run, or its tree, has as many tasks as it may.
        WaitCycleError: the run would wait for a group that waits for it.
        HarborageError: the registry refused.
    """
    await check_spawn_depth(registry, who, max_depth)
    spawned = await (_spawn_in_group if spawn.group_id else _spawn_alone)(registry, who, spawn, key, deadline, write)
    handle, group_id = spawned
    kind = str(spawn.kind or "background")
    return Spawned(task_id=handle.id, kind=kind, group_id=group_id, group_name=spawn.group_id)


async def await_work(
    registry: TaskRegistry,
    who: Quadruple,
    target: TaskID | TaskGroupID,
    *,
    clock: Timers,
    on_waiting: OnWaiting | None = None,
    write: RunWriter | None = None,
) -> dict[str, Any]:
    """How a task, or all members of a group, of this session ended, once they have.

    `on_waiting` is called with what the wait depends on, before it begins. A group is named by its id, or as the
    decision named it that opened it.

    Raises:
        WaitCycleError: it is the caller's own task.
        TaskNotFoundError: neither a task nor a group of this session.
        WaitCycleError: it waits for the caller, directly or through others.
    """
    if target == who.run_id:
        raise WaitCycleError((who.run_id, who.run_id))
    try:
        task = await registry.get(target, who=who)
    except TaskNotFoundError:
        group = await find_group(registry, who, target)
        if group is None:
            raise
        return await _await_group(registry, who, group, target, clock=clock, on_waiting=on_waiting, write=write)
    if task.status.is_terminal:
        return task_outcome(task)
    await registry.begin_wait(who.run_id, target, who=who, write=write)
    if on_waiting is not None:
        on_waiting(Waiting(run_id=target))
    # A run that is cancelled here may only leave memory: what it waits for stays noted until the step is over.
    outcome = task_outcome(await registry.wait_ended(target, who=who))
    await registry.end_wait(who.run_id, who=who, write=write)
    return outcome


async def find_group(registry: TaskRegistry, who: Quadruple, name: str) -> TaskGroup | None:
    """The group with this id, or that this run opened under this name; None when there is none."""
    try:
        return await registry.group(name, who=who)
    except GroupNotFoundError:
        pass
    try:
        return await registry.group(named_group_id(who, name), who=who)
    except GroupNotFoundError:
        return None


async def group_ended(
    registry: TaskRegistry,
    who: Quadruple,
    group_id: TaskGroupID,
    *,
    clock: Timers,
    on_waiting: OnWaiting | None = None,
    is_sealed: bool = False,
) -> GroupCompletion:
    """How the group ended, once it has; where no worker seals it in time, it is sealed here.

    One that is known to take no members any more, as `is_sealed` says, is not read for that.

    Raises:
        GroupNotFoundError: unknown, or another session's.
        RegistryClosedError: the registry closed first.
    """
    watch = await registry.watch_group(who.identity, group_id)
    try:
        while True:
            seal_at = None if is_sealed else await _seal_at(registry, who, await registry.group(group_id, who=who))
            if on_waiting is not None and watch.peek() is None:
                again = clock.now() + LOOK_AGAIN
                on_waiting(Waiting(again if seal_at is None else min(again, seal_at), group_id))
            left_s = None if seal_at is None else max(0.0, (seal_at - clock.now()).total_seconds())
            with CancelScope(clock, left_s) as scope:
                completion = await watch.completion()
                if completion is None:
                    raise RegistryClosedError()
                return completion
            if scope.was_cancelled:
                await _seal(registry, group_id, who, is_again=True)
    finally:
        watch.cancel()


async def seal_own(registry: TaskRegistry, who: Quadruple, group: TaskGroup) -> None:
    """Seal the group if the run `who` opened it and it takes members still."""
    if group.owner_task_id == who.run_id and group.status is GroupStatus.OPEN:
        await _seal(registry, group.id, who, is_again=True)


def task_outcome(task: Task) -> dict[str, Any]:
    """An ended task as an observation: its result parsed, that of a heavy answer its summary; its error as code and
    message."""
    return _outcome(MemberOutcome(task.id, task.status, task.result, task.error))


def group_outcome(completion: GroupCompletion, name: str) -> dict[str, Any]:
    """An ended group as an observation, with the outcome of each member."""
    because = {"reason": completion.reason} if completion.reason else {}
    members = [_outcome(member) for member in completion.members]
    return {"group_id": name, "status": str(completion.final_status), "members": members, **because}


async def _await_group(
    registry: TaskRegistry,
    who: Quadruple,
    group: TaskGroup,
    name: str,
    *,
    clock: Timers,
    on_waiting: OnWaiting | None,
    write: RunWriter | None,
) -> dict[str, Any]:
    if not group.status.is_terminal:
        with _naming(group.id, name):
            await registry.begin_wait(who.run_id, group.id, who=who, write=write)
        await seal_own(registry, who, group)
    is_sealed = group.status is not GroupStatus.OPEN or group.owner_task_id == who.run_id
    completion = await group_ended(registry, who, group.id, clock=clock, on_waiting=on_waiting, is_sealed=is_sealed)
    await registry.end_wait(who.run_id, who=who, write=write)
    if is_own_group(group.id) and len(completion.members) == 1:
        return _outcome(completion.members[0])
    return group_outcome(completion, name)


async def _seal_at(registry: TaskRegistry, who: Quadruple, group: TaskGroup) -> datetime | None:
    """When an open group is to be sealed; None for one that takes no members any more."""
    if group.status is not GroupStatus.OPEN:
        return None
    last = group.created_at
    if group.members:
        joined = await registry.get(group.members[-1], who=who)
        last = max(last, datetime.fromtimestamp(joined.created_at / 1e9, UTC))
    return last + SEAL_AFTER


async def _seal(registry: TaskRegistry, group_id: str, who: Quadruple, *, is_again: bool) -> None:
    """Let no more tasks join the group. `is_again` allows that it was sealed before, by a process that is gone even."""
    try:
        await registry.seal_group(group_id, who=who)
    except GroupInvalidTransitionError:
        if not is_again:
            raise


@contextmanager
def _naming(group_id: TaskGroupID, name: str) -> Iterator[None]:
    """Refusals name the group as the decision does, not by the id that it is kept under."""
    try:
        yield
    except GroupSealedError as error:
        raise GroupSealedError(name or group_id, error.status) from error
    except WaitCycleError as error:
        raise WaitCycleError([name or group_id if one == group_id else one for one in error.path]) from error


async def _named_group(registry: TaskRegistry, who: Quadruple, spawn: SpawnTask) -> TaskGroup:
    """The group that the decision names; opened here when there is none."""
    group = await find_group(registry, who, spawn.group_id)
    if group is not None:
        return group
    group_id = named_group_id(who, spawn.group_id)
    return await registry.resolve_or_create_group(_group_request(who, spawn, group_id), who=who)


async def _spawn_alone(
    registry: TaskRegistry,
    who: Quadruple,
    spawn: SpawnTask,
    key: str,
    deadline: datetime | None,
    write: RunWriter | None,
) -> tuple[TaskHandle, TaskGroupID]:
    """Spawn into a group of the task's own."""
    group_id = own_group_id(who, key or new_id())  # without a key no caller asks again, and any two are two groups
    request = spawn_request(who, spawn, key, group_id, deadline=deadline)
    group = _group_request(who, spawn, group_id)
    handle = await registry.spawn_alone(request, group, is_awaited=spawn.spec.retain_turn, write=write)
    return handle, group_id


async def _spawn_in_group(
    registry: TaskRegistry,
    who: Quadruple,
    spawn: SpawnTask,
    key: str,
    deadline: datetime | None,
    write: RunWriter | None,
) -> tuple[TaskHandle, TaskGroupID]:
    """Spawn into the group that the decision names."""
    group = await _named_group(registry, who, spawn)
    try:
        with _naming(group.id, spawn.group_id):
            if spawn.spec.retain_turn:
                # Refused before there is a task, and noted before the child can wait for this run.
                await registry.begin_wait(who.run_id, group.id, who=who, write=write)
            request = spawn_request(who, spawn, key, group.id, deadline=deadline)
            return await registry.spawn(request, write=write), group.id
    except TaskLimitError:
        if not group.members and group.owner_task_id == who.run_id:
            await registry.cancel_group(group.id, "its first task was not spawned", who=who)
        raise


def _group_request(who: Quadruple, spawn: SpawnTask, group_id: TaskGroupID) -> GroupRequest:
    return GroupRequest(
        session=who.identity,
        id=group_id,
        owner_task_id=who.run_id,
        retain_turn=spawn.spec.retain_turn,
        fail_fast=spawn.spec.fail_fast,
        description=spawn.spec.description,
    )


def _outcome(member: MemberOutcome) -> dict[str, Any]:
    outcome: dict[str, Any] = {"task_id": member.task_id, "status": str(member.status)}
    if member.result is not None:
        parsed = parse_result(member.result)
        kept = heavy_answer(parsed)
        outcome["result"] = parsed if kept is None else kept
    error = member.error
    if error is not None:
        outcome["error"] = {"code": error.code, **({"message": error.message} if error.message else {})}
    return outcome


def parse_result(result: bytes) -> Any:
    """Return the stored result of a task: decoded JSON, or its text if it is none."""
    import json  # loaded by the first result of a task

    try:
        return json.loads(result)
    except ValueError:
        return result.decode(errors="replace")
