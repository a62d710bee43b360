"""The task request for a spawn decision, the ids of its groups, and the limit of spawn depth.

A planner that spawns by itself and the runtime that acts on its decision make the same request here; otherwise there
would be two tasks.
"""

from __future__ import annotations

from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from harborage import codec
from harborage.identity import Quadruple
from harborage.planner.errors import PlannerError
from harborage.tasks import SpawnRequest, TaskKind, TaskNotFoundError, TaskRegistry

if TYPE_CHECKING:
    from harborage.planner.decisions import SpawnTask

_OWN: Final = "group-"
_NAMED: Final = "named-"


class SpawnDepthExceededError(PlannerError):
    """A task tried to spawn deeper than allowed."""

    def __init__(self, depth: int = 0, cap: int = 0) -> None:
        self.depth = depth
        self.cap = cap
        super().__init__(
            f"cannot spawn at depth {depth}: planner.absolute_max_spawn_depth is {cap}; "
            "do the work in this run or raise the cap"
        )


def spawn_request(
    who: Quadruple, spawn: SpawnTask, key: str, group_id: str, *, deadline: datetime | None = None
) -> SpawnRequest:
    """Return the request for the task of `spawn`, a child of the run `who`; the same `key` starts one task."""
    return SpawnRequest(
        identity=Quadruple(who.tenant_id, who.user_id, who.session_id),
        kind=TaskKind(spawn.kind or TaskKind.BACKGROUND),
        parent_task_id=who.run_id or None,
        description=spawn.spec.description,
        query=spawn.spec.query,
        priority=spawn.spec.priority,
        notify_on_complete=True,
        idempotency_key=key,
        group_id=group_id,
        deadline=deadline,
        retains_turn=spawn.spec.retain_turn,
        agent=spawn.spec.agent,
        output=spawn.spec.output,
    )


def own_group_id(who: Quadruple, key: str) -> str:
    """Return the id of a spawned task's own group. Ids are shared by all tenants, so the owner is in it."""
    return _OWN + _digest(who, key)


def is_own_group(group_id: str) -> bool:
    """Whether this is the id of a spawned task's own group."""
    return group_id.startswith(_OWN)


def named_group_id(who: Quadruple, name: str) -> str:
    """Return the id of the group that the run `who` opens under `name`; a name belongs to the run that uses it."""
    return _NAMED + _digest(who, who.run_id, name)


def _digest(who: Quadruple, *parts: str) -> str:
    return sha256(codec.encode((who.tenant_id, who.user_id, who.session_id, *parts))).hexdigest()[:32]


async def check_spawn_depth(registry: TaskRegistry, who: Quadruple, cap: int) -> None:
    """Check that the run `who` may spawn a child; a run that a person starts is at depth 0.

    Raises:
        SpawnDepthExceededError: the child would be deeper than `cap`.
    """
    depth = await _count_parents(registry, who, cap) + 1
    if depth > cap:
        raise SpawnDepthExceededError(depth, cap)


async def _count_parents(registry: TaskRegistry, who: Quadruple, cap: int) -> int:
    """Count the parents of the run's own task; a run without a task is a root."""
    hops = 0
    task_id = who.run_id
    while hops <= cap:
        try:
            parent = (await registry.get(task_id, who=who)).parent_task_id
        except TaskNotFoundError:
            return hops
        if parent is None:
            return hops
        task_id = parent
        hops += 1
    return hops
