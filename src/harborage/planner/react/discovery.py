"""Tools that the run found by searching: read off the results of the search tool, each step once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harborage.planner.decisions import CallParallel, CallTool
from harborage.planner.react.memo import StepCursor, kept_with
from harborage.planner.react.names import TOOL_SEARCH_TOOL_NAME
from harborage.planner.react.observations import branch_values
from harborage.planner.react.rendering import as_object

if TYPE_CHECKING:
    from harborage.planner.context import RunContext
    from harborage.planner.trajectory import Step, Trajectory

__all__ = ["discovered_tools"]


def discovered_tools(run: RunContext) -> tuple[str, ...]:
    """The names the run was given, then those that its searches found, each once and oldest first."""
    if run.trajectory is None:
        return tuple(dict.fromkeys(run.discovered_tools))
    found = kept_with(run.trajectory, "react.discovery", Discovery).names(run.trajectory)
    return tuple(dict.fromkeys((*run.discovered_tools, *found)))


class Discovery:
    """The names that one trajectory's searches found."""

    __slots__ = ("_cursor", "_names")

    def __init__(self) -> None:
        self._cursor = StepCursor()
        self._names: dict[str, None] = {}

    def names(self, trajectory: Trajectory) -> dict[str, None]:
        """The names found so far; a result that cannot be read has none."""
        if not self._cursor.follows(trajectory.steps):
            self._cursor.restart(trajectory.steps)
            self._names = {}
        for index in range(self._cursor.count, len(trajectory.steps)):
            self._names.update(dict.fromkeys(_found_by(trajectory.steps[index])))
            self._cursor.advance()
        return self._names


def _found_by(step: Step) -> list[str]:
    match step.action:
        case CallTool(tool=tool) if tool == TOOL_SEARCH_TOOL_NAME:
            return _names_in(step.observation if step.llm_observation is None else step.llm_observation)
        case CallParallel(branches=branches) if any(call.tool == TOOL_SEARCH_TOOL_NAME for call in branches):
            values = zip(branches, branch_values(step, len(branches)), strict=True)
            return [name for call, value in values if call.tool == TOOL_SEARCH_TOOL_NAME for name in _names_in(value)]
        case _:
            return []


def _names_in(result: Any) -> list[str]:
    tools = (as_object(result) or {}).get("tools")
    return [name for name in map(_name, tools) if name] if isinstance(tools, list | tuple) else []


def _name(entry: Any) -> str:
    name = (as_object(entry) or {}).get("name")
    return name if isinstance(name, str) else ""
