"""`tool_search` and `tool_get` over a catalog with hidden and deferred tools."""

from __future__ import annotations

from typing import Any

import pytest

from harborage import codec
from harborage.tools import CallContext, CatalogView, Invoker, Loading, Tool, ToolCatalog, ToolDescriptor, ToolResult
from harborage.tools.builtin import tool_get, tool_search
from harborage.tools.index import MemoryToolSearch
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio


async def nothing(_args: bytes, _call: CallContext) -> ToolResult:
    """A body."""
    return ToolResult()


def view_of(*tools: Tool, scopes: frozenset[str] = frozenset(), has_index: bool = True) -> CatalogView:
    """What a run sees of a catalog that holds `tools`."""
    catalog = ToolCatalog(search=MemoryToolSearch() if has_index else None)
    for tool in tools:
        catalog.register(ToolDescriptor(tool, nothing))
    return CatalogView(catalog, granted_scopes=scopes, loading=tuple(Loading))


async def searched(view: CatalogView, call: CallContext, **args: Any) -> Any:
    """The result of a search."""
    return (await Invoker().invoke(tool_search(view), codec.encode(args), call)).value


async def got(view: CatalogView, call: CallContext, name: str) -> Any:
    """The result of a look at one tool."""
    return (await Invoker().invoke(tool_get(view), codec.encode({"name": name}), call)).value


MANY = tuple(Tool(f"tool_{at:03}", "One of many.", tags=("odd",) if at % 2 else ()) for at in range(80))


async def test_deferred_tools_are_found_with_name_description_and_tags(call: CallContext) -> None:
    """A search finds what is not shown every turn."""
    view = view_of(Tool("ocr", "Read a picture.", tags=("vision",), loading=Loading.DEFERRED))
    assert await searched(view, call, query="picture") == {
        "tools": [{"name": "ocr", "description": "Read a picture.", "tags": ["vision"]}],
        "count": 1,
    }


@each_row("limit, count", [(0, 10), (-3, 10), (3, 3), (50, 50), (51, 50), (10_000, 50)])
async def test_the_limit_is_kept_in_bounds(call: CallContext, limit: int, count: int) -> None:
    """Nothing or less means ten, and more than fifty is fifty."""
    found = await searched(view_of(*MANY), call, query="", limit=limit)
    assert (found["count"], len(found["tools"])) == (count, count)


async def test_tags_narrow_a_search(call: CallContext) -> None:
    """Only tools that carry all of them are found."""
    found = await searched(view_of(*MANY), call, query="many", tags=["ODD"], limit=50)
    assert found["count"] == 40


async def test_hidden_tools_are_not_found_and_take_no_places(call: CallContext) -> None:
    """A run without a tool's scopes finds others instead, however well the hidden ones match."""
    hidden = [Tool(f"secret_{at}", "secret tool", auth_scopes=("admin",)) for at in range(60)]
    view = view_of(*hidden, Tool("plain", "A tool about secret keeping."))
    assert [one["name"] for one in (await searched(view, call, query="secret", limit=5))["tools"]] == ["plain"]
    seen = view_of(*hidden, scopes=frozenset({"admin"}))
    assert (await searched(seen, call, query="secret", limit=5))["count"] == 5


async def test_without_an_index_nothing_is_found(call: CallContext) -> None:
    """The result is empty, not an error."""
    assert await searched(view_of(*MANY, has_index=False), call, query="tool") == {"tools": [], "count": 0}


async def test_a_tool_is_described_with_its_schema(call: CallContext) -> None:
    """The schema is there when the tool has one."""
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}}
    view = view_of(Tool("a", "Does a.", args_schema=schema), Tool("b"))
    assert await got(view, call, "a") == {
        "name": "a",
        "description": "Does a.",
        "found": True,
        "args_schema": schema,
    }
    assert await got(view, call, "b") == {"name": "b", "description": "", "found": True}


async def test_a_missing_and_a_hidden_tool_get_the_same_answer(call: CallContext) -> None:
    """A miss is told softly, and tells nobody what others may call."""
    view = view_of(Tool("hidden", auth_scopes=("admin",)))
    hidden, missing = await got(view, call, "hidden"), await got(view, call, "missing")
    assert hidden["found"] is missing["found"] is False
    assert hidden["error"].replace("hidden", "missing") == missing["error"]
    assert "tool_search" in missing["error"]
