"""The built-in tools: small ones for every agent, and those through which a model finds tools and reads artifacts.

Each is a factory of an ordinary `ToolDescriptor`. The configuration chooses by name which of them an agent gets.
`declarative_action` needs the planners' parser and is made there.
"""

from __future__ import annotations

import base64
from datetime import UTC
from typing import Any, Final, NotRequired, TypedDict

from harborage.artifacts import ArtifactNotFoundError, ArtifactRef, ArtifactScope, ArtifactStore
from harborage.identity import Quadruple, require_triple
from harborage.tools.catalog import MAX_LIMIT, CatalogView
from harborage.tools.enums import (
    ARTIFACT_FETCH,
    CLOCK_NOW,
    MAX_FETCH_BYTES,
    TEXT_ECHO,
    TOOL_GET,
    TOOL_SEARCH,
    ErrorClass,
    SideEffect,
)
from harborage.tools.errors import ToolError
from harborage.tools.function import tool
from harborage.tools.model import CallContext, ToolDescriptor
from harborage.tools.text import TextRange, is_text, read_window

_DEFAULT_BYTES: Final = 64 * 1024
"""Bytes of an artifact that one call reads at most."""


class ArtifactStoreRequiredError(ToolError):
    """`artifact_fetch` was called without an artifact store; pass one to the runtime."""

    error_class = ErrorClass.PERMANENT


class FetchedArtifact(TypedDict):
    """A piece of an artifact. `base64` says that the content is encoded in base64, because it is no text.

    `size_bytes` is the size of the whole; `offset` is where the piece begins, when that is not the beginning, and
    `next_offset` where the next one does.
    """

    ref: str
    size_bytes: int
    mime: NotRequired[str]
    offset: NotRequired[int]
    content: NotRequired[str]
    base64: NotRequired[bool]
    truncated: NotRequired[bool]
    next_offset: NotRequired[int]
    error: NotRequired[str]


def artifact_fetch(store: ArtifactStore | None = None) -> ToolDescriptor:
    """Make the tool that reads artifacts of the caller's session from `store`, or from the store of the call."""

    async def fetch(call: CallContext, ref: str, max_bytes: int = 0, offset: int = 0) -> FetchedArtifact:
        """Read an artifact by its reference, in pieces if it is long.

        Args:
            ref: the artifact's reference, such as default_0123456789ab
            max_bytes: how much to read at once, 65536 unless given, at most 1048576
            offset: the byte to begin at; take next_offset of the last piece to read on
        """
        artifacts = call.artifacts if store is None else store
        if artifacts is None:
            raise ArtifactStoreRequiredError
        require_triple(call.who, ARTIFACT_FETCH)
        ref = ref.strip()
        if not ref:
            return FetchedArtifact(ref="", size_bytes=0, error="ref is empty; name the artifact to read")
        found = await _read(artifacts, call.who, ref)
        if found is None:
            advice = "there is no such artifact in this session; use a reference exactly as it was shown"
            return FetchedArtifact(ref=ref, size_bytes=0, error=advice)
        wanted = min(max_bytes, MAX_FETCH_BYTES) if max_bytes > 0 else _DEFAULT_BYTES
        return _piece(*found, max(0, offset), wanted)

    return tool(
        fetch,
        name=ARTIFACT_FETCH,
        effects=SideEffect.READ,
        tags=("builtin", "meta", "artifact"),
        source="builtin",
    )


async def _read(store: ArtifactStore, who: Quadruple, ref: str) -> tuple[ArtifactRef, bytes] | None:
    """Read an artifact of the session, or one that was moved out of this run's own prompts."""
    session = ArtifactScope.of(who)
    for scope in (session, ArtifactScope.of(who, who.run_id)) if who.run_id else (session,):
        known = await store.get_ref(scope, ref)
        if known is None:
            continue
        try:
            data = await store.get(scope, ref)
        except ArtifactNotFoundError:
            return None
        if data is not None:
            return known, data
    return None


