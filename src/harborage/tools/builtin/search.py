"""`tool_search` and `tool_get`: how a model finds tools that it is not shown every turn, and reads their schemas.

Both look through a view, so that a run finds what it may call and nothing else. They change nothing: what a search
found becomes known to the run because the planner reads its result.
"""

from __future__ import annotations

from typing import Any, Final, NotRequired, TypedDict

from harborage.identity import require_triple
from harborage.tools.builtin.names import TOOL_GET, TOOL_SEARCH
from harborage.tools.catalog import MAX_LIMIT, CatalogView
from harborage.tools.enums import SideEffect
from harborage.tools.function import tool
from harborage.tools.model import CallContext, ToolDescriptor

__all__ = ["FoundTool", "FoundTools", "ToolDetails", "tool_get", "tool_search"]

_DEFAULT_LIMIT: Final = 10
_MAX_LIMIT: Final = 50
_TAGS: Final = ("builtin", "meta", "discovery")


class FoundTool(TypedDict):
    """A tool in a list of results."""

    name: str
    description: str
    tags: list[str]


class FoundTools(TypedDict):
    """What a search found, best first."""

    tools: list[FoundTool]
    count: int


class ToolDetails(TypedDict):
    """One tool with the schema of its arguments; a tool that is not there says so."""

    name: str
    description: str
    found: bool
    args_schema: NotRequired[dict[str, Any]]
    error: NotRequired[str]


def tool_search(view: CatalogView) -> ToolDescriptor:
    """The tool that searches what `view` shows, deferred tools too."""

    async def search(query: str, call: CallContext, tags: list[str] = [], limit: int = 0) -> FoundTools:  # noqa: B006
        """Search all tools by words, also those you do not see; the tools it finds can be called from the next turn on.

        Args:
            query: words that describe what the tool should do; empty lists everything
            tags: only tools that carry all of these tags
            limit: how many to return, 10 unless given, at most 50
        """
        require_triple(call.who, TOOL_SEARCH)
        wanted = min(limit, _MAX_LIMIT) if limit > 0 else _DEFAULT_LIMIT
        # What the run may not see is dropped after the search, so more is asked for than is shown.
        found = (await view.search(query, tags=tuple(tags), limit=MAX_LIMIT))[:wanted]
        listed = [FoundTool(name=one.name, description=one.description, tags=list(one.tags)) for one in found]
        return FoundTools(tools=listed, count=len(listed))

    return tool(search, name=TOOL_SEARCH, side_effects=SideEffect.READ, tags=_TAGS, source="builtin")


def tool_get(view: CatalogView) -> ToolDescriptor:
    """The tool that describes one tool of `view`."""

    async def get(name: str, call: CallContext) -> ToolDetails:
        """Describe one tool by its exact name: what it does and the JSON Schema of its arguments.

        Args:
            name: the tool's exact name
        """
        require_triple(call.who, TOOL_GET)
        found = view.resolve(name)
        if found is None:
            advice = f"there is no tool {name!r}; find its name with {TOOL_SEARCH}"
            return ToolDetails(name=name, description="", found=False, error=advice)
        details = ToolDetails(name=found.name, description=found.description, found=True)
        if found.args_schema:
            details["args_schema"] = found.args_schema
        return details

    return tool(get, name=TOOL_GET, side_effects=SideEffect.READ, tags=_TAGS, source="builtin")
