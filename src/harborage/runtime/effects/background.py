"""A run's background tasks: their results are delivered to it, and when it ends they are cancelled or continue."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from harborage.concurrency import together
from harborage.planner import BackgroundMemberOutcome, BackgroundResult, FinishReason
from harborage.planner.spawning import is_own_group
from harborage.runtime.effects.children import find_group, group_ended, parse_result, seal_own
from harborage.runtime.effects.executor import CatalogToolExecutor
from harborage.runtime.effects.heavy import Projection, heavy_answer, project
from harborage.tasks import (
    GroupCompletion,
    GroupNotFoundError,
    MemberOutcome,
    RegistryClosedError,
    TaskFilter,
    TaskID,
    TaskNotFoundError,
    TaskRegistry,
    TaskSummary,
)

if TYPE_CHECKING:
    from harborage.identity import Quadruple
    from harborage.runtime.effects.run_resources import LiveRun
    from harborage.runtime.effects.services import AgentServices

Project = Callable[[str, Any], Awaitable[Projection]]
"""Returns what a planner is shown of a result, by the name under which a heavy one is kept."""


def follow(services: AgentServices, live: LiveRun, name: str) -> None:
    """Deliver the results of the group of this id or name to the run when it has ended; the watch ends with the run."""
    tasks = registry_of(services, live)
    if tasks is not None and name not in live.followed:
        live.followed |= {name}
        live.mailbox.expect()
        live.crew.start(_deliver_result(services, tasks, live, name), f"watch {name}")


async def follow_spawned(services: AgentServices, live: LiveRun, observation: Any) -> None:
    """Follow a task that any executor has spawned, by the task handle in its observation."""
    task_id = observation.get("task_id") if isinstance(observation, dict) else None
    tasks = registry_of(services, live)
    if tasks is None or not isinstance(task_id, str):
        return
    live.has_children = True
    try:
        task = await tasks.get(task_id, who=live.base.quadruple)
    except TaskNotFoundError:
        return  # of another registry
    if task.group_id:
        follow(services, live, task.group_id)


async def background_result(completion: GroupCompletion, name: str, project: Project) -> BackgroundResult:
    """An ended group as the planner sees it: each member with its result, a heavy one as a summary with a reference."""
    return BackgroundResult(
        group_id=name,
        status=str(completion.final_status),
        resolved_at=completion.resolved_at,
        members=tuple(await together(*(_member(member, project) for member in completion.members))),
        reason=completion.reason,
    )


async def end_children(services: AgentServices, live: LiveRun, reason: FinishReason | None) -> list[TaskID]:
    """Cancel or keep the children of a run that ends for `reason`, None for a failure; return those that continue.

    The end of a cancelled or failed run cancels all of them, any other those that its turn waited for. The groups that
    it opened take no further members. If its task was cancelled, its cancel policy has decided about its children.

    Raises:
        DatabaseError, BusStalledError: the step has to be retried.
    """
    tasks, who = services.tasks, live.base.quadruple
    cancels_all = reason is None or reason is FinishReason.CANCELLED
    if tasks is None or not (cancels_all or live.has_children):
        return []
    cancelled = None if live.state is None else live.state.task_cancelled
    if cancels_all and cancelled is not None and cancelled.is_isolated:
        return []
    for name in live.named_groups:
        group = await find_group(tasks, who, name)
        if group is not None:
            await seal_own(tasks, who, group)
    living = [child for child in await tasks.list(who.identity, TaskFilter(parent=who.run_id)) if _lives(child)]
    only = [child.id for child in living if cancels_all or child.retains_turn]
    if only:
        await tasks.cancel_children(who.run_id, f"parent {who.run_id} ended", only=only, who=who, write=live.write)
    return [] if cancels_all else [child.id for child in living if not child.retains_turn]


async def _deliver_result(services: AgentServices, tasks: TaskRegistry, live: LiveRun, name: str) -> None:
    who, result = live.base.quadruple, None
    try:
        completion = await _completion(services, tasks, who, name)
        if completion is not None:
            result = await background_result(completion, name, _project(services, live))
    except RegistryClosedError:
        pass
    finally:
        live.mailbox.deliver(result)


async def _completion(
    services: AgentServices, tasks: TaskRegistry, who: Quadruple, name: str
) -> GroupCompletion | None:
    """How the group of this id or name ended, once it has; None for one of an earlier runtime, whose tasks ended with
    it."""
    try:
        if is_own_group(name):  # it was sealed with its task
            return await group_ended(tasks, who, name, clock=services.clock, is_sealed=True)
        group = await find_group(tasks, who, name)
        return None if group is None else await group_ended(tasks, who, group.id, clock=services.clock)
    except GroupNotFoundError:
        return None


def _project(services: AgentServices, live: LiveRun) -> Project:
    executor = _executor(services, live)
    return _inline if executor is None else partial(executor.projected, live.base.quadruple)


def registry_of(services: AgentServices, live: LiveRun) -> TaskRegistry | None:
    """Return the registry of the run's tasks; None for a run that can have none."""
    if services.tasks is not None:
        return services.tasks
    executor = _executor(services, live)
    return None if executor is None else executor.task_registry


def _executor(services: AgentServices, live: LiveRun) -> CatalogToolExecutor | None:
    return live.tool_executor if isinstance(live.tool_executor, CatalogToolExecutor) else services.executor


async def _inline(name: str, value: Any) -> Projection:
    return project(name, value)


async def _member(member: MemberOutcome, project: Project) -> BackgroundMemberOutcome:
    result, ref = None, ""
    if member.result:
        parsed = parse_result(member.result)
        kept = heavy_answer(parsed)  # a heavy answer was kept as an artifact when the task ended
        projected = await project("_spawn_task", parsed if kept is None else kept)
        result = projected.llm
        is_summary = kept is not None or projected.is_heavy
        ref = result.get("artifact_ref", "") if is_summary and isinstance(result, dict) else ""
    return BackgroundMemberOutcome(
        task_id=member.task_id,
        status=str(member.status),
        result=result,
        result_ref=ref,
        error_code="" if member.error is None else member.error.code,
        error_message="" if member.error is None else member.error.message,
    )


def _lives(task: TaskSummary) -> bool:
    return not task.status.is_terminal
