"""The scenario in which a planner spawns a task, the pack plays the runtime, and the planner takes up the result."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, assert_never

from harborage.planner.conformance.harness import Capabilities
from harborage.planner.conformance.report import PromiseBrokenError, expect
from harborage.planner.decisions import AwaitTask, Decision, Finish, SpawnTask, check_decision, decision_kind
from harborage.planner.enums import WakeMode
from harborage.planner.spawning import spawn_request
from harborage.planner.trajectory import BackgroundMemberOutcome, BackgroundResult, Step, Trajectory
from harborage.tasks import (
    GroupCompletion,
    GroupRequest,
    GroupStatus,
    GroupWatch,
    TaskID,
    TaskRegistry,
)

if TYPE_CHECKING:
    from harborage.identity import Quadruple
    from harborage.planner.conformance.bench import Bench
    from harborage.planner.context import Planner, RunContext

__all__ = ["the_planner_is_woken"]

_CALLS = 64
_RESULT = b'{"answer":"done"}'


async def the_planner_is_woken(bench: Bench) -> None:
    """A planner that spawned a task goes on when the task has ended, in the way it says it is woken."""
    bench.require(Capabilities.WAKE_ROUND_TRIP)
    registry = await bench.registry()
    planner, run = await bench.planner_on(registry), await bench.context()
    if run.trajectory is None:
        run.trajectory = Trajectory(query=run.query)
    spawn = check_decision(await planner.next(run))
    if not isinstance(spawn, SpawnTask):
        raise PromiseBrokenError(f"the planner claims WAKE_ROUND_TRIP and returned {decision_kind(spawn)}")
    match bench.harness.wake_mode:
        case WakeMode.PUSH | WakeMode.HYBRID:
            await _pushed(bench, registry, planner, run, spawn)
        case WakeMode.POLL:
            await _polled(bench, registry, planner, run, spawn)
        case _ as unreachable:
            assert_never(unreachable)


async def _pushed(bench: Bench, registry: TaskRegistry, planner: Planner, run: RunContext, spawn: SpawnTask) -> None:
    expect(not spawn.spec.retain_turn, "a planner that is woken by push must not keep its turn (retain_turn)")
    task_id, group_id = await _act(registry, run, spawn)
    watch = await registry.watch_group(run.quadruple.identity, group_id)
    await _complete(registry, run.quadruple, task_id)
    completion = await _completion(watch, bench.harness.patience_s)
    expect(len(completion.members) == 1, f"the group has {len(completion.members)} members, not one")
    assert run.trajectory is not None
    run.trajectory.background[group_id] = _background(completion)
    decision = await planner.next(run)
    expect(isinstance(decision, Finish), f"woken with the result, the planner returned {decision_kind(decision)}")


async def _polled(bench: Bench, registry: TaskRegistry, planner: Planner, run: RunContext, spawn: SpawnTask) -> None:
    expect(bool(spawn.group_id), "a planner that polls must name the group it will look at (group_id)")
    task_id, _ = await _act(registry, run, spawn)
    waiting = await planner.next(run)
    if not isinstance(waiting, AwaitTask):
        raise PromiseBrokenError(f"while its task runs, the planner returned {decision_kind(waiting)}, not AwaitTask")
    expect(waiting.task_id != run.quadruple.run_id, "the planner awaits its own run, which would never end")
    expect(waiting.task_id == task_id, f"the planner awaits {waiting.task_id!r}, the spawned task is {task_id!r}")
    await _complete(registry, run.quadruple, task_id)
    decision = await _until_it_goes_on(registry, planner, run, bench.harness.patience_s)
    check_decision(decision)


async def _completion(watch: GroupWatch, patience_s: float) -> GroupCompletion:
    """How the group ended, which must be well and in time."""
    try:
        async with asyncio.timeout(patience_s):
            completion = await watch.completion()
    except TimeoutError as error:
        raise PromiseBrokenError(f"the group still runs {patience_s} s after its task has ended") from error
    if completion is None or completion.final_status is not GroupStatus.COMPLETED:
        raise PromiseBrokenError(f"the group of the spawned task did not complete: {completion!r}")
    return completion


async def _until_it_goes_on(registry: TaskRegistry, planner: Planner, run: RunContext, patience_s: float) -> Decision:
    """The first decision that waits for nothing; whatever the planner awaits is awaited, as the runtime does."""
    try:
        async with asyncio.timeout(patience_s):
            for _ in range(_CALLS):
                decision = await planner.next(run)
                if not isinstance(decision, AwaitTask):
                    return decision
                await registry.wait_ended(decision.task_id, who=run.quadruple)
                await asyncio.sleep(0)
    except TimeoutError as error:
        raise PromiseBrokenError(f"the planner still waits {patience_s} s after its task has ended") from error
    raise PromiseBrokenError(f"the planner still waits at the {_CALLS}th call after its task has ended")


async def _act(registry: TaskRegistry, run: RunContext, spawn: SpawnTask) -> tuple[TaskID, str]:
    """Carry the spawn out as the runtime does, and note it in the history; there must be one task, whoever made it."""
    who = run.quadruple
    request = GroupRequest(
        session=who.identity, id=spawn.group_id, owner_task_id=who.run_id, fail_fast=spawn.spec.fail_fast
    )
    group = await registry.resolve_or_create_group(request, who=who)
    key = spawn.idempotency_key or f"{who.run_id}/0"
    handle = await registry.spawn(spawn_request(who, spawn, key, group.id))
    if group.status is GroupStatus.OPEN:
        await registry.seal_group(group.id, who=who)
    tasks = await registry.list(who.identity)
    expect(len(tasks) == 1, f"acting on the spawn left {len(tasks)} tasks; a planner that spawns by itself needs a key")
    assert run.trajectory is not None
    observation = {"task_id": handle.id, "kind": str(spawn.kind or "background"), "status": "spawned"}
    run.trajectory.steps.append(Step(action=spawn, observation=observation, llm_observation=observation))
    return handle.id, group.id


async def _complete(registry: TaskRegistry, who: Quadruple, task_id: TaskID) -> None:
    await registry.mark_running(task_id, who=who)
    await registry.mark_complete(task_id, _RESULT, who=who)


def _background(completion: GroupCompletion) -> BackgroundResult:
    return BackgroundResult(
        group_id=completion.group_id,
        status=str(completion.final_status),
        resolved_at=completion.resolved_at,
        members=tuple(
            BackgroundMemberOutcome(task_id=member.task_id, status=str(member.status)) for member in completion.members
        ),
    )
