"""Artifacts in a prompt: the list of a session's artifacts, and the user's attachments as parts of the first message.

Pure: the bytes are in the views already, and nothing is fetched here.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from harborage.llm import ArtifactStub, AudioPart, Content, FetchHint, FilePart, ImagePart, TextPart
from harborage.planner.views import ArtifactManifestEntry

if TYPE_CHECKING:
    from harborage.artifacts import ArtifactRef
    from harborage.llm.content import Part
    from harborage.planner.views import InputArtifactView, ToolCatalogView

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
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
