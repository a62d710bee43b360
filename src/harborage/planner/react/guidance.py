"""The run's repair counters, and what the prompt says to a model that keeps making the same mistake.

Each step counts the mistakes that its model made; the next prompt points them out, more firmly each time and never at
greater length. The prompt builder decides whether to send the texts, and publishes their event.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec

from harborage.planner.decisions import CallParallel, CallTool, Decision, Finish, FinishReason
from harborage.planner.react.tools import DECLARATIVE_ACTION_TOOL_NAME
from harborage.planner.text import to_object
from harborage.planner.trajectory import INVALID_ARGS_CODE, Step

if TYPE_CHECKING:
    from harborage.planner.context import RepairCounters, RunContext
    from harborage.planner.repair import RepairSignals

REMINDER_FINISH_GUIDANCE: Final = (
    "reminder: end the run by writing the answer as plain text, in a turn without any tool call."
)
WARNING_FINISH_GUIDANCE: Final = (
    "warning: two attempts to end the run did not work. Call no tool; write only the answer, in plain prose."
)
CRITICAL_FINISH_GUIDANCE: Final = (
    "critical: the run still has no usable ending. Your next turn is the answer itself, in plain prose, and no call."
)

REMINDER_ARGS_GUIDANCE: Final = (
    "reminder: the last call's arguments did not fit the tool's schema. Check names and types before you call."
)
WARNING_ARGS_GUIDANCE: Final = (
    "warning: arguments failed twice. Read the tool's schema again; send every required field, and no other name."
)
CRITICAL_ARGS_GUIDANCE: Final = (
    "critical: arguments keep failing. Copy the field names from the schema, or answer without that tool."
)

REMINDER_MULTI_ACTION_GUIDANCE: Final = (
    "reminder: one well-formed action a turn. A sub-task control, or an action written as JSON, stands alone."
)
WARNING_MULTI_ACTION_GUIDANCE: Final = (
    "warning: two turns mixed actions that cannot go together. Make one call now; only plain tools may share a turn."
)
CRITICAL_MULTI_ACTION_GUIDANCE: Final = (
    "critical: turns keep mixing actions. Make exactly one well-formed call in your next turn, and nothing else."
)


class RepairTier(StrEnum):
    """How firmly a mistake is pointed out: not at all, then for one, two, and three or more in a row."""

    NONE = ""
    REMINDER = "reminder"
    WARNING = "warning"
    CRITICAL = "critical"


class GuidanceLine(msgspec.Struct, frozen=True):
    """One line of guidance: its counter, the count, and the text for the model."""

    tier: RepairTier
    counter: str
    count: int
    text: str


_FINISH: Final = {
    RepairTier.REMINDER: REMINDER_FINISH_GUIDANCE,
    RepairTier.WARNING: WARNING_FINISH_GUIDANCE,
    RepairTier.CRITICAL: CRITICAL_FINISH_GUIDANCE,
}
_ARGS: Final = {
    RepairTier.REMINDER: REMINDER_ARGS_GUIDANCE,
    RepairTier.WARNING: WARNING_ARGS_GUIDANCE,
    RepairTier.CRITICAL: CRITICAL_ARGS_GUIDANCE,
}
_MULTI_ACTION: Final = {
    RepairTier.REMINDER: REMINDER_MULTI_ACTION_GUIDANCE,
    RepairTier.WARNING: WARNING_MULTI_ACTION_GUIDANCE,
    RepairTier.CRITICAL: CRITICAL_MULTI_ACTION_GUIDANCE,
}


def repair_tier(count: int) -> RepairTier:
    """Return the tier for a counter's value."""
    match count:
        case 1:
            return RepairTier.REMINDER
        case 2:
            return RepairTier.WARNING
        case _ if count >= 3:
            return RepairTier.CRITICAL
        case _:
            return RepairTier.NONE


def select_guidance(counters: RepairCounters | None) -> list[GuidanceLine]:
    """Return the lines for the counters in a fixed order; the counters are not changed."""
    return [] if counters is None else list(_lines(counters))


def _lines(counters: RepairCounters) -> Iterator[GuidanceLine]:
    for name, count, texts in (
        ("finish", counters.finish_repair, _FINISH),
        ("args", counters.args_repair, _ARGS),
        ("multi_action", counters.multi_action, _MULTI_ACTION),
    ):
        if count > 0:
            tier = repair_tier(count)
            yield GuidanceLine(tier, name, count, texts[tier])


def update_counters(counters: RepairCounters | None, decision: Decision, repaired: RepairSignals) -> None:
    """Count what this step had to repair, and reset the counters of what it did not have to repair."""
    if counters is None:
        return
    counters.args_repair = counters.args_repair + 1 if repaired.args_repaired else 0
    counters.multi_action = counters.multi_action + 1 if repaired.multi_action else 0
    reason = decision.reason if isinstance(decision, Finish) else None
    if reason is FinishReason.GOAL:
        counters.finish_repair = 0
    elif reason is FinishReason.NO_PATH or repaired.finish_repaired:
        counters.finish_repair += 1


def count_declarative_outcome(run: RunContext) -> bool:
    """Count the mistakes that the last step's declarative action reports, and return whether there were any.

    Only the last step counts, and only if it is a lone call of that tool. Never: fails.
    """
    counters = run.repair_counters
    if counters is None or run.trajectory is None or not run.trajectory.steps:
        return False
    step = run.trajectory.steps[-1]
    if not isinstance(step.action, CallTool) or step.action.tool != DECLARATIVE_ACTION_TOOL_NAME:
        return False
    seen = to_object(step.llm_observation)
    if seen is None:
        seen = to_object(step.observation) or {}
    outcome = to_object(seen.get("repair_outcome"))
    return False if outcome is None else _count_mistakes(counters, outcome)


def count_refused_args(run: RunContext) -> bool:
    """Count a last step whose arguments were refused, and return whether they were; a step that fits resets this."""
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


def is_tool_call(decision: Decision) -> bool:
    """Whether the decision calls tools, so that it may be another attempt of a refused call."""
    return isinstance(decision, CallTool | CallParallel)


def is_declarative_action(decision: Decision) -> bool:
    """Whether the decision calls the declarative action, alone or in a branch."""
    match decision:
        case CallTool(tool=tool):
            return tool == DECLARATIVE_ACTION_TOOL_NAME
        case CallParallel(branches=branches):
            return any(branch.tool == DECLARATIVE_ACTION_TOOL_NAME for branch in branches)
        case _:
            return False


def _count_mistakes(counters: RepairCounters, outcome: dict[str, object]) -> bool:
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
