"""The table of built-in tools, and how a configuration's list gets into a catalog."""

from __future__ import annotations

from typing import Any

import pytest

from harborage import codec
from harborage.identity import Quadruple
from harborage.planner.react import tools as react
from harborage.runtime.effects.built_ins import (
    BUILT_INS,
    BuiltInDeps,
    RegisterFailedError,
    UnknownBuiltInError,
    register_built_ins,
)
from harborage.tools import CallContext, CatalogFilter, Invoker, Loading, ToolCatalog, tool
from harborage.tools import enums as built_in
from harborage.tools.catalog import MemoryToolSearch
from harborage.tools.enums import BUILT_IN_TOOL_NAMES
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

DEPS = BuiltInDeps(needs_approval=lambda _name: False)


def names_in(catalog: ToolCatalog) -> list[str]:
    """Everything that is registered."""
    return [one.name for one in catalog.list(CatalogFilter(loading_modes=tuple(Loading)))]


def test_the_table_and_the_list_for_configuration_are_equal() -> None:
    """What may be configured can be made, and what can be made may be configured."""
    assert tuple(sorted(BUILT_INS)) == BUILT_IN_TOOL_NAMES


def test_the_planner_looks_for_the_names_that_the_tools_have() -> None:
    """The reference planner recognises two tools by name, and its prompt names a third to fetch artifacts."""
    assert built_in.TOOL_SEARCH == react.TOOL_SEARCH_TOOL_NAME
    assert built_in.DECLARATIVE_ACTION == react.DECLARATIVE_ACTION_TOOL_NAME
    from harborage.planner.react.blocks import render_fetch_call

    assert render_fetch_call("x").startswith(f"{built_in.ARTIFACT_FETCH}(")


def test_every_listed_tool_is_registered_under_its_name() -> None:
    """All of them together, or one alone; one that is listed twice is registered once."""
    catalog = ToolCatalog()
    register_built_ins(catalog, BUILT_IN_TOOL_NAMES, DEPS)
    assert names_in(catalog) == sorted(BUILT_IN_TOOL_NAMES)
    for name in BUILT_IN_TOOL_NAMES:
        alone = ToolCatalog()
        register_built_ins(alone, [name, name], DEPS)
        assert names_in(alone) == [name]


def test_an_empty_list_changes_nothing() -> None:
    """Built-in tools are there only when they are asked for."""
    catalog = ToolCatalog()
    register_built_ins(catalog, (), BuiltInDeps())
    assert catalog.version == 0


def test_an_unknown_name_is_refused_before_anything_is_registered() -> None:
    """The error names every unknown one and what there is."""
    catalog = ToolCatalog()
    with pytest.raises(UnknownBuiltInError, match=r"clock\.then, x .*tool_search") as caught:
        register_built_ins(catalog, ["clock.now", "clock.then", "x"], DEPS)
    assert caught.value.names == ("clock.then", "x")
    assert names_in(catalog) == []


@each_row("names", [(), ("clock.now",), ("unknown",)])
def test_no_catalog_is_an_error(names: tuple[str, ...]) -> None:
    """There is nothing to register in."""
    with pytest.raises(RegisterFailedError, match="no catalog"):
        register_built_ins(None, names, DEPS)


def test_a_taken_name_is_refused_before_anything_is_registered() -> None:
    """The tool that has the name keeps it."""
    catalog = ToolCatalog()

    @tool(name="text.echo")
    def echo() -> str:
        """Mine."""
        return "mine"

    catalog.register(echo)
    with pytest.raises(RegisterFailedError, match=r"text\.echo"):
        register_built_ins(catalog, BUILT_IN_TOOL_NAMES, DEPS)
    assert names_in(catalog) == ["text.echo"]


def test_the_declarative_action_is_not_made_blind() -> None:
    """Without knowing which tools are gated it would be a way around them."""
    catalog = ToolCatalog()
    with pytest.raises(RegisterFailedError, match="needs_approval"):
        register_built_ins(catalog, BUILT_IN_TOOL_NAMES, BuiltInDeps())
    assert names_in(catalog) == []


async def invoked(catalog: ToolCatalog, name: str, /, **args: Any) -> Any:
    """What a registered tool gives."""
    found = catalog.resolve(name)
    assert found is not None
    call = CallContext(Quadruple("t", "u", "s", "r"), "c", "k")
    return (await Invoker().invoke(found, codec.encode(args), call)).value


async def test_the_tools_look_into_the_catalog_they_are_in() -> None:
    """Tools that are registered later are found, described and called; gates that are set later are minded."""
    catalog, gates = ToolCatalog(search=MemoryToolSearch()), set[str]()
    register_built_ins(catalog, BUILT_IN_TOOL_NAMES, BuiltInDeps(needs_approval=gates.__contains__))

    @tool(loading=Loading.DEFERRED)
    def frobnicate(x: int) -> int:
        """Frobnicate a number."""
        return x + 1

    catalog.register(frobnicate)
    found = await invoked(catalog, "tool_search", query="frobnicate")
    assert [one["name"] for one in found["tools"]] == ["frobnicate"]
    assert (await invoked(catalog, "tool_get", name="frobnicate"))["found"] is True
    declared = {"tool": "frobnicate", "args": {"x": 1}}
    assert (await invoked(catalog, "declarative_action", **declared))["observation"] == 2
    gates.add("frobnicate")
    assert "call it directly" in (await invoked(catalog, "declarative_action", **declared))["error"]


async def test_what_runs_may_not_see_is_out_of_reach() -> None:
    """Scopes that are not granted hide a tool from search, description and declared actions alike."""
    for scopes, is_seen in ((frozenset[str](), False), (frozenset({"admin"}), True)):
        catalog = ToolCatalog(search=MemoryToolSearch())

        @tool(auth_scopes=("admin",))
        def wipe() -> str:
            """Wipe everything."""
            return "wiped"

        catalog.register(wipe)
        deps = BuiltInDeps(needs_approval=lambda _name: False, granted_scopes=scopes)
        register_built_ins(catalog, BUILT_IN_TOOL_NAMES, deps)
        assert bool((await invoked(catalog, "tool_search", query="wipe"))["count"]) is is_seen
        assert (await invoked(catalog, "tool_get", name="wipe"))["found"] is is_seen
        assert (await invoked(catalog, "declarative_action", tool="wipe"))["dispatched"] is is_seen
