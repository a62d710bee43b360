"""The tools of a step, twice: as native declarations for the provider, and as the short list in the prompt.

Both are made once and used again as long as the run sees the same tools.
"""

from __future__ import annotations

from operator import is_
from typing import Any, Final

from harborage.llm import ToolDeclaration
from harborage.planner.context import RunContext
from harborage.planner.react.memo import kept_with
from harborage.planner.react.names import AWAIT_TASK_TOOL_NAME, RESERVED_TOOL_NAMES, SPAWN_TASK_TOOL_NAME
from harborage.planner.react.rendering import one_line
from harborage.planner.views import ToolCatalogView
from harborage.tools import Tool

__all__ = ["NO_TOOLS", "declared_tools", "listed_tools"]

NO_TOOLS: Final = "(no tools are registered)"

_TEXT: Final[dict[str, Any]] = {"type": "string"}
_FLAG: Final[dict[str, Any]] = {"type": "boolean"}
# Providers refuse a schema that is not one of an object.
_NO_ARGS: Final[dict[str, Any]] = {"type": "object", "properties": {}}

_CONTROLS: Final = (
    ToolDeclaration(
        SPAWN_TASK_TOOL_NAME,
        "Planner control, not a data tool: start a sub-task that works on its own. Call it alone in a turn. "
        "The result is the sub-task's id; what it achieved comes later.",
        {
            "type": "object",
            "additionalProperties": False,
            "required": ["spec"],
            "properties": {
                "kind": {"type": "string", "enum": ["foreground", "background"]},
                "group_id": {**_TEXT, "description": "Group to join; leave it out for a group of its own."},
                "spec": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "description": {**_TEXT, "description": "What the sub-task is, in a few words."},
                        "query": {**_TEXT, "description": "What it shall do, complete in itself."},
                        "priority": {"type": "integer", "minimum": -1000, "maximum": 1000},
                        "retain_turn": {**_FLAG, "description": "Wait for its end before the next turn."},
                        "fail_fast": {**_FLAG, "description": "Cancel the rest of its group when it fails."},
                    },
                },
            },
        },
    ),
    ToolDeclaration(
        AWAIT_TASK_TOOL_NAME,
        "Planner control, not a data tool: wait for a sub-task to end and get its result. Call it alone in a turn.",
        {
            "type": "object",
            "additionalProperties": False,
            "required": ["task_id"],
            "properties": {"task_id": {**_TEXT, "description": "The id that starting the sub-task returned."}},
        },
    ),
)


def declared_tools(run: RunContext) -> tuple[ToolDeclaration, ...]:
    """The native declarations: the sub-task controls, the visible tools, then those that were discovered.

    Without a catalog there are none at all.
    """
    return () if run.catalog is None else _toolbox(run).declared()


def listed_tools(run: RunContext) -> str:
    """One entry a tool, by name and description; schemas are in the declarations."""
    return NO_TOOLS if run.catalog is None else _toolbox(run).listed()


def _toolbox(run: RunContext) -> _Toolbox:
    assert run.catalog is not None
    toolbox = kept_with(run.trajectory, "react.toolbox", _Toolbox)
    toolbox.refresh(_tools(run.catalog, run))
    return toolbox


def _tools(catalog: ToolCatalogView, run: RunContext) -> list[Tool]:
    """Every tool with a name, once: those that are visible, then those that were discovered."""
    tools = catalog.list()
    found = [catalog.resolve(name) for name in run.discovered_tools]
    return [*tools, *(tool for tool in found if tool is not None)]


class _Toolbox:
    """The tools that one run saw last, and what was made of them."""

    __slots__ = ("_declared", "_listed", "_seen", "_tools")

    def __init__(self) -> None:
        self._seen: list[Tool] = []
        self._tools: list[Tool] = []
        self._declared: tuple[ToolDeclaration, ...] | None = None
        self._listed: str | None = None

    def refresh(self, tools: list[Tool]) -> None:
        """Start anew when these are other tools than before."""
        # A tool is frozen, so the same object is the same tool.
        if len(tools) == len(self._seen) and all(map(is_, tools, self._seen)):
            return
        self._seen = tools
        by_name: dict[str, Tool] = {}
        for tool in tools:
            # A tool of a reserved name could never be called: its name means a decision.
            if tool.name and tool.name not in RESERVED_TOOL_NAMES:
                by_name.setdefault(tool.name, tool)
        self._tools = list(by_name.values())
        self._declared = self._listed = None

    def declared(self) -> tuple[ToolDeclaration, ...]:
        if self._declared is None:
            tools = (ToolDeclaration(tool.name, tool.description, tool.args_schema or _NO_ARGS) for tool in self._tools)
            self._declared = (*_CONTROLS, *tools)
        return self._declared

    def listed(self) -> str:
        if self._listed is None:
            self._listed = "\n\n".join(_entry(tool) for tool in self._tools) or NO_TOOLS
        return self._listed


def _entry(tool: Tool) -> str:
    description = one_line(tool.description)
    return f"- {tool.name}: {description}" if description else f"- {tool.name}"
