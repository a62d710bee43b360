"""The tools of a step as declarations and as a list."""

from __future__ import annotations

import pytest

from harborage import codec
from harborage.planner import (
    CallParallel,
    CallTool,
    ParallelBranchObservation,
    ParallelObservation,
    PlanningNudges,
    Step,
    Trajectory,
)
from harborage.planner.react.tools import (
    DEFAULT_MAX_TOOL_EXAMPLES,
    NO_TOOLS,
    declare_tools,
    find_discovered_tools,
    get_toolbox,
)
from harborage.tools import Tool, ToolExample, Transport
from tests.kit.tables import each_row

CONTROLS = ["_spawn_task", "_await_task"]
SEARCH = CallTool("tool_search", b'{"query":"x"}')


def names(run) -> list[str]:
    """The names of the declared tools."""
    return [tool.name for tool in declare_tools(run)]


def test_without_a_catalog_nothing_is_declared(make_run):
    """Not even the controls; the list says that there are no tools."""
    assert declare_tools(make_run()) == ()
    assert get_toolbox(make_run()).listed(DEFAULT_MAX_TOOL_EXAMPLES) == NO_TOOLS


def test_the_order(make_run, catalog):
    """First the controls, then the catalog in its own order, then what was discovered and can be resolved."""
    run = make_run(
        catalog=catalog(Tool("b"), Tool("a"), hidden=(Tool("z"), Tool("y"))), discovered_tools=("z", "gone", "y")
    )
    assert names(run) == [*CONTROLS, "b", "a", "z", "y"]
    assert get_toolbox(run).listed(DEFAULT_MAX_TOOL_EXAMPLES) == "- b\n\n- a\n\n- z\n\n- y"


def test_each_name_once(make_run, catalog):
    """The first of a name wins, the controls before everything; a tool without a name is left out."""
    first = Tool("a", "first")
    run = make_run(
        catalog=catalog(first, Tool("a", "second"), Tool(""), Tool("_spawn_task", "mine")), discovered_tools=("a",)
    )
    assert names(run) == [*CONTROLS, "a"]
    assert declare_tools(run)[-1].description == "first"


def test_finish_is_not_declared(make_run, catalog):
    """The model ends by answering, so there is nothing to call for it."""
    assert "_finish" not in names(make_run(catalog=catalog(Tool("a"))))


@pytest.mark.parametrize("name", ["_finish", "_spawn_task", "_await_task"])
def test_a_tool_cannot_take_a_reserved_name(make_run, catalog, name):
    """Its call would mean a decision, so it is neither declared nor listed, found or not."""
    for shelf in (catalog(Tool(name, "mine")), catalog(hidden=(Tool(name, "mine"),))):
        run = make_run(catalog=shelf, discovered_tools=(name,))
        assert names(run) == CONTROLS
        assert all(tool.description != "mine" for tool in declare_tools(run))
        assert get_toolbox(run).listed(DEFAULT_MAX_TOOL_EXAMPLES) == NO_TOOLS


def test_a_declaration(make_run, catalog):
    """A tool is declared with its name, its whole description and its schema."""
    schema = {"type": "object", "properties": {"q": {"type": "string"}}}
    (declared,) = declare_tools(make_run(catalog=catalog(Tool("a", "does\nit", schema))))[2:]
    assert (declared.name, declared.description, declared.schema) == ("a", "does\nit", schema)


def test_a_tool_without_arguments(make_run, catalog):
    """Its schema is that of an empty object: providers refuse one that is none."""
    (declared,) = declare_tools(make_run(catalog=catalog(Tool("a"))))[2:]
    assert declared.schema == {"type": "object", "properties": {}}


def test_the_controls(make_run, catalog):
    """They say that they are controls, and their schemas are closed."""
    spawn, wait = declare_tools(make_run(catalog=catalog()))
    for control in (spawn, wait):
        assert "not a data tool" in control.description
        assert control.schema["additionalProperties"] is False
    assert spawn.schema["required"] == ["spec"]
    assert spawn.schema["properties"]["kind"]["enum"] == ["foreground", "background"]
    assert spawn.schema["properties"]["spec"]["additionalProperties"] is False
    assert wait.schema["required"] == ["task_id"]


def test_the_list(make_run, catalog):
    """An entry has a name and a description on one line, and nothing of schemas or side effects."""
    run = make_run(catalog=catalog(Tool("a", "does\nit ", {"type": "object", "title": "T"}), Tool("b", " ")))
    assert get_toolbox(run).listed(DEFAULT_MAX_TOOL_EXAMPLES) == "- a: does it\n\n- b"
    assert get_toolbox(make_run(catalog=catalog())).listed(DEFAULT_MAX_TOOL_EXAMPLES) == NO_TOOLS


def test_examples_are_ranked_and_capped(make_run, catalog):
    """The most telling come first: minimal, common, edge cases, then the others in their order."""
    examples = (
        ToolExample({"q": "plain"}),
        ToolExample({"q": "edge"}, "none found", ("edge-case",)),
        ToolExample({"q": "both"}, tags=("other", "common", "edge-case")),
        ToolExample({"q": "least"}, "as little\nas it takes", ("minimal",)),
    )
    run = make_run(catalog=catalog(Tool("a", "does it", examples=examples), Tool("b")))
    assert get_toolbox(run).listed(9).split("\n") == [
        "- a: does it",
        '  example: {"q":"least"} (as little as it takes)',
        '  example: {"q":"both"}',
        '  example: {"q":"edge"} (none found)',
        '  example: {"q":"plain"}',
        "",
        "- b",
    ]
    assert get_toolbox(run).listed(DEFAULT_MAX_TOOL_EXAMPLES).count("example:") == 3
    assert get_toolbox(run).listed(1).count("example:") == 1


