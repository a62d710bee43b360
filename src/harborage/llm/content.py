"""The content of a message to a model: text, or parts in several media, or a stub in the place of heavy bytes.

Values only. Nothing here fetches a URL, decodes a body or touches a store.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import msgspec

from harborage import codec
from harborage.llm.errors import InvalidContentError

CHUNK_BYTES: Final = 4096
"""How large a chunk of a long text grows: well below every sensible threshold of heavy content."""


class FetchHint(msgspec.Struct, frozen=True):
    """The tool call that reads the bytes behind a stub: `tool` with the artifact's `id`."""

    tool: str
    id: str


class ArtifactStub(msgspec.Struct, frozen=True, omit_defaults=True, rename={"ref": "artifact_ref"}):
    """The text that a model gets in the place of heavy bytes: where and what they are, and how to read them."""

    ref: str
    mime: str
    size_bytes: int
    hash: str = ""
    summary: str = ""
    fetch: FetchHint | None = None

    def text(self) -> str:
        """The stub as one line of compact JSON with sorted keys; empty optional fields are left out."""
        return codec.encode_text(codec.to_plain(self))


class TextPart(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    """Plain text between other media."""

    text: str


class ImagePart(msgspec.Struct, frozen=True, tag_field="type", tag="image", omit_defaults=True):
    """A picture, given by address, inline as a data URL, or as the stub of a stored artifact."""

    url: str = ""
    data_url: str = ""
    artifact: ArtifactStub | None = None
    mime: str = ""
    detail: str = ""


class AudioPart(msgspec.Struct, frozen=True, tag_field="type", tag="audio", omit_defaults=True):
    """A recording, given by address, inline as a data URL, or as the stub of a stored artifact."""

    url: str = ""
    data_url: str = ""
    artifact: ArtifactStub | None = None
    mime: str = ""


class FilePart(msgspec.Struct, frozen=True, tag_field="type", tag="file", omit_defaults=True):
    """A document, given by address, inline as a data URL, or as the stub of a stored artifact."""

    url: str = ""
    data_url: str = ""
    artifact: ArtifactStub | None = None
    mime: str = ""
    filename: str = ""


Part: TypeAlias = TextPart | ImagePart | AudioPart | FilePart


class Content(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of a message: exactly one of `text` (may be empty) and `parts` (may be an empty list).

    The one exception is an assistant message that only calls tools: it has neither. `check_content` holds the rule.
    """

    text: str | None = None
    parts: Sequence[Part] | None = None

    def __post_init__(self) -> None:
        # A caller's list would let a frozen message change behind its readers.
        if self.parts is not None and not isinstance(self.parts, tuple):
            msgspec.structs.force_setattr(self, "parts", tuple(self.parts))


def check_content(content: Content, *, may_be_absent: bool = False) -> None:
    """Accept well-formed content; `may_be_absent` is for an assistant message that calls tools.

    Raises:
        InvalidContentError: text and parts both or neither, or a part of an unknown kind or without a body; the message
            names the part's position.
    """
    if content.text is not None and content.parts is not None:
        raise InvalidContentError("content has both text and parts; give exactly one")
    if content.text is None and content.parts is None and not may_be_absent:
        raise InvalidContentError("content has neither text nor parts; give exactly one")
    for index, part in enumerate(content.parts or ()):
        _check_part(part, index)


def _check_part(part: object, index: int) -> None:
    match part:
        case TextPart():
            return
        case ImagePart() | AudioPart() | FilePart():
            if not (part.url or part.data_url or part.artifact is not None):
                kind = type(part).__name__
                raise InvalidContentError(f"part {index} ({kind}) has no body; set url, data_url or artifact")
        case _:
            raise InvalidContentError(f"part {index} is a {type(part).__name__}, which is no content part")


def chunk_lines(lines: Iterable[str]) -> Content:
    """Return the lines as one text if they are short, else as several text parts of at most `CHUNK_BYTES`.

    One heavy text would be taken for raw content that leaked. A line that is longer is a part of its own.
    """
    chunks: list[str] = []
    chunk: list[str] = []
    size = 0
    for line in lines:
        bytes_of_line = len(line.encode("utf-8", "replace")) + 1
        if chunk and size + bytes_of_line > CHUNK_BYTES:
            chunks.append("\n".join(chunk) + "\n")
            chunk, size = [], 0
        chunk.append(line)
        size += bytes_of_line
    chunks.append("\n".join(chunk))
    return Content(text=chunks[0]) if len(chunks) == 1 else Content(parts=tuple(map(TextPart, chunks)))


def utf8_size(text: str) -> int:
    """Return how many bytes `text` has in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
