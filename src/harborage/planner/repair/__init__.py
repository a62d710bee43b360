"""Repair of a model's output that cannot be used: read it leniently, ask again within limits, then finish the run.

`RepairLoop` serves models that write actions as JSON text; its parser and its limits also serve
planners that call tools natively. Nothing here keeps state between steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.exports import lazy_exports

if TYPE_CHECKING:
    from harborage.planner.repair.attempts import (
        DEFAULT_MAX_CONSECUTIVE_ARG_FAILURES as DEFAULT_MAX_CONSECUTIVE_ARG_FAILURES,
    )
    from harborage.planner.repair.attempts import DEFAULT_REPAIR_ATTEMPTS as DEFAULT_REPAIR_ATTEMPTS
    from harborage.planner.repair.attempts import Attempts as Attempts
    from harborage.planner.repair.attempts import Mistake as Mistake
    from harborage.planner.repair.attempts import RepairLimits as RepairLimits
    from harborage.planner.repair.attempts import RepairSignals as RepairSignals
    from harborage.planner.repair.attempts import add_correction as add_correction
    from harborage.planner.repair.attempts import call_model as call_model
    from harborage.planner.repair.declarative import NoActionsFoundError as NoActionsFoundError
    from harborage.planner.repair.declarative import ToolAction as ToolAction
    from harborage.planner.repair.declarative import dropped_extra_fields as dropped_extra_fields
    from harborage.planner.repair.declarative import parse as parse
    from harborage.planner.repair.loop import ActionValidator as ActionValidator
    from harborage.planner.repair.loop import RepairLoop as RepairLoop
    from harborage.planner.repair.loop import RunResult as RunResult
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "harborage.planner.repair.attempts": (
                "DEFAULT_MAX_CONSECUTIVE_ARG_FAILURES DEFAULT_REPAIR_ATTEMPTS Attempts Mistake RepairLimits "
                "RepairSignals add_correction call_model"
            ),
            "harborage.planner.repair.loop": "ActionValidator RepairLoop RunResult",
            "harborage.planner.repair.declarative": "NoActionsFoundError ToolAction dropped_extra_fields parse",
        },
    )