def _piece(ref: ArtifactRef, data: bytes, offset: int, max_bytes: int) -> FetchedArtifact:
    size = len(data)
    piece = FetchedArtifact(ref=ref.id, size_bytes=size, mime=ref.mime_type)
    if offset > size:
        piece["error"] = f"offset {offset} is past the end; the artifact has {size} bytes"
        return piece
    text = is_text(data, ref.mime_type)
    window = read_window(data, offset, max_bytes) if text else _bytes_window(data, offset, max_bytes)
    piece["content"] = window.data.decode() if text else base64.b64encode(window.data).decode()
    if not text:
        piece["base64"] = True
    if window.start:
        piece["offset"] = window.start
    piece["truncated"] = window.end < size
    if window.end < size:
        piece["next_offset"] = window.end
    return piece


def _bytes_window(data: bytes, offset: int, max_bytes: int) -> TextRange:
    end = min(offset + max_bytes, len(data))
    return TextRange(offset, end, data[offset:end])


class Now(TypedDict):
    """One moment in two forms."""

    rfc3339: str
    epoch_ms: int
    timezone: str


def clock_now() -> ToolDescriptor:
    """Make the tool that returns the time in UTC."""

    async def now(call: CallContext) -> Now:
        """Tell the current date and time in UTC."""
        require_triple(call.who, CLOCK_NOW)
        moment = call.clock.now().astimezone(UTC)
        return Now(
            rfc3339=moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            epoch_ms=int(moment.timestamp() * 1000),
            timezone="UTC",
        )

    return tool(now, name=CLOCK_NOW, effects=SideEffect.PURE, tags=("builtin",), source="builtin")


class Echo(TypedDict):
    """The given text, and the given tag."""

    echoed: str
    tag: NotRequired[str]


def text_echo() -> ToolDescriptor:
    """Make the tool that returns its text."""

    async def echo(call: CallContext, text: str, tag: str = "") -> Echo:
        """Return the given text unchanged.

        Args:
            text: what to return
            tag: a label to return with it
        """
        require_triple(call.who, TEXT_ECHO)
        return Echo(echoed=text, tag=tag) if tag else Echo(echoed=text)

    return tool(echo, name=TEXT_ECHO, effects=SideEffect.PURE, tags=("builtin",), source="builtin")


_DEFAULT_LIMIT: Final = 10
_MAX_LIMIT: Final = 50
_TAGS: Final = ("builtin", "meta", "discovery")


class FoundTool(TypedDict):
    """A tool in a list of results."""

    name: str
    description: str
    tags: list[str]


class FoundTools(TypedDict):
    """The tools that a search found, best first."""

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
    """Make the tool that searches the tools of `view`, deferred ones too."""

    async def search(call: CallContext, query: str, tags: list[str] = [], limit: int = 0) -> FoundTools:  # noqa: B006
        """Search all tools by words, also those you do not see; the tools it finds can be called from the next turn on.

        Args:
            query: words that describe what the tool should do; empty lists everything
            tags: only tools that carry all of these tags
            limit: how many to return, 10 unless given, at most 50
        """
        require_triple(call.who, TOOL_SEARCH)
        wanted = min(limit, _MAX_LIMIT) if limit > 0 else _DEFAULT_LIMIT
        # Tools that the run may not see are dropped after the search, so the search returns more than is shown.
        found = (await view.search(query, tags=tuple(tags), limit=MAX_LIMIT))[:wanted]
        listed = [FoundTool(name=one.name, description=one.description, tags=list(one.tags)) for one in found]
        return FoundTools(tools=listed, count=len(listed))

    return tool(search, name=TOOL_SEARCH, effects=SideEffect.READ, tags=_TAGS, source="builtin")


def tool_get(view: CatalogView) -> ToolDescriptor:
    """Make the tool that describes one tool of `view`."""

    async def get(call: CallContext, name: str) -> ToolDetails:
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

    made: ToolDescriptor = tool(get, name=TOOL_GET, effects=SideEffect.READ, tags=_TAGS, source="builtin")
    return made
