"""What a planner may read besides its history: tools, memory, skills, artifacts, as narrow read-only views.

Protocols and small values. A view shows what the run's identity may see and nothing else; filtering is the business of
whoever builds the view, never of the planner.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import msgspec

if TYPE_CHECKING:
    from harborage.tools import Tool

__all__ = [
    "ArtifactManifestEntry",
    "InputArtifactView",
    "MemoryBlocks",
    "MemoryView",
    "Skill",
    "SkillLookup",
    "SkillResult",
    "ToolCallDeferred",
    "ToolCatalogView",
]

_Bytes: TypeAlias = bytes


@runtime_checkable
class ToolCatalogView(Protocol):
    """The tools a run may call, as schemas: a planner can choose one and cannot call it."""

    def resolve(self, name: str) -> Tool | None:
        """The tool of that name, or None when there is none that this run may call."""
        ...

    def list(self) -> list[Tool]:
        """Every visible tool in the catalog's own order; sort it where a stable order matters."""
        ...


@runtime_checkable
class MemoryView(Protocol):
    """The memory a planner step may see."""

    async def snapshot(self) -> Mapping[str, Any]:
        """The visible entries; empty when there is no memory."""
        ...


class Skill(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A skill as a planner sees it: enough to write it into a prompt."""

    id: str
    name: str
    description: str = ""
    body: str = ""
    tags: tuple[str, ...] = ()


class SkillResult(Skill, frozen=True, kw_only=True, omit_defaults=True):
    """A skill that a search found. `score` is its relevance, 0 to 1, higher is better."""

    score: float = 0.0


@runtime_checkable
class SkillLookup(Protocol):
    """The skills a planner step may search and read."""

    async def search(self, query: str, limit: int) -> list[SkillResult]:
        """At most `limit` matching skills; empty when none matches."""
        ...

    async def get(self, id: str) -> Skill | None:
        """The whole skill, or None when there is none with that id."""
        ...


class MemoryBlocks(msgspec.Struct, frozen=True, kw_only=True):
    """Memory fetched before the step, for the prompt: long-term (`external`) and of this session (`conversation`).

    A tier that is None is left out of the prompt. Any JSON-encodable shape will do.
    """

    external: Any = None
    conversation: Any = None


class InputArtifactView(msgspec.Struct, frozen=True, kw_only=True):
    """A file that the user attached to this run. `bytes` are loaded for images only."""

    id: str
    mime: str = ""
    size_bytes: int = 0
    filename: str = ""
    bytes: _Bytes | None = None


class ArtifactManifestEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One artifact of the session, without its bytes: what a model needs to ask for it by `ref`."""

    ref: str
    filename: str = ""
    mime: str = ""
    size_bytes: int = 0
    provenance: str = "unknown"


class ToolCallDeferred(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool call the model asked for that waits its turn, while calls run one at a time."""

    name: str
    args: bytes = b"{}"
    call_id: str = ""
