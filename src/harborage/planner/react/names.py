"""The words and numbers of the ReAct planner that others refer to."""

from __future__ import annotations

from typing import Final

__all__ = [
    "ARTIFACT_FETCH_TOOL_NAME",
    "AWAIT_TASK_TOOL_NAME",
    "DECLARATIVE_ACTION_TOOL_NAME",
    "DEFAULT_MAX_STEPS",
    "DEFAULT_MAX_TOOL_EXAMPLES",
    "DEFAULT_SYSTEM_PROMPT",
    "DRIVER_NAME",
    "FINISH_TOOL_NAME",
    "MANIFEST_ROWS",
    "RESERVED_TOOL_NAMES",
    "SPAWN_TASK_TOOL_NAME",
    "TOOL_SEARCH_TOOL_NAME",
]

DRIVER_NAME: Final = "react"
"""The planner's name in configuration."""

DEFAULT_MAX_STEPS: Final = 12
"""Steps in a history from which on the planner ends the run, unless told otherwise."""

DEFAULT_SYSTEM_PROMPT: Final = "harbor.react.default-system-prompt"
"""Stands for the built-in system prompt; never sent to a model."""

DEFAULT_MAX_TOOL_EXAMPLES: Final = 3
"""Examples a tool may show, unless told otherwise."""

FINISH_TOOL_NAME: Final = "_finish"
"""Never offered to a model, which ends by answering; understood when it calls it all the same."""

SPAWN_TASK_TOOL_NAME: Final = "_spawn_task"
"""What a model calls to start a sub-task."""

AWAIT_TASK_TOOL_NAME: Final = "_await_task"
"""What a model calls to wait for a sub-task."""

RESERVED_TOOL_NAMES: Final = frozenset({FINISH_TOOL_NAME, SPAWN_TASK_TOOL_NAME, AWAIT_TASK_TOOL_NAME})
"""Names that mean a decision; no call of them ever reaches a tool."""

DECLARATIVE_ACTION_TOOL_NAME: Final = "declarative_action"
"""The tool that carries out an action written as JSON, and says in its result what was wrong with it."""

TOOL_SEARCH_TOOL_NAME: Final = "tool_search"
"""The tool whose results make further tools known to the run."""

ARTIFACT_FETCH_TOOL_NAME: Final = "artifact_fetch"
"""The tool that reads what is kept outside the conversation."""

MANIFEST_ROWS: Final = 20
"""Rows of a session's artifacts that a prompt shows."""
