"""The tools of a step: their reserved names, their declarations for the provider, and the short list in the prompt.

Declarations and list are made once and used again as long as the run sees the same tools. Tools that the run found by
searching are read off the results of the search tool, each step once.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import TYPE_CHECKING, Any, Final

from harborage.llm import ToolDeclaration
from harborage.planner.decisions import CallParallel, CallTool, parallel_observation
from harborage.planner.text import one_line, render_value, to_object
from harborage.planner.trajectory import StepCursor, memoize_on

if TYPE_CHECKING:
    from harborage.planner.context import RunContext
    from harborage.planner.trajectory import Step, Trajectory
    from harborage.planner.views import ToolCatalogView
    from harborage.tools import Tool, ToolExample

FINISH_TOOL_NAME: Final = "_finish"
"""Never declared to a model, which ends a run by answering; understood when it calls it all the same."""

SPAWN_TASK_TOOL_NAME: Final = "_spawn_task"
"""The tool that starts a sub-task."""

AWAIT_TASK_TOOL_NAME: Final = "_await_task"
"""The tool that waits for a sub-task."""

RESERVED_TOOL_NAMES: Final = frozenset({FINISH_TOOL_NAME, SPAWN_TASK_TOOL_NAME, AWAIT_TASK_TOOL_NAME})
"""Names that mean a decision; no call of them ever reaches a tool."""

DECLARATIVE_ACTION_TOOL_NAME: Final = "declarative_action"
"""The tool that runs an action written as JSON; its result says what was wrong with the action."""

TOOL_SEARCH_TOOL_NAME: Final = "tool_search"
"""The tool whose results make further tools known to the run."""

ARTIFACT_FETCH_TOOL_NAME: Final = "artifact_fetch"
"""The tool that reads results and files that are stored as artifacts."""

DEFAULT_MAX_TOOL_EXAMPLES: Final = 3
"""Examples that a tool shows, by default."""

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
                "group_id": {
                    **_TEXT,
                    "description": "Name of a group that sub-tasks share; a new name opens it. Leave it out for none.",
                },
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
        "Planner control, not a data tool: wait for a sub-task, or all of a group, to end and get the results. "
        "Call it alone in a turn.",
        {
            "type": "object",
            "additionalProperties": False,
            "required": ["task_id"],
            "properties": {
                "task_id": {
                    **_TEXT,
                    "description": "The id that starting the sub-task returned, or the name of its group.",
                }
            },
        },
    ),
)


def declare_tools(run: RunContext) -> tuple[ToolDeclaration, ...]:
    """Return the native declarations: the sub-task controls, the visible tools, then the discovered ones.

    Without a catalog there are none.
    """
    return () if run.catalog is None else get_toolbox(run).declared()


def get_tool_names(run: RunContext) -> frozenset[str]:
    """Return the names of the tools that this step may call, discovered ones included."""
    return get_toolbox(run).names


def get_toolbox(run: RunContext) -> Toolbox:
    """Return the tools of this step; none without a catalog."""
    if run.catalog is None:
        return Toolbox()
    toolbox = memoize_on(run.trajectory, "react.toolbox", Toolbox)
    toolbox.refresh(_list_visible(run.catalog, run), run.hints.prefer_transport)
    return toolbox


def _list_visible(catalog: ToolCatalogView, run: RunContext) -> list[Tool]:
    """Return the visible tools, then those that were discovered."""
    tools = catalog.list()
    if not run.discovered_tools:
        return list(tools)
    found = [catalog.resolve(name) for name in run.discovered_tools]
    return [*tools, *(tool for tool in found if tool is not None)]


class Toolbox:
    """The tools of a run's last step, with their declarations and their list."""

    __slots__ = ("_declared", "_first", "_last_tools", "_list_visible", "_listed", "names")

    def __init__(self) -> None:
        self._last_tools: list[Tool] = []
        self._first = ""
        self._list_visible: list[Tool] = []
        self._declared: tuple[ToolDeclaration, ...] | None = None
        self._listed: dict[int, str] = {}
        self.names: frozenset[str] = frozenset()

    def refresh(self, tools: list[Tool], first: str) -> None:
        """Replace the tools if they have changed; those of the transport `first` come before the others."""
        # A tool is frozen, so the same object is the same tool.
        if first == self._first and are_same(tools, self._last_tools):
            return
        self._last_tools, self._first = tools, first
        by_name: dict[str, Tool] = {}
        for tool in tools:
            # A tool of a reserved name could never be called: its name means a decision.
            if tool.name and tool.name not in RESERVED_TOOL_NAMES:
                by_name.setdefault(tool.name, tool)
        self._list_visible = (
            sorted(by_name.values(), key=lambda tool: tool.transport != first) if first else [*by_name.values()]
        )
        self.names = frozenset(by_name)
        self._declared = None
        self._listed = {}

    def declared(self) -> tuple[ToolDeclaration, ...]:
        """Return the native declarations, the sub-task controls first."""
        if self._declared is None:
            tools = (
                ToolDeclaration(tool.name, tool.description, tool.args_schema or _NO_ARGS)
                for tool in self._list_visible
            )
            self._declared = (*_CONTROLS, *tools)
        return self._declared

    def listed(self, max_examples: int) -> str:
        """Return the short list for the prompt."""
        text = self._listed.get(max_examples)
        if text is None:
            text = "\n\n".join(_render_entry(tool, max_examples) for tool in self._list_visible) or NO_TOOLS
            self._listed[max_examples] = text
        return text


