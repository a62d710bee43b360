"""What a planner may read besides its history: tools, memory, skills, artifacts, hints, and live handles.

Protocols and small values. A view shows what the run's identity may see and nothing else; the host that builds the view
filters, never the planner.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import msgspec
from msgspec.structs import force_setattr

from harborage.errors import names_of
from harborage.planner.errors import ToolContextLostError

if TYPE_CHECKING:
    from harborage.planner.config import OperatorPlanningHints
    from harborage.planner.trajectory import HandleID
    from harborage.tools import Tool

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

    A tier that is None is left out of the prompt. A tier may hold any JSON value.
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
    """A tool call of the model that waits for a later step, because calls run one at a time."""

    name: str
    args: bytes = b"{}"
    call_id: str = ""


class PlanningNudges(msgspec.Struct, frozen=True, kw_only=True):
    """What the caller prefers: at most `max_parallel` branches (0: no preference), tools of one transport first."""

    max_parallel: int = 0
    prefer_transport: str = ""


class BudgetHints(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Limits to mention to the model; a part that is None is not mentioned."""

    max_steps: int | None = None
    max_cost_usd: float | None = None
    max_latency_ms: int | None = None


class PlanningHints(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the operator wants the prompt to say about planning; an empty part is left out of the prompt.

    Raises:
        InvalidOptionError: a field for several names holds one text.
    """

    constraints: str = ""
    preferred_order: tuple[str, ...] = ()
    parallel_groups: tuple[tuple[str, ...], ...] = ()
    disallow_tools: tuple[str, ...] = ()
    preferred_tools: tuple[str, ...] = ()
    budget: BudgetHints | None = None

    def __post_init__(self) -> None:
        for field in ("preferred_order", "disallow_tools", "preferred_tools"):
            force_setattr(self, field, names_of(getattr(self, field) or (), field))
        force_setattr(
            self, "parallel_groups", tuple(names_of(group, "parallel_groups") for group in self.parallel_groups or ())
        )


def hints_from_config(hints: OperatorPlanningHints | None) -> PlanningHints | None:
    """Return the operator's planning hints for a run, or None when the section is empty.

    The list is copied: changing the configuration later does not reach a run.
    """
    if hints is None or not (hints.constraints or hints.preferred_tools):
        return None
    return PlanningHints(constraints=hints.constraints, preferred_tools=tuple(hints.preferred_tools))


@runtime_checkable
class HandleRegistry(Protocol):
    """Holds live objects by name. Safe for concurrent callers."""

    def set(self, handle: HandleID, value: Any) -> None:
        """Store `value` under `handle`, in place of the object that was there."""
        ...

    def get(self, handle: HandleID) -> Any:
        """Return the very object that was set under `handle`.

        Raises:
            ToolContextLostError: there is none. Never: returns None for a miss.
        """
        ...

    def delete(self, handle: HandleID) -> None:
        """Delete `handle`; an unknown name is no error."""
        ...


class ProcessLocalHandleRegistry:
    """Handles in the memory of this process, lost when it ends."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        # Each method is one dictionary operation, which Python makes atomic: no lock is needed, also across threads.
        self._values: dict[HandleID, Any] = {}

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, handle: object) -> bool:
        return handle in self._values

    def set(self, handle: HandleID, value: Any) -> None:
        """Store `value` under `handle`, in place of the object that was there."""
        self._values[handle] = value

    def get(self, handle: HandleID) -> Any:
        """Return the very object that was set under `handle`.

        Raises:
            ToolContextLostError: there is none.
        """
        try:
            return self._values[handle]
        except KeyError:
            raise ToolContextLostError(handle) from None

    def delete(self, handle: HandleID) -> None:
        """Delete `handle`; an unknown name is no error."""
        self._values.pop(handle, None)
