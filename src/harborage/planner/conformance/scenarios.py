"""The scenarios of the pack, each of which states one promise of a planner, run one by one on fresh parts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, TypeAlias, assert_never

from harborage import codec
from harborage.concurrency import together
from harborage.errors import HarborageError
from harborage.identity import Quadruple
from harborage.planner.conformance.harness import (
    Bench,
    Canned,
    Capabilities,
    ConformanceFailedError,
    ConformanceReport,
    Failed,
    Outcome,
    Passed,
    PromiseBrokenError,
    ScenarioSkipped,
    Skipped,
    expect,
)
from harborage.planner.context import Budget, ControlSignals, Planner, RunContext, resolve_wake_mode
from harborage.planner.decisions import (
    DECISION_KINDS,
    AwaitTask,
    CallParallel,
    Decision,
    Finish,
    FinishReason,
    JoinKind,
    PauseReason,
    RequestPause,
    SpawnTask,
    WakeMode,
    check_decision,
    decision_kind,
)
from harborage.planner.spawning import spawn_request
from harborage.planner.trajectory import BackgroundMemberOutcome, BackgroundResult, Step, Trajectory
from harborage.tasks import GroupCompletion, GroupRequest, GroupStatus, GroupWatch, TaskID, TaskRegistry

if TYPE_CHECKING:
    from harborage.planner.conformance.harness import Harness

_CONCURRENT_RUNS = 64
_TURNS = 8
_PAST = timedelta(hours=-1)
_WANTED = {
    Canned.CALL_TOOL: ("CallTool",),
    Canned.FINISH: ("Finish",),
    # A planner may make calls one at a time: the first of them is a decision too.
    Canned.CALL_PARALLEL: ("CallParallel", "CallTool"),
}


async def next_returns_a_decision(bench: Bench) -> None:
    """A fresh run gets a decision, and no error."""
    decision = await _ask(await bench.planner(), await bench.context())
    expect(decision is not None, "next returned None; return a decision, or raise")
    if decision_kind(decision) in DECISION_KINDS:
        check_decision(decision)


async def the_wake_mode_is_declared(bench: Bench) -> None:
    """The planner's wake mode is one of the three, and the one that the harness says."""
    mode = resolve_wake_mode(await bench.planner())
    expect(mode in WakeMode, f"wake_mode {mode!r} is unknown; use one of {', '.join(WakeMode)}")
    expect(mode == bench.harness.wake_mode, f"wake_mode is {mode}, the harness says {bench.harness.wake_mode}")


async def the_decision_is_one_of_six(bench: Bench) -> None:
    """A decision is one of the six, and nothing else."""
    decision = await _ask(await bench.planner(), await bench.context())
    kind = type(decision).__name__
    expect(decision_kind(decision) in DECISION_KINDS, f"next returned a {kind}, not one of {', '.join(DECISION_KINDS)}")


async def canned_answers_become_decisions(bench: Bench) -> None:
    """What a model answers when it calls a tool, finishes, or calls several tools becomes the decision it means."""
    for name, wanted in _WANTED.items():
        decision = await _ask(await bench.canned(name), await bench.context())
        kind = decision_kind(decision)
        expect(kind in wanted, f"the canned answer {name} became {kind}, not {' or '.join(wanted)}")
        check_decision(decision)


async def garbage_is_survived(bench: Bench) -> None:
    """A model that answers garbage leads to a decision or to a planner's own error, never to a crash or to nothing."""
    bench.require(Capabilities.LLM_DRIVEN)
    planner, context = await bench.canned(Canned.MALFORMED), await bench.context()
    try:
        decision = await planner.next(context)
    except HarborageError:
        return
    except Exception as error:
        raise PromiseBrokenError(f"garbage crashed the planner: {type(error).__name__}: {error}") from error
    expect(decision_kind(decision) in DECISION_KINDS, f"garbage led to {decision!r}, neither a decision nor an error")