def are_same(these: Sequence[object], those: Sequence[object]) -> bool:
    """Whether both sequences hold the very same objects."""
    return these is those or (len(these) == len(those) and all(map(is_, these, those)))


def _render_entry(tool: Tool, max_examples: int) -> str:
    description = one_line(tool.description)
    head = f"- {tool.name}: {description}" if description else f"- {tool.name}"
    ranked = sorted(tool.examples, key=_example_rank)[:max_examples]
    return "\n".join((head, *(f"  example: {_render_example(one)}" for one in ranked)))


def _example_rank(example: ToolExample) -> int:
    """Return the rank of an example: by its best tag, without a known tag last."""
    return min((_RANKS[tag] for tag in example.tags if tag in _RANKS), default=len(_RANKS))


_RANKS: Final = {"minimal": 0, "common": 1, "edge-case": 2}


def _render_example(example: ToolExample) -> str:
    args, description = one_line(render_value(example.args)), one_line(example.description)
    return f"{args} ({description})" if description else args


def find_discovered_tools(run: RunContext) -> tuple[str, ...]:
    """Return the names in the run's context, then those that its searches found, each once and oldest first."""
    if run.trajectory is None:
        return tuple(dict.fromkeys(run.discovered_tools))
    found = memoize_on(run.trajectory, "react.discovery", Discovery).names(run.trajectory)
    return tuple(dict.fromkeys((*run.discovered_tools, *found)))


class Discovery:
    """The tools that the searches of one trajectory found."""

    __slots__ = ("_cursor", "_names")

    def __init__(self) -> None:
        self._cursor = StepCursor()
        self._names: dict[str, None] = {}

    def names(self, trajectory: Trajectory) -> dict[str, None]:
        """Return the names found so far; a result that cannot be read has none."""
        if not self._cursor.follows(trajectory.steps):
            self._cursor.restart(trajectory.steps)
            self._names = {}
        for index in range(self._cursor.count, len(trajectory.steps)):
            self._names.update(dict.fromkeys(_find_in_step(trajectory.steps[index])))
            self._cursor.advance()
        return self._names


def _find_in_step(step: Step) -> list[str]:
    match step.action:
        case CallTool(tool=tool) if tool == TOOL_SEARCH_TOOL_NAME:
            return _parse_names(step.observation if step.llm_observation is None else step.llm_observation)
        case CallParallel(branches=branches) if any(call.tool == TOOL_SEARCH_TOOL_NAME for call in branches):
            joined = parallel_observation(step.llm_observation) or parallel_observation(step.observation)
            values = {} if joined is None else {outcome.index: outcome.value for outcome in joined.branches}
            searches = (at for at, call in enumerate(branches) if call.tool == TOOL_SEARCH_TOOL_NAME)
            return [name for at in searches for name in _parse_names(values.get(at))]
        case _:
            return []


def _parse_names(result: Any) -> list[str]:
    tools = (to_object(result) or {}).get("tools")
    return [name for name in map(_parse_name, tools) if name] if isinstance(tools, list | tuple) else []


def _parse_name(entry: Any) -> str:
    name = (to_object(entry) or {}).get("name")
    return name if isinstance(name, str) else ""
