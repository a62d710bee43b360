"""The read-only views and small values that a planner reads."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest

from harborage.planner import (
    ArtifactManifestEntry,
    InputArtifactView,
    MemoryBlocks,
    MemoryView,
    Skill,
    SkillLookup,
    SkillResult,
    ToolCallDeferred,
    ToolCatalogView,
)
from harborage.tools import Tool

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


@pytest.mark.parametrize(
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