async def parallel_calls_are_whole(bench: Bench) -> None:
    """A parallel call has branches, names every tool, and joins in a way that is known; other decisions may come."""
    planner = await bench.canned_or_own(Canned.CALL_PARALLEL)
    decision = await _ask(planner, await bench.context())
    if not isinstance(decision, CallParallel):
        return
    expect(bool(decision.branches), "the parallel call has no branches")
    for index, branch in enumerate(decision.branches):
        expect(bool(getattr(branch, "tool", "")), f"branch {index} of the parallel call names no tool")
    if decision.join is not None:
        expect(decision.join.kind in JoinKind, f"the parallel call's join {decision.join.kind!r} is unknown")


async def an_overdue_run_gets_an_answer(bench: Bench) -> None:
    """A run whose deadline passed an hour ago gets a decision or an error, never nothing."""
    planner, context = await bench.planner(), await bench.context()
    context.budget = Budget(deadline=context.now() + _PAST)
    try:
        decision = await planner.next(context)
    except Exception:  # noqa: BLE001 - an error is an answer; nothing is none
        return
    expect(decision_kind(decision) in DECISION_KINDS, f"the overdue run got {decision!r}")


async def pause_payloads_keep_their_bounds(bench: Bench) -> None:
    """A pause has a known reason, and a payload that is not too deep, too wide or too large."""
    bench.require(Capabilities.CAN_PAUSE)
    planner = await bench.canned_or_own(Canned.PAUSE)
    decision = await _ask(planner, await bench.context())
    if not isinstance(decision, RequestPause):
        raise PromiseBrokenError(f"the planner claims CAN_PAUSE and returned {decision_kind(decision)}")
    expect(decision.reason in PauseReason, f"the pause's reason {decision.reason!r} is unknown")
    payload = decision.payload
    # The depth comes first: measuring something endless would never end.
    _check_bound("levels", payload_depth(payload), MAX_PAYLOAD_DEPTH)
    _check_bound("keys", payload_keys(payload), MAX_PAYLOAD_KEYS)
    _check_bound("bytes of JSON", codec.canonical_size(payload, "payload"), MAX_PAYLOAD_BYTES)


async def cancelled_runs_finish_as_cancelled(bench: Bench) -> None:
    """A run that steering cancelled finishes as cancelled at its next step."""
    bench.require(Capabilities.HONOURS_CANCEL_CONTROL)
    planner, context = await bench.planner(), await bench.context()
    context.control = ControlSignals(cancelled=True)
    decision = await _ask(planner, context)
    is_cancelled = isinstance(decision, Finish) and decision.reason == FinishReason.CANCELLED
    expect(is_cancelled, f"a cancelled run got {decision!r}, not Finish(cancelled)")


async def one_instance_serves_many_runs(bench: Bench) -> None:
    """64 runs at once on one planner each get their own answer, and no task is left behind."""
    planner = await bench.planner()
    contexts = [await bench.context() for _ in range(_CONCURRENT_RUNS)]
    for number, context in enumerate(contexts):
        who = context.quadruple
        context.quadruple = Quadruple(who.tenant_id, who.user_id, who.session_id, f"{who.run_id}-{number}")
    before = asyncio.all_tasks()
    decisions = await together(*(_ask(planner, context) for context in contexts))
    for context, decision in zip(contexts, decisions, strict=True):
        _check_own(context, decision)
    for _ in range(_TURNS):
        await asyncio.sleep(0)
    left = sorted(task.get_name() for task in asyncio.all_tasks() - before)
    expect(not left, f"the planner left tasks running: {', '.join(left)}")


async def _ask(planner: Planner, context: RunContext) -> object:
    """Ask the planner, and return whatever it returned."""
    return await planner.next(context)


def _check_own(context: RunContext, decision: object) -> None:
    own = context.quadruple.run_id
    expect(decision is not None, f"run {own} got None")
    metadata = decision.metadata if isinstance(decision, Finish) else None
    named = (metadata or {}).get("run_id", own)
    expect(named == own, f"the finish of run {own} names run {named}")


def _check_bound(what: str, found: int, limit: int) -> None:
    expect(found <= limit, f"the pause's payload has {found} {what}, at most {limit} are allowed")


