"""`artifact_fetch`: how a model reads what is kept outside its conversation, whole or piece by piece.

It reads the caller's own session and nothing else. A reference of somebody else's and one that never was get the same
answer, so that asking tells nobody what others have.
"""

from __future__ import annotations

import base64
from typing import Final, NotRequired, TypedDict

from harborage.artifacts import ArtifactRef, ArtifactScope, ArtifactStore, NotFoundError
from harborage.identity import Quadruple, require_triple
from harborage.tools.builtin.names import ARTIFACT_FETCH
from harborage.tools.enums import ErrorClass, SideEffect
from harborage.tools.errors import ToolError
from harborage.tools.function import tool
from harborage.tools.model import CallContext, ToolDescriptor
from harborage.tools.windows import Window, is_text, text_window

__all__ = ["MAX_FETCH_BYTES", "ArtifactStoreRequiredError", "FetchedArtifact", "artifact_fetch"]

_DEFAULT_BYTES: Final = 64 * 1024
MAX_FETCH_BYTES: Final = 1024 * 1024
"""Bytes of an artifact that one call reads at most."""


class ArtifactStoreRequiredError(ToolError):
    """`artifact_fetch` was called where there is no artifact store; give the runtime one."""

    error_class = ErrorClass.PERMANENT


class FetchedArtifact(TypedDict):
    """A piece of an artifact. `base64` says that the content is spelled in base64, because it is no text.

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
    """The tool that reads artifacts of the caller's session from `store`, or from the store of the call."""

    async def fetch(ref: str, call: CallContext, max_bytes: int = 0, offset: int = 0) -> FetchedArtifact:
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
        side_effects=SideEffect.READ,
        tags=("builtin", "meta", "artifact"),
        source="builtin",
    )


async def _read(store: ArtifactStore, who: Quadruple, ref: str) -> tuple[ArtifactRef, bytes] | None:
    """The artifact of the session, or the one that this very run's own prompts were relieved of."""
    session = ArtifactScope.of(who)
    for scope in (session, ArtifactScope.of(who, who.run_id)) if who.run_id else (session,):
        known = await store.get_ref(scope, ref)
        if known is None:
            continue
        try:
            data = await store.get(scope, ref)
        except NotFoundError:
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
    window = text_window(data, offset, max_bytes) if text else _bytes_window(data, offset, max_bytes)
    piece["content"] = window.data.decode() if text else base64.b64encode(window.data).decode()
    if not text:
        piece["base64"] = True
    if window.start:
        piece["offset"] = window.start
    piece["truncated"] = window.end < size
    if window.end < size:
        piece["next_offset"] = window.end
    return piece


def _bytes_window(data: bytes, offset: int, max_bytes: int) -> Window:
    end = min(offset + max_bytes, len(data))
    return Window(offset, end, data[offset:end])
