"""Inline media: the parts of a data URL, their bytes, and their type by the first bytes.

Pure. Nothing here fetches an address or reads an artifact.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final, TypeAlias

import msgspec

from harborage.llm.content import AudioPart, FilePart, ImagePart, utf8_size
from harborage.llm.errors import InvalidContentError

MediaPart: TypeAlias = ImagePart | AudioPart | FilePart

# The picture formats that every provider of vision reads.
_COMMON = ("image/png", "image/jpeg", "image/gif", "image/webp")
_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
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


def image_type(data: bytes) -> str:
    """Return the MIME type of a picture by its first bytes: PNG, JPEG, GIF or WebP; empty for anything else."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((mime for magic, mime in _MAGIC if data.startswith(magic)), "")


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