_CALLS = 64
_RESULT = b'{"answer":"done"}'


async def the_planner_is_woken(bench: Bench) -> None:
    """A planner that spawned a task continues when the task has ended, woken in the way that it declares."""
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
            await _wake_by_push(bench, registry, planner, run, spawn)
        case WakeMode.POLL:
            await _wake_by_poll(bench, registry, planner, run, spawn)
        case _ as unreachable:
            assert_never(unreachable)


async def _wake_by_push(
    bench: Bench, registry: TaskRegistry, planner: Planner, run: RunContext, spawn: SpawnTask
) -> None:
    expect(not spawn.spec.retain_turn, "a planner that is woken by push must not keep its turn (retain_turn)")
    task_id, group_id = await _apply_spawn(registry, run, spawn)
    watch = await registry.watch_group(run.quadruple.identity, group_id)
    await _complete_task(registry, run.quadruple, task_id)
    completion = await _await_completion(watch, bench.harness.patience_s)
    expect(len(completion.members) == 1, f"the group has {len(completion.members)} members, not one")
    assert run.trajectory is not None
    run.trajectory.background[group_id] = _to_background_result(completion)
    decision = await planner.next(run)
    expect(isinstance(decision, Finish), f"woken with the result, the planner returned {decision_kind(decision)}")


async def _wake_by_poll(
    bench: Bench, registry: TaskRegistry, planner: Planner, run: RunContext, spawn: SpawnTask
) -> None:
    expect(bool(spawn.group_id), "a planner that polls must name the group it will look at (group_id)")
    task_id, _ = await _apply_spawn(registry, run, spawn)
    waiting = await planner.next(run)
    if not isinstance(waiting, AwaitTask):
        raise PromiseBrokenError(f"while its task runs, the planner returned {decision_kind(waiting)}, not AwaitTask")
    expect(waiting.task_id != run.quadruple.run_id, "the planner awaits its own run, which would never end")
    expect(waiting.task_id == task_id, f"the planner awaits {waiting.task_id!r}, the spawned task is {task_id!r}")
    await _complete_task(registry, run.quadruple, task_id)
    decision = await _poll_until_decided(registry, planner, run, bench.harness.patience_s)
    check_decision(decision)


async def _await_completion(watch: GroupWatch, patience_s: float) -> GroupCompletion:
    """Return how the group ended, which must be successfully and in time."""
    try:
        async with asyncio.timeout(patience_s):
            completion = await watch.completion()
    except TimeoutError as error:
        raise PromiseBrokenError(f"the group still runs {patience_s} s after its task has ended") from error
    if completion is None or completion.final_status is not GroupStatus.COMPLETED:
        raise PromiseBrokenError(f"the group of the spawned task did not complete: {completion!r}")
    return completion


async def _poll_until_decided(registry: TaskRegistry, planner: Planner, run: RunContext, patience_s: float) -> Decision:
    """Return the first decision that is no AwaitTask; what the planner awaits is awaited, as the runtime does."""
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


async def _apply_spawn(registry: TaskRegistry, run: RunContext, spawn: SpawnTask) -> tuple[TaskID, str]:
    """Apply the spawn as the runtime does, and record it in the history; there must be one task afterwards."""
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


async def _complete_task(registry: TaskRegistry, who: Quadruple, task_id: TaskID) -> None:
    await registry.mark_running(task_id, who=who)
    await registry.mark_complete(task_id, _RESULT, who=who)


def _to_background_result(completion: GroupCompletion) -> BackgroundResult:
    return BackgroundResult(
        group_id=completion.group_id,
        status=str(completion.final_status),
        resolved_at=completion.resolved_at,
        members=tuple(
            BackgroundMemberOutcome(task_id=member.task_id, status=str(member.status)) for member in completion.members
        ),
    )


