"""The reference planner that asks a model: `ReActPlanner(client)`, and the prompt it uses.

It uses the same seam as every other planner and imports nothing that a third-party planner could not. Files, in the
order of a step: `planner` (the step), `prompt` with `blocks`, `transcript` and `tools` (the request),
`projection` (the answer), `guidance` (what the next prompt says about mistakes).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.exports import lazy_exports

if TYPE_CHECKING:
    from harborage.planner.react.blocks import MANIFEST_ROWS as MANIFEST_ROWS
    from harborage.planner.react.guidance import CRITICAL_ARGS_GUIDANCE as CRITICAL_ARGS_GUIDANCE
    from harborage.planner.react.guidance import CRITICAL_FINISH_GUIDANCE as CRITICAL_FINISH_GUIDANCE
    from harborage.planner.react.guidance import CRITICAL_MULTI_ACTION_GUIDANCE as CRITICAL_MULTI_ACTION_GUIDANCE
    from harborage.planner.react.guidance import REMINDER_ARGS_GUIDANCE as REMINDER_ARGS_GUIDANCE
    from harborage.planner.react.guidance import REMINDER_FINISH_GUIDANCE as REMINDER_FINISH_GUIDANCE
    from harborage.planner.react.guidance import REMINDER_MULTI_ACTION_GUIDANCE as REMINDER_MULTI_ACTION_GUIDANCE
    from harborage.planner.react.guidance import WARNING_ARGS_GUIDANCE as WARNING_ARGS_GUIDANCE
    from harborage.planner.react.guidance import WARNING_FINISH_GUIDANCE as WARNING_FINISH_GUIDANCE
    from harborage.planner.react.guidance import WARNING_MULTI_ACTION_GUIDANCE as WARNING_MULTI_ACTION_GUIDANCE
    from harborage.planner.react.guidance import RepairTier as RepairTier
    from harborage.planner.react.guidance import repair_tier as repair_tier
    from harborage.planner.react.planner import DEFAULT_MAX_STEPS as DEFAULT_MAX_STEPS
    from harborage.planner.react.planner import DRIVER_NAME as DRIVER_NAME
    from harborage.planner.react.planner import ReActPlanner as ReActPlanner
    from harborage.planner.react.planner import make as make
    from harborage.planner.react.projection import Projected as Projected
    from harborage.planner.react.projection import UnusableCallError as UnusableCallError
    from harborage.planner.react.projection import project as project
    from harborage.planner.react.prompt import DEFAULT_SYSTEM_PROMPT as DEFAULT_SYSTEM_PROMPT
    from harborage.planner.react.prompt import DefaultPromptBuilder as DefaultPromptBuilder
    from harborage.planner.react.prompt import PromptBuilder as PromptBuilder
    from harborage.planner.react.tools import AWAIT_TASK_TOOL_NAME as AWAIT_TASK_TOOL_NAME
    from harborage.planner.react.tools import DECLARATIVE_ACTION_TOOL_NAME as DECLARATIVE_ACTION_TOOL_NAME
    from harborage.planner.react.tools import DEFAULT_MAX_TOOL_EXAMPLES as DEFAULT_MAX_TOOL_EXAMPLES
    from harborage.planner.react.tools import FINISH_TOOL_NAME as FINISH_TOOL_NAME
    from harborage.planner.react.tools import SPAWN_TASK_TOOL_NAME as SPAWN_TASK_TOOL_NAME
    from harborage.planner.react.tools import TOOL_SEARCH_TOOL_NAME as TOOL_SEARCH_TOOL_NAME
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "harborage.planner.react.blocks": "MANIFEST_ROWS",
            "harborage.planner.react.guidance": (
                "CRITICAL_ARGS_GUIDANCE CRITICAL_FINISH_GUIDANCE CRITICAL_MULTI_ACTION_GUIDANCE "
                "REMINDER_ARGS_GUIDANCE REMINDER_FINISH_GUIDANCE REMINDER_MULTI_ACTION_GUIDANCE WARNING_ARGS_GUIDANCE "
                "WARNING_FINISH_GUIDANCE WARNING_MULTI_ACTION_GUIDANCE RepairTier repair_tier"
            ),
            "harborage.planner.react.planner": "DEFAULT_MAX_STEPS DRIVER_NAME ReActPlanner make",
            "harborage.planner.react.projection": "Projected UnusableCallError project",
            "harborage.planner.react.prompt": "DEFAULT_SYSTEM_PROMPT DefaultPromptBuilder PromptBuilder",
            "harborage.planner.react.tools": (
                "AWAIT_TASK_TOOL_NAME DECLARATIVE_ACTION_TOOL_NAME DEFAULT_MAX_TOOL_EXAMPLES FINISH_TOOL_NAME "
                "SPAWN_TASK_TOOL_NAME TOOL_SEARCH_TOOL_NAME"
            ),
        },
    )
