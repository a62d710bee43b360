"""The reference planner that asks a model: `ReActPlanner(client)`, and the prompt it uses.

It stands on the same seam as every other planner and imports nothing that one from outside could not. Files, in the
order of a step: `planner` (the step), `prompt` with `sections`, `blocks`, `replay` and `toolbox` (the request),
`projection` (the answer), `feedback` and `guidance` (what the next prompt says about it), `memo` (where the parts of
the prompt that stay the same are kept).
"""

from __future__ import annotations

from harborage.planner.react.guidance import (
    CRITICAL_ARGS_GUIDANCE,
    CRITICAL_FINISH_GUIDANCE,
    CRITICAL_MULTI_ACTION_GUIDANCE,
    REMINDER_ARGS_GUIDANCE,
    REMINDER_FINISH_GUIDANCE,
    REMINDER_MULTI_ACTION_GUIDANCE,
    WARNING_ARGS_GUIDANCE,
    WARNING_FINISH_GUIDANCE,
    WARNING_MULTI_ACTION_GUIDANCE,
    RepairTier,
    repair_tier,
)
from harborage.planner.react.names import (
    AWAIT_TASK_TOOL_NAME,
    DECLARATIVE_ACTION_TOOL_NAME,
    DEFAULT_MAX_STEPS,
    DEFAULT_MAX_TOOL_EXAMPLES,
    DEFAULT_SYSTEM_PROMPT,
    DRIVER_NAME,
    FINISH_TOOL_NAME,
    MANIFEST_ROWS,
    SPAWN_TASK_TOOL_NAME,
    TOOL_SEARCH_TOOL_NAME,
)
from harborage.planner.react.planner import ReActPlanner, make
from harborage.planner.react.projection import Projected, UnusableCallError, project
from harborage.planner.react.prompt import DefaultPromptBuilder, PromptBuilder

__all__ = [
    "AWAIT_TASK_TOOL_NAME",
    "CRITICAL_ARGS_GUIDANCE",
    "CRITICAL_FINISH_GUIDANCE",
    "CRITICAL_MULTI_ACTION_GUIDANCE",
    "DECLARATIVE_ACTION_TOOL_NAME",
    "DEFAULT_MAX_STEPS",
    "DEFAULT_MAX_TOOL_EXAMPLES",
    "DEFAULT_SYSTEM_PROMPT",
    "DRIVER_NAME",
    "FINISH_TOOL_NAME",
    "MANIFEST_ROWS",
    "REMINDER_ARGS_GUIDANCE",
    "REMINDER_FINISH_GUIDANCE",
    "REMINDER_MULTI_ACTION_GUIDANCE",
    "SPAWN_TASK_TOOL_NAME",
    "TOOL_SEARCH_TOOL_NAME",
    "WARNING_ARGS_GUIDANCE",
    "WARNING_FINISH_GUIDANCE",
    "WARNING_MULTI_ACTION_GUIDANCE",
    "DefaultPromptBuilder",
    "Projected",
    "PromptBuilder",
    "ReActPlanner",
    "RepairTier",
    "UnusableCallError",
    "make",
    "project",
    "repair_tier",
]
