"""What the user attached, as parts of the first message: pictures inline, everything else as a stub with directions.

Pure: the bytes are in the views already, and nothing is fetched here.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING

from harborage.llm import ArtifactStub, AudioPart, Content, FetchHint, FilePart, ImagePart, TextPart

if TYPE_CHECKING:
    from harborage.llm.content import Part
    from harborage.planner.views import InputArtifactView, ToolCatalogView

__all__ = ["materialize_input_content"]


def materialize_input_content(
    goal: str, artifacts: Sequence[InputArtifactView], catalog: ToolCatalogView | None
) -> Content:
    """The first message's content: the goal as text, then one part an artifact, in order; plain text without artifacts.

    A stub names the first tool of the catalog that handles its type, so that the model knows how to read it.
    """
    if not artifacts:
        return Content(text=goal)
    parts: list[Part] = [TextPart(goal)] if goal else []
    parts += [_part(artifact, catalog) for artifact in artifacts]
    return Content(parts=parts)


def _part(artifact: InputArtifactView, catalog: ToolCatalogView | None) -> Part:
    mime = artifact.mime
    if mime.startswith("image/") and artifact.bytes:
        encoded = base64.b64encode(artifact.bytes).decode("ascii")
        return ImagePart(data_url=f"data:{mime};base64,{encoded}", mime=mime)
    stub = _stub(artifact, catalog)
    if mime == "application/pdf":
        return FilePart(artifact=stub, mime=mime, filename=artifact.filename)
    if mime.startswith("audio/"):
        return AudioPart(artifact=stub, mime=mime)
    named = f" {artifact.filename}" if artifact.filename else ""
    return TextPart(f"Attached file{named}:\n{stub.text()}")


def _stub(artifact: InputArtifactView, catalog: ToolCatalogView | None) -> ArtifactStub:
    return ArtifactStub(
        ref=artifact.id,
        mime=artifact.mime,
        size_bytes=artifact.size_bytes,
        summary=_summary(artifact),
        fetch=_fetch(artifact, catalog),
    )


def _summary(artifact: InputArtifactView) -> str:
    words = [artifact.mime or "artifact"]
    if artifact.size_bytes > 0:
        words.append(f"{artifact.size_bytes} bytes")
    if artifact.filename:
        words.append(f"({artifact.filename})")
    return " ".join(words)


def _fetch(artifact: InputArtifactView, catalog: ToolCatalogView | None) -> FetchHint | None:
    if catalog is None or not artifact.mime:
        return None
    found = next((tool for tool in catalog.list() if tool.handles(artifact.mime)), None)
    return None if found is None else FetchHint(tool=found.name, id=artifact.id)
