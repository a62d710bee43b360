"""What happens when a model's output cannot be used: read it leniently, ask again within bounds, then give up well.

`RepairLoop` is the whole ladder for models that write actions as JSON text; its parser and its bounds also serve
planners that call tools natively. Nothing here keeps state between steps.
"""

from __future__ import annotations

from harborage.planner.repair.asking import ask
from harborage.planner.repair.limits import (
    DEFAULT_MAX_CONSECUTIVE_ARG_FAILURES,
    DEFAULT_REPAIR_ATTEMPTS,
    RepairLimits,
)
from harborage.planner.repair.loop import ActionValidator, RepairLoop, RunResult
from harborage.planner.repair.parser import NoActionsFoundError, ToolAction, dropped_extra_fields, parse
from harborage.planner.repair.slips import RepairSignals, Slip, Slips, corrected

__all__ = [
    "DEFAULT_MAX_CONSECUTIVE_ARG_FAILURES",
    "DEFAULT_REPAIR_ATTEMPTS",
    "ActionValidator",
    "NoActionsFoundError",
    "RepairLimits",
    "RepairLoop",
    "RepairSignals",
    "RunResult",
    "Slip",
    "Slips",
    "ToolAction",
    "ask",
    "corrected",
    "dropped_extra_fields",
    "parse",
]
