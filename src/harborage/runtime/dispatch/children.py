"""Tasks that a run starts and waits for, on the task registry: spawning with a depth limit, and how a task ended."""

from __future__ import annotations

import json
from typing import Any

from harborage.errors import HarborageError
from harborage.identity import Quadruple
from harborage.planner import SpawnTask
from harborage.planner.spawning import (
    DEFAULT_SPAWN_DEPTH_CAP,
    SpawnDepthExceededError,
    check_spawn_depth,
    own_group_id,
    spawn_request,
)
from harborage.tasks import (
    GroupInvalidTransitionError,
    GroupRequest,
    GroupSealedError,
    GroupStatus,
    Task,
    TaskRegistry,
)

__all__ = [
    "AWAITED",
    "DEFAULT_SPAWN_DEPTH_CAP",
    "SPAWNED",
    "AwaitSelfError",
    "SpawnDepthExceededError",
    "await_task",
    "shown_handle",
    "spawn_task",
    "task_outcome",
]


SPAWNED = "_spawn_task"
"""The name under which the outcome of a child that its spawn waits for is shown and kept."""
AWAITED = "_await_task"
"""The name under which the outcome of an awaited task is shown and kept."""


class AwaitSelfError(HarborageError):
    """A run may not await its own task: it would wait for ever."""


async def spawn_task(
    registry: TaskRegistry, who: Quadruple, spawn: SpawnTask, *, key: str, max_depth: int
) -> dict[str, Any]:
    """Spawn a child of the run `who`, alone in a group of its own unless the decision names one.

    Raises:
        SpawnDepthExceededError: the child would be too deep.
        HarborageError: the registry refused.
    """
    await check_spawn_depth(registry, who, max_depth)
    group_id = spawn.group_id or await _own_group(registry, who, spawn, key)
    handle = await registry.spawn(spawn_request(who, spawn, key, group_id))
    if not spawn.group_id:
        await _seal(registry, group_id, who, is_again=handle.reused)
    return {"task_id": handle.id, "kind": str(spawn.kind or "background"), "status": "spawned", "group_id": group_id}


def shown_handle(handle: dict[str, Any]) -> dict[str, Any]:
    """What the planner is given of a spawned task."""
    return {name: handle[name] for name in ("task_id", "kind", "status")}


async def _seal(registry: TaskRegistry, group_id: str, who: Quadruple, *, is_again: bool) -> None:
    """Let the child be alone in its group. When the spawn is repeated, a crash may have come between it and this."""
    try:
        await registry.seal_group(group_id, who=who)
    except GroupInvalidTransitionError:
        if not is_again:
            raise


async def await_task(registry: TaskRegistry, who: Quadruple, task_id: str) -> dict[str, Any]:
    """How a task of this session ended, once it has.

    Raises:
        AwaitSelfError: it is the caller's own.
        NotFoundError: unknown, or another session's.
    """
    if task_id == who.run_id:
        raise AwaitSelfError(f"run {who.run_id} cannot await itself")
    return task_outcome(await registry.wait_ended(task_id, who=who))


def task_outcome(task: Task) -> dict[str, Any]:
    """An ended task as an observation: its result parsed, its error as code and message."""
    outcome: dict[str, Any] = {"task_id": task.id, "status": str(task.status)}
    if task.result is not None:
        outcome["result"] = _parsed(task.result)
    if task.error is not None:
        outcome["error"] = {"code": task.error.code, **({"message": task.error.message} if task.error.message else {})}
    return outcome


async def _own_group(registry: TaskRegistry, who: Quadruple, spawn: SpawnTask, key: str) -> str:
    request = GroupRequest(
        session=who.identity,
        id=own_group_id(who, key) if key else "",  # without a key nobody asks again, and any two are two groups
        owner_task_id=who.run_id,
        retain_turn=spawn.spec.retain_turn,
        fail_fast=spawn.spec.fail_fast,
        description=spawn.spec.description,
    )
    group = await registry.resolve_or_create_group(request, who=who)
    if group.status is not GroupStatus.OPEN and not group.members:
        raise GroupSealedError(group.id, str(group.status))
    return group.id


def _parsed(result: bytes) -> Any:
    try:
        return json.loads(result)
    except ValueError:
        return result.decode(errors="replace")