MAX_PAYLOAD_DEPTH: Final = 6
"""Levels of dicts and lists in a pause's payload; the payload itself is the first."""
MAX_PAYLOAD_KEYS: Final = 64
"""Keys of a pause's payload, those of nested dicts included."""
MAX_PAYLOAD_BYTES: Final = 16 * 1024
"""Bytes of the JSON of a pause's payload."""

_GUARD: Final = 32


def payload_depth(value: Any, *, guard: int = _GUARD) -> int:
    """The levels of dicts and lists: 0 for a scalar, 1 for an empty dict. Counts to `guard`, so that a cycle ends."""
    if not isinstance(value, (dict, list, tuple)) or guard <= 0:
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max((payload_depth(item, guard=guard - 1) for item in inner), default=0)


def payload_keys(value: Any, *, guard: int = _GUARD) -> int:
    """The keys of all dicts, down to `guard` levels."""
    if guard <= 0:
        return 0
    if isinstance(value, dict):
        return len(value) + sum(payload_keys(item, guard=guard - 1) for item in value.values())
    if isinstance(value, (list, tuple)):
        return sum(payload_keys(item, guard=guard - 1) for item in value)
    return 0


class Scenario(StrEnum):
    """The names of the scenarios, in the order they run."""

    SANITY = "Sanity_NextReturnsDecision"
    WAKE_MODE = "WakeMode_Declared"
    SEALED = "Sealed_DecisionSum"
    TOP_PROMPTS = "TopPrompts_LLMRoundTrip"
    MALFORMED = "MalformedLLM_Salvage"
    PARALLEL = "ParallelCall_Atomicity"
    WAKE_ROUND_TRIP = "WakeMode_RoundTrip"
    BUDGET = "BudgetAware_FinishDeadlineExceeded"
    PAUSE_PAYLOAD = "PausePayload_BoundsRespected"
    STEERING = "Steering_DrainBetweenSteps"
    CONCURRENT_REUSE = "ConcurrentReuse"


_Promise: TypeAlias = Callable[[Bench], Awaitable[None]]

_PROMISES: Final[Mapping[Scenario, _Promise]] = {
    Scenario.SANITY: next_returns_a_decision,
    Scenario.WAKE_MODE: the_wake_mode_is_declared,
    Scenario.SEALED: the_decision_is_one_of_six,
    Scenario.TOP_PROMPTS: canned_answers_become_decisions,
    Scenario.MALFORMED: garbage_is_survived,
    Scenario.PARALLEL: parallel_calls_are_whole,
    Scenario.WAKE_ROUND_TRIP: the_planner_is_woken,
    Scenario.BUDGET: an_overdue_run_gets_an_answer,
    Scenario.PAUSE_PAYLOAD: pause_payloads_keep_their_bounds,
    Scenario.STEERING: cancelled_runs_finish_as_cancelled,
    Scenario.CONCURRENT_REUSE: one_instance_serves_many_runs,
}


async def run_conformance(harness: Harness) -> ConformanceReport:
    """The outcome of every scenario for this planner, each passed, or skipped for a reason that is stated.

    Raises:
        ConformanceFailedError: scenarios failed; it names every one of them.
    """
    report = ConformanceReport({str(scenario): await run_scenario(scenario, harness) for scenario in Scenario})
    errors = [outcome.error for outcome in report.outcomes.values() if isinstance(outcome, Failed)]
    if errors:
        raise ConformanceFailedError(report) from ExceptionGroup("broken promises", errors)
    return report


async def run_scenario(scenario: Scenario | str, harness: Harness) -> Outcome:
    """The outcome of one scenario. Never: raises for what the planner does; that is an outcome."""
    promise = _PROMISES[Scenario(scenario)]
    limit = asyncio.timeout(harness.limit_s)
    try:
        async with limit, Bench(harness) as bench:
            await promise(bench)
    except ScenarioSkipped as skipped:
        return Skipped(skipped.reason)
    except Exception as error:  # noqa: BLE001 - it is the outcome
        if limit.expired():
            return Failed(f"not over after {harness.limit_s} s", error)
        return Failed(f"{type(error).__name__}: {str(error) or 'no message'}", error)
    return Passed()
