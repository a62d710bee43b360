"""What a planner may read besides its history: tools, memory, skills, artifacts, hints, and live handles.

Protocols and small values, and how a prompt lists a session's artifacts and carries the user's attachments. A view
shows what the run's identity may see and nothing else; the host that builds the view filters, never the planner.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, runtime_checkable

import msgspec
from msgspec.structs import force_setattr

from harborage.artifacts.media import pictures_in
from harborage.errors import names_of
from harborage.llm import ArtifactStub, AudioPart, Content, FetchHint, FilePart, ImagePart, TextPart
from harborage.planner.decisions import parallel_observation
from harborage.planner.errors import ToolContextLostError

if TYPE_CHECKING:
    from harborage.artifacts import ArtifactRef
    from harborage.llm.content import Part
    from harborage.planner.config import OperatorPlanningHints
    from harborage.planner.trajectory import HandleID, Step
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


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SCALARS: Final = frozenset({str, int, float, bool, type(None)})
_OLDEST: Final = int((datetime(1, 1, 1, tzinfo=UTC) - _EPOCH).total_seconds()) * 1_000_000_000
# As text: `re` compiles it for the first time that is read and keeps it.
_RFC3339: Final = r"(\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d)(?:\.(\d+))?([Zz]|[+-]\d\d:\d\d)"


def build_artifact_manifest(refs: Iterable[ArtifactRef]) -> list[ArtifactManifestEntry] | None:
    """One entry an artifact, newest first and by id where times are equal; None when there are no artifacts.

    The list is whole; the prompt shows only its first rows.
    """
    newest_first = sorted(refs, key=lambda ref: (-_created_at(ref.source), ref.id))
    return [_make_entry(ref) for ref in newest_first] or None


def resolve_provenance(source: Mapping[str, Any] | None) -> str:
    """Return where an artifact came from: its `source`, else its tool, flow or producer, else `unknown`.

    Values that are not text, or are empty, do not count.
    """
    for key, prefix in (("source", ""), ("tool", "tool: "), ("flow", "flow: "), ("producer", "")):
        value = (source or {}).get(key)
        if isinstance(value, str) and value:
            return prefix + value
    return "unknown"


def _make_entry(ref: ArtifactRef) -> ArtifactManifestEntry:
    return ArtifactManifestEntry(
        ref=ref.id,
        filename=ref.filename,
        mime=ref.mime_type,
        size_bytes=ref.size_bytes,
        provenance=resolve_provenance(ref.source),
    )


def _created_at(source: Mapping[str, Any] | None) -> int:
    """Return the source's `created_at` in nanoseconds since 1970; a missing or unreadable time is the oldest."""
    match (source or {}).get("created_at"):
        case datetime() as moment:
            return max(_OLDEST, _to_nanoseconds(moment))
        case bool():
            return _OLDEST
        case int() as seconds:
            return max(_OLDEST, seconds * 1_000_000_000)
        case float() as seconds if math.isfinite(seconds):
            whole = math.floor(seconds)
            return max(_OLDEST, whole * 1_000_000_000 + int((seconds - whole) * 1_000_000_000))
        case str() as text:
            return _parse_time(text)
        case _:
            return _OLDEST


def _parse_time(text: str) -> int:
    """Parse an RFC 3339 time with its fraction to the nanosecond, which `datetime` would cut short."""
    found = re.fullmatch(_RFC3339, text)
    if found is None:
        return _OLDEST
    seconds, fraction, zone = found.groups()
    try:
        moment = datetime.fromisoformat(seconds + zone.upper())
    except ValueError:
        return _OLDEST
    return max(_OLDEST, _to_nanoseconds(moment) + int((fraction or "0")[:9].ljust(9, "0")))


def _to_nanoseconds(moment: datetime) -> int:
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    since = aware - _EPOCH
    return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1_000


def pictures_of(step: Step) -> Iterator[str]:
    """Yield the ids of the pictures that the results of a step refer to."""
    if step.llm_observation is None and type(step.observation) in _SCALARS:
        return
    joined = parallel_observation(step.llm_observation) or parallel_observation(step.observation)
    if joined is None:
        yield from pictures_in(step.observation if step.llm_observation is None else step.llm_observation)
        return
    for branch in joined.branches:
        yield from pictures_in(branch.value)


def materialize_input_content(
    goal: str, artifacts: Sequence[InputArtifactView], catalog: ToolCatalogView | None
) -> Content:
    """Return the first message's content: the goal as text, then one part an artifact; plain text without artifacts.

    A stub names the first tool of the catalog that handles its type, so that the model knows how to read it.
    """
    if not artifacts:
        return Content(text=goal)
    parts: list[Part] = [TextPart(goal)] if goal else []
    parts += [_make_part(artifact, catalog) for artifact in artifacts]
    return Content(parts=parts)


def _make_part(artifact: InputArtifactView, catalog: ToolCatalogView | None) -> Part:
    mime = artifact.mime
    if mime.startswith("image/") and artifact.bytes:
        encoded = base64.b64encode(artifact.bytes).decode("ascii")
        return ImagePart(data_url=f"data:{mime};base64,{encoded}", mime=mime)
    stub = _make_stub(artifact, catalog)
    if mime == "application/pdf":
        return FilePart(artifact=stub, mime=mime, filename=artifact.filename)
    if mime.startswith("audio/"):
        return AudioPart(artifact=stub, mime=mime)
    named = f" {artifact.filename}" if artifact.filename else ""
    return TextPart(f"Attached file{named}:\n{stub.text()}")


def _make_stub(artifact: InputArtifactView, catalog: ToolCatalogView | None) -> ArtifactStub:
    return ArtifactStub(
        ref=artifact.id,
        mime=artifact.mime,
        size_bytes=artifact.size_bytes,
        summary=_describe(artifact),
        fetch=_find_fetch_hint(artifact, catalog),
    )


def _describe(artifact: InputArtifactView) -> str:
    words = [artifact.mime or "artifact"]
    if artifact.size_bytes > 0:
        words.append(f"{artifact.size_bytes} bytes")
    if artifact.filename:
        words.append(f"({artifact.filename})")
    return " ".join(words)


def _find_fetch_hint(artifact: InputArtifactView, catalog: ToolCatalogView | None) -> FetchHint | None:
    if catalog is None or not artifact.mime:
        return None
    found = next((tool for tool in catalog.list() if tool.handles(artifact.mime)), None)
    return None if found is None else FetchHint(tool=found.name, id=artifact.id)
