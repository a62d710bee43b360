"""What a prompt says to a model that keeps making the same mistake: firmer with each time, never longer.

Texts and a pure choice among them. Whether they are sent, and that this is announced, is the prompt builder's business.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from harborage.planner.context import RepairCounters

__all__ = [
    "CRITICAL_ARGS_GUIDANCE",
    "CRITICAL_FINISH_GUIDANCE",
    "CRITICAL_MULTI_ACTION_GUIDANCE",
    "REMINDER_ARGS_GUIDANCE",
    "REMINDER_FINISH_GUIDANCE",
    "REMINDER_MULTI_ACTION_GUIDANCE",
    "WARNING_ARGS_GUIDANCE",
    "WARNING_FINISH_GUIDANCE",
    "WARNING_MULTI_ACTION_GUIDANCE",
    "GuidanceLine",
    "RepairTier",
    "guidance_lines",
    "repair_tier",
]

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
    """How firmly a mistake is pointed out: not at all, then by one, two, and three or more in a row."""

    NONE = ""
    REMINDER = "reminder"
    WARNING = "warning"
    CRITICAL = "critical"


class GuidanceLine(msgspec.Struct, frozen=True):
    """One line of guidance: which counter asked for it, how high that stands, and what is said."""

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
    """The tier for a counter that stands at `count`."""
    match count:
        case 1:
            return RepairTier.REMINDER
        case 2:
            return RepairTier.WARNING
        case _ if count >= 3:
            return RepairTier.CRITICAL
        case _:
            return RepairTier.NONE


def guidance_lines(counters: RepairCounters | None) -> list[GuidanceLine]:
    """The lines that the counters ask for, in a fixed order; they are read and never changed."""
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