def test_tools_of_the_preferred_transport_come_first(make_run, catalog):
    """The caller's wish orders the list and the declarations, and hides nothing."""
    shelf = catalog(Tool("a"), Tool("b", transport=Transport.MCP), Tool("c"))
    wish = PlanningNudges(prefer_transport="mcp")
    run = make_run(catalog=shelf)
    assert names(run) == [*CONTROLS, "a", "b", "c"]
    run.hints = wish
    assert names(run) == [*CONTROLS, "b", "a", "c"]
    assert get_toolbox(run).listed(DEFAULT_MAX_TOOL_EXAMPLES) == "- b\n\n- a\n\n- c"


def test_a_new_tool_is_seen(make_run, catalog):
    """What was made of the tools is used again only while they are the same."""
    shelf = catalog(Tool("a"))
    run = make_run(catalog=shelf)
    before = declare_tools(run)
    assert declare_tools(run) is before
    shelf.tools[0] = Tool("a", "changed")
    assert declare_tools(run)[-1].description == "changed"
    shelf.tools.append(Tool("b"))
    assert names(run)[-1] == "b"
    assert get_toolbox(run).listed(DEFAULT_MAX_TOOL_EXAMPLES) == "- a: changed\n\n- b"


class Found:
    """A live result of a search."""

    def to_json(self):
        """Its JSON form."""
        return {"tools": [{"name": "a"}]}


RESULTS = {
    "a dict": ({"tools": [{"name": "a", "description": "d"}], "count": 1}, ("a",)),
    "text": ('{"tools": [{"name": "a"}]}', ("a",)),
    "bytes": (b'{"tools": [{"name": "a"}]}', ("a",)),
    "an object": (Found(), ("a",)),
    "several": ({"tools": [{"name": "b"}, {"name": "a"}, {"name": "b"}]}, ("b", "a")),
    "some unreadable": ({"tools": [{"name": 1}, "x", None, {}, {"name": ""}, {"name": "a"}]}, ("a",)),
    "no list": ({"tools": "a"}, ()),
    "an error": ({"error": "no index"}, ()),
    "prose": ("nothing found", ()),
    "nothing": (None, ()),
    "a live object": (object(), ()),
}


@each_row("name", RESULTS)
@each_row("slot", ["llm_observation", "observation"])
def test_what_a_search_found(make_run, name, slot):
    """The names are read from a result of any form; one that cannot be read has none."""
    result, found = RESULTS[name]
    run = make_run(trajectory=Trajectory(steps=[Step(action=SEARCH, **{slot: result})]))
    assert find_discovered_tools(run) == found


def test_what_the_model_was_shown_counts(make_run):
    """The reduced observation is read where there is one."""
    step = Step(action=SEARCH, observation={"tools": [{"name": "a"}]}, llm_observation={"tools": []})
    assert find_discovered_tools(make_run(trajectory=Trajectory(steps=[step]))) == ()


def test_searches_add_up(make_run):
    """Over all calls of the search, oldest first and each name once, after what the run had already."""
    found = [{"tools": [{"name": name} for name in found]} for found in ("ab", "ca", "d")]
    trajectory = Trajectory(steps=[Step(action=SEARCH, observation=found[0])])
    run = make_run(trajectory=trajectory, discovered_tools=("b", "x"))
    assert find_discovered_tools(run) == ("b", "x", "a")
    trajectory.steps.append(Step(action=CallTool("other"), observation=found[2]))
    trajectory.steps.append(Step(action=CallParallel((SEARCH, CallTool("other"))), observation=found[2]))
    trajectory.steps.append(Step(action=SEARCH, observation=found[1]))
    assert find_discovered_tools(run) == ("b", "x", "a", "c")


@pytest.mark.parametrize("slot", ["llm_observation", "observation"])
def test_searches_side_by_side(make_run, slot):
    """Each branch that searches counts, matched by index; one that failed, and another tool's result, do not."""
    observed = ParallelObservation(
        [
            ParallelBranchObservation(index=3, error="no index"),
            ParallelBranchObservation(index=2, value={"tools": [{"name": "c"}]}),
            ParallelBranchObservation(index=1, value={"tools": [{"name": "never"}]}),
            ParallelBranchObservation(index=0, value={"tools": [{"name": "a"}, {"name": "b"}]}),
        ]
    )
    step = Step(action=CallParallel((SEARCH, CallTool("other"), SEARCH, SEARCH, SEARCH)), **{slot: observed})
    trajectory = Trajectory(steps=[step])
    for known in (trajectory, Trajectory.deserialize(trajectory.serialize())):
        assert find_discovered_tools(make_run(trajectory=known)) == ("a", "b", "c")


def test_discovery_without_a_history(make_run):
    """A run without a trajectory has what it was given, each name once."""
    assert find_discovered_tools(make_run(trajectory=None, discovered_tools=["a", "a"])) == ("a",)


def test_discovery_after_a_restart(make_run):
    """A history that was read back, or replaced, is read anew."""
    trajectory = Trajectory(steps=[Step(action=SEARCH, observation={"tools": [{"name": "a"}]})])
    run = make_run(trajectory=Trajectory.deserialize(codec.encode(trajectory)))
    assert find_discovered_tools(run) == ("a",)
    run.trajectory.steps = []
    assert find_discovered_tools(run) == ()
