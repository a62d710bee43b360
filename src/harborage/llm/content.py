"""The content of a message to a model: text, or parts in several media, or a stub in the place of heavy bytes.

Values only, and the parts of a data URL with their type by the first bytes. Nothing here fetches a URL or touches a
store.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import msgspec

from harborage import codec
from harborage.artifacts.media import image_type
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


MediaPart: TypeAlias = ImagePart | AudioPart | FilePart

# The picture formats that every provider of vision reads.
_COMMON = ("image/png", "image/jpeg", "image/gif", "image/webp")
# The names that providers use where the MIME subtype is another one.
_AUDIO_FORMATS = {"mpeg": "mp3", "mpga": "mp3", "x-wav": "wav", "wave": "wav", "vnd.wave": "wav", "x-flac": "flac"}


class Media(msgspec.Struct, frozen=True):
    """The content of a data URL: its MIME type, and its bytes."""

    mime: str
    data: bytes

    @property
    def base64(self) -> str:
        """The bytes in base64."""
        return base64.b64encode(self.data).decode()

    @property
    def data_url(self) -> str:
        """The content as a data URL again."""
        return f"data:{self.mime};base64,{self.base64}"


def read_data_url(text: str) -> Media:
    """Return the content of a data URL; without base64 the bytes after the comma are taken as they are.

    Raises:
        InvalidContentError: it is no data URL, or its base64 is broken.
    """
    url = parse_data_url(text)
    return Media(url.mime.lower(), url.content())


def decode_inline(part: MediaPart, *, limit_bytes: int, provider: str) -> Media:
    """Return the bytes of a part that carries them, with the MIME type they really have.

    The part's own MIME type wins over that of the URL, and the first bytes of a picture win over both.

    Raises:
        InvalidContentError: a broken data URL, bytes in an image part that are no picture, or more bytes than
            `limit_bytes`, which is the limit of `provider`.
    """
    media = read_data_url(part.data_url)
    mime = (part.mime or media.mime).lower()
    size = len(media.data)
    if size > limit_bytes:
        raise InvalidContentError(
            f"an attachment of {size:,} bytes is more than the {limit_bytes:,} that {provider} takes; "
            "make it smaller, or give it by address"
        )
    if isinstance(part, ImagePart):
        mime = _checked_image(media.data, mime)
    return Media(mime or "application/octet-stream", media.data)


def audio_format(mime: str) -> str:
    """Return the name of a recording's format: the MIME subtype, or the common name of it (`mp3`, `wav`)."""
    subtype = mime.lower().partition(";")[0].rpartition("/")[2]
    return _AUDIO_FORMATS.get(subtype, subtype)


def _checked_image(data: bytes, mime: str) -> str:
    """Return the type of a picture. Kinds that only some providers read (SVG, HEIC, …) are passed on to them."""
    found = image_type(data)
    if found:
        return found
    if mime.startswith("image/") and mime not in _COMMON and data:
        return mime
    what = f"says {mime!r}" if mime else "names no type"
    raise InvalidContentError(f"an image part {what}, but its {len(data):,} bytes are no PNG, JPEG, GIF or WebP")


_SCHEME: Final = "data:"


class DataURL(msgspec.Struct, frozen=True):
    """The parts of a data URL; `text` is the URL itself, and its content begins at index `start`.

    The size follows from the length alone, so that asking for it costs nothing however heavy the content is.
    """

    text: str
    start: int
    mime: str
    is_base64: bool

    @property
    def size(self) -> int:
        """The number of bytes of the content, decoded."""
        if not self.is_base64:
            return utf8_size(self.text[self.start :])
        encoded = len(self.text) - self.start
        return encoded * 3 // 4 - (self.text.endswith("=") + self.text.endswith("==") if encoded else 0)

    def content(self) -> bytes:
        """Return the bytes. Without `base64` they are the text as it is: percent signs mean nothing.

        Raises:
            InvalidContentError: the base64 is broken.
        """
        body = self.text[self.start :]
        if not self.is_base64:
            return body.encode()
        try:
            return binascii.a2b_base64(body.strip().encode(), strict_mode=True)
        except (binascii.Error, ValueError):
            raise InvalidContentError("a data URL holds broken base64") from None


def parse_data_url(text: str) -> DataURL:
    """Return the parts of `text`: `data:<type>;<parameters>,<content>`, where `base64` may be any of the parameters.

    Raises:
        InvalidContentError: it does not begin with `data:`, or has no comma.
    """
    if not text.startswith(_SCHEME):
        raise InvalidContentError(f"data_url begins with {text[:12]!r}, not with 'data:'; an address belongs in url")
    comma = text.find(",")
    if comma < 0:
        raise InvalidContentError("the data URL has no comma between its type and its content")
    mime, *parameters = text[len(_SCHEME) : comma].split(";")
    is_base64 = any(parameter.strip().lower() == "base64" for parameter in parameters)
    return DataURL(text, comma + 1, mime.strip(), is_base64)
