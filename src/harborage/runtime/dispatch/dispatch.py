"""A decision carried out over the durable seam: tools as steps, branches side by side, children by spawn and join.

Pure above `io`. A call that cannot be made, fails or is cut short becomes an observation that the planner can answer;
the run goes on. Only cancellation of the run itself passes through.
"""

from __future__ import annotations

from functools import partial
from typing import Any, assert_never

import msgspec

from harborage.planner import (
    AwaitTask,
    CallParallel,
    CallTool,
    JoinKind,
    JoinSpec,
    ParallelThresholdUnmetError,
    PlannerError,
    SpawnTask,
)
from harborage.runtime.dispatch.outcome import OutcomeStatus, ToolCallFailedError, ToolOutcome, failed, merged
from harborage.runtime.durable import Durable
from harborage.runtime.joins import merge, normalise_join, successes_needed
from harborage.runtime.parallel import BranchOutcome, Cancelled, Done, Failed
from harborage.runtime.steering.apply import Observed
from harborage.runtime.steering.arrivals import StepInterruptedError
from harborage.runtime.steering.state import RunState

__all__ = ["Acting", "Approval", "dispatch"]

Acting = CallTool | CallParallel | SpawnTask | AwaitTask
"""The decisions that are carried out; `Finish` and `RequestPause` are the loop's own."""


class Approval(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer to a gated call: the arguments it may be made with, or why it may not."""

    args: bytes = b""
    refusal: str = ""


async def dispatch(decision: Acting, run: RunState, io: Durable) -> Observed:
    """Carry `decision` out; returns the observation as it was and as the planner sees it."""
    match decision:
        case CallTool():
            outcome = await call_tool(decision, run, io)
            return outcome.observation, outcome.seen
        case CallParallel():
            return await _call_parallel(decision, run, io)
        case SpawnTask():
            return _both(await _spawn(decision, run, io))
        case AwaitTask():
            return _both(await _join(decision.task_id, io))
        case _ as unreachable:
            assert_never(unreachable)


async def call_tool(call: CallTool, run: RunState, io: Durable) -> ToolOutcome:
    """Make one call, after the approval it may need."""
    try:
        if call.tool in run.gated_tools:
            approval: Approval = await io.step(f"approve.{call.tool}", call)
            if approval.refusal:
                return failed(approval.refusal, OutcomeStatus.REJECTED)
            call = CallTool(call.tool, approval.args, call.call_id)
        outcome: ToolOutcome = await io.step(f"tool.{call.tool}", call)
    except StepInterruptedError as cut:
        return failed(f"cancelled: {cut.reason}", OutcomeStatus.CANCELLED)
    return outcome


async def _call_parallel(decision: CallParallel, run: RunState, io: Durable) -> Observed:
    try:
        join = normalise_join(decision.join, decision.branches)
    except PlannerError as error:
        return _both({"error": f"parallel dispatch: {error}"})
    if run.is_parallel_atomic:
        refusal: str = await io.step("parallel.check", decision)
        if refusal:
            return _both({"error": f"parallel dispatch: {refusal}"})
    branches = await io.gather([partial(_branch, call, run) for call in decision.branches], join)
    outcomes = [_settled(one) for one in branches]
    shortfall = _shortfall(join, outcomes)
    if shortfall is not None:
        return _both({"error": f"parallel dispatch: {shortfall}"})
    keyed = merge(join, branches, branches=decision.branches) if join.kind is JoinKind.KEYED else None
    return merged(decision.branches, outcomes, keyed)


def _shortfall(join: JoinSpec, outcomes: list[ToolOutcome]) -> ParallelThresholdUnmetError | None:
    needed = successes_needed(join)
    failures = {index: one.error for index, one in enumerate(outcomes) if one.status is not OutcomeStatus.DONE}
    succeeded = len(outcomes) - len(failures)
    return None if needed is None or succeeded >= needed else ParallelThresholdUnmetError(needed, succeeded, failures)


async def _branch(call: CallTool, run: RunState, io: Durable) -> ToolOutcome:
    outcome = await call_tool(call, run, io)
    if outcome.status is not OutcomeStatus.DONE:
        raise ToolCallFailedError(outcome)
    return outcome


def _settled(outcome: BranchOutcome[ToolOutcome]) -> ToolOutcome:
    match outcome:
        case Done(value):
            return value
        case Failed(ToolCallFailedError() as error):
            return error.outcome
        case Failed(error):
            return failed(f"{type(error).__name__}: {error}")
        case Cancelled():
            return failed("cancelled: the call was settled by its other branches", OutcomeStatus.CANCELLED)
        case _ as unreachable:
            assert_never(unreachable)


async def _spawn(decision: SpawnTask, run: RunState, io: Durable) -> Any:
    child_id = decision.idempotency_key or f"{run.who.run_id}/{run.steps}"
    handle = await io.spawn(child_id, decision)
    if decision.spec.retain_turn and "task_id" in handle:
        return await _join(handle["task_id"], io)
    return handle


async def _join(task_id: str, io: Durable) -> Any:
    try:
        return await io.join(task_id)
    except StepInterruptedError as cut:
        return {"error": f"cancelled: {cut.reason}"}


def _both(observation: Any) -> Observed:
    return observation, observation
