"""How one step's slips change what the next step's prompt says: the repair counters of the run, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.planner.decisions import CallParallel, CallTool, Decision, Finish
from harborage.planner.enums import FinishReason
from harborage.planner.react.names import DECLARATIVE_ACTION_TOOL_NAME
from harborage.planner.react.rendering import as_object
from harborage.planner.trajectory import INVALID_ARGS_CODE, Step

if TYPE_CHECKING:
    from harborage.planner.context import RepairCounters, RunContext
    from harborage.planner.repair import RepairSignals

__all__ = [
    "apply_declarative_outcome",
    "apply_refused_args",
    "dispatches_declarative_action",
    "tries_again",
    "update_counters",
]


def update_counters(counters: RepairCounters | None, decision: Decision, repaired: RepairSignals) -> None:
    """Count what this step had to repair; what it did not have to repair starts from zero again."""
    if counters is None:
        return
    counters.args_repair = counters.args_repair + 1 if repaired.args_repaired else 0
    counters.multi_action = counters.multi_action + 1 if repaired.multi_action else 0
    reason = decision.reason if isinstance(decision, Finish) else None
    if reason is FinishReason.GOAL:
        counters.finish_repair = 0
    elif reason is FinishReason.NO_PATH or repaired.finish_repaired:
        counters.finish_repair += 1


def apply_declarative_outcome(run: RunContext) -> bool:
    """Count what the last step's declarative action reports to have been wrong; whether there was anything.

    Only the last step is looked at, and only if it is a lone call of that tool. Never: fails.
    """
    counters = run.repair_counters
    if counters is None or run.trajectory is None or not run.trajectory.steps:
        return False
    step = run.trajectory.steps[-1]
    if not isinstance(step.action, CallTool) or step.action.tool != DECLARATIVE_ACTION_TOOL_NAME:
        return False
    seen = as_object(step.llm_observation)
    if seen is None:
        seen = as_object(step.observation) or {}
    outcome = as_object(seen.get("repair_outcome"))
    return False if outcome is None else _count(counters, outcome)


def apply_refused_args(run: RunContext) -> bool:
    """Count a last step whose call was refused for its arguments; whether it was. One that fits settles the count."""
    counters = run.repair_counters
    if counters is None or run.trajectory is None:
        return False
    steps = run.trajectory.steps
    if steps and _has_refused_args(steps[-1]):
        counters.args_repair += 1
        return True
    if len(steps) > 1 and _has_refused_args(steps[-2]):
        counters.args_repair = 0
    return False


def _has_refused_args(step: Step) -> bool:
    return step.failure is not None and step.failure.code == INVALID_ARGS_CODE


def tries_again(decision: Decision) -> bool:
    """Whether the decision calls tools, so that what was wrong with the last call is not settled yet."""
    return isinstance(decision, CallTool | CallParallel)


def dispatches_declarative_action(decision: Decision) -> bool:
    """Whether the decision calls the declarative action, alone or in any branch."""
    match decision:
        case CallTool(tool=tool):
            return tool == DECLARATIVE_ACTION_TOOL_NAME
        case CallParallel(branches=branches):
            return any(branch.tool == DECLARATIVE_ACTION_TOOL_NAME for branch in branches)
        case _:
            return False


def _count(counters: RepairCounters, outcome: dict[str, object]) -> bool:
    is_counted = False
    for reported, counter in (
        ("args_repaired", "args_repair"),
        ("multi_action", "multi_action"),
        ("finish_repair", "finish_repair"),
    ):
        if outcome.get(reported) is True:
            setattr(counters, counter, getattr(counters, counter) + 1)
            is_counted = True
    return is_counted
