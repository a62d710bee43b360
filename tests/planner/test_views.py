"""What a planner may read besides its history."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import msgspec
import pytest

from harborage.planner import (
    ArtifactManifestEntry,
    BudgetHints,
    HandleRegistry,
    InputArtifactView,
    MemoryBlocks,
    MemoryView,
    OperatorPlanningHints,
    PlanningHints,
    PlanningNudges,
    ProcessLocalHandleRegistry,
    Skill,
    SkillLookup,
    SkillResult,
    ToolCallDeferred,
    ToolCatalogView,
    ToolContextLostError,
    hints_from_config,
)
from harborage.tools import Tool
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio


class Catalog:
    """Two tools."""

    def __init__(self):
        self.tools = {name: Tool(name=name) for name in ("b", "a")}

    def resolve(self, name):
        """The tool of that name."""
        return self.tools.get(name)

    def list(self):
        """Both, in their own order."""
        return list(self.tools.values())


def test_views_are_structural():
    """An object with the right methods is a view; nothing needs to be inherited."""
    assert isinstance(Catalog(), ToolCatalogView)
    assert not isinstance(SimpleNamespace(resolve=len), ToolCatalogView)
    assert isinstance(SimpleNamespace(snapshot=len), MemoryView)
    assert isinstance(SimpleNamespace(search=len, get=len), SkillLookup)
    assert not isinstance(SimpleNamespace(search=len), SkillLookup)


def test_a_catalog_miss_is_none():
    """A tool that a run may not see is simply not there."""
    assert Catalog().resolve("c") is None
    assert [tool.name for tool in Catalog().list()] == ["b", "a"]


def test_a_search_hit_is_a_skill():
    """A search result is a skill with a score."""
    hit = SkillResult(id="1", name="n", tags=("t",), score=0.5)
    assert isinstance(hit, Skill)
    assert hit.score == 0.5


def test_defaults():
    """Parts that are not known are empty."""
    assert MemoryBlocks() == MemoryBlocks(external=None, conversation=None)
    assert InputArtifactView(id="i") == InputArtifactView(id="i", mime="", size_bytes=0, filename="", bytes=None)
    assert ArtifactManifestEntry(ref="r").provenance == "unknown"
    assert ToolCallDeferred("t") == ToolCallDeferred("t", b"{}", "")


@each_row(
    "value",
    [
        ToolCallDeferred("t", b'{"a": 1}', "c"),
        ArtifactManifestEntry(ref="r", filename="f", mime="m", size_bytes=1, provenance="tool: x"),
        InputArtifactView(id="i", mime="image/png", bytes=b"\x00"),
        SkillResult(id="1", name="n", body="b", tags=("x",), score=1.0),
    ],
)
def test_values_survive_json(value):
    """The values that cross a journal come back as they were."""
    assert msgspec.json.decode(msgspec.json.encode(value), type=type(value)) == value


@pytest.mark.parametrize("section", [None, OperatorPlanningHints()])
def test_an_empty_section_gives_no_hints(section):
    """Without anything to say there are no hints at all."""
    assert hints_from_config(section) is None


@each_row(
    "section, hints",
    [
        (OperatorPlanningHints(constraints="be brief"), PlanningHints(constraints="be brief")),
        (OperatorPlanningHints(preferred_tools=["b", "a"]), PlanningHints(preferred_tools=("b", "a"))),
        (
            OperatorPlanningHints(constraints="c", preferred_tools=["a"]),
            PlanningHints(constraints="c", preferred_tools=("a",)),
        ),
    ],
)
def test_projection(section, hints):
    """Exactly the constraints and the preferred tools are projected, in order."""
    assert hints_from_config(section) == hints


def test_later_changes_to_the_configuration_do_not_reach_a_run():
    """The list is copied."""
    section = OperatorPlanningHints(preferred_tools=["a"])
    hints = hints_from_config(section)
    section.preferred_tools.append("b")
    assert hints.preferred_tools == ("a",)


def test_lists_become_tuples():
    """Hints are frozen all the way down."""
    groups = [["a", "b"], ["c"]]
    hints = PlanningHints(preferred_order=["x"], parallel_groups=groups, disallow_tools=["y"], preferred_tools=None)
    groups[0].append("z")
    assert hints.parallel_groups == (("a", "b"), ("c",))
    assert (hints.preferred_order, hints.disallow_tools, hints.preferred_tools) == (("x",), ("y",), ())


def test_hints_without_content():
    """Untouched nudges and hints say nothing."""
    assert PlanningNudges() == PlanningNudges(max_parallel=0, prefer_transport="")
    assert BudgetHints() == BudgetHints(max_steps=None, max_cost_usd=None, max_latency_ms=None)
    assert PlanningHints().budget is None


def test_it_is_a_handle_registry():
    """The registry of this process fulfils the port."""
    assert isinstance(ProcessLocalHandleRegistry(), HandleRegistry)


def test_the_very_object_comes_back():
    """A handle gives the object itself, not a copy; None is an object too."""
    registry = ProcessLocalHandleRegistry()
    live = object()
    registry.set("h", live)
    registry.set("nothing", None)
    assert registry.get("h") is live
    assert registry.get("nothing") is None


def test_setting_again_replaces_silently():
    """The last object set under a name wins."""
    registry = ProcessLocalHandleRegistry()
    registry.set("h", 1)
    registry.set("h", 2)
    assert registry.get("h") == 2
    assert len(registry) == 1


def test_a_miss_is_loud():
    """A name that is not kept is an error that carries the name."""
    with pytest.raises(ToolContextLostError) as caught:
        ProcessLocalHandleRegistry().get("h-9")
    assert caught.value.handle == "h-9"
    assert "h-9" in str(caught.value)


def test_deleting_twice_is_fine():
    """Deleting forgets the object, and a second time does nothing."""
    registry = ProcessLocalHandleRegistry()
    registry.set("h", 1)
    registry.delete("h")
    registry.delete("h")
    assert "h" not in registry
    with pytest.raises(ToolContextLostError):
        registry.get("h")


async def test_many_threads_at_once():
    """128 threads set, read and delete their own handles without disturbing one another."""
    registry = ProcessLocalHandleRegistry()

    def work(number: int) -> bool:
        for turn in range(50):
            registry.set(f"h-{number}", (number, turn))
            if registry.get(f"h-{number}") != (number, turn):
                return False
        registry.delete(f"h-{number}")
        return True

    assert all(await asyncio.gather(*(asyncio.to_thread(work, number) for number in range(128))))
    assert len(registry) == 0
