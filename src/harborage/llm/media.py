"""Inline media as every provider needs it: decoded once, known by its first bytes, refused before money is spent.

Pure. Nothing here fetches an address or reads an artifact.
"""

from __future__ import annotations

import base64
import binascii
from typing import TypeAlias

import msgspec

from harborage.llm.content import AudioPart, FilePart, ImagePart
from harborage.llm.errors import InvalidContentError

__all__ = ["Media", "MediaPart", "audio_format", "image_type", "inline", "read_data_url"]

MediaPart: TypeAlias = ImagePart | AudioPart | FilePart

# The picture formats that every provider of vision reads.
_COMMON = ("image/png", "image/jpeg", "image/gif", "image/webp")
_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
# What providers call a recording where the MIME subtype says it otherwise.
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


def read_data_url(data_url: str) -> Media:
    """What a data URL holds; without base64 the bytes after the comma are taken as they are.

    Raises:
        InvalidContentError: it is no data URL, or its base64 is broken.
    """
    head, comma, body = data_url.partition(",")
    if not comma or not head.startswith("data:"):
        raise InvalidContentError("a data URL must look like data:<mime>;base64,<bytes>")
    mime, *parameters = (word.strip().lower() for word in head.removeprefix("data:").split(";"))
    if "base64" not in parameters:
        return Media(mime, body.encode())
    try:
        return Media(mime, binascii.a2b_base64(body.strip().encode(), strict_mode=True))
    except (binascii.Error, ValueError):
        raise InvalidContentError("a data URL holds broken base64") from None


def image_type(data: bytes) -> str:
    """The MIME type that the first bytes of a picture tell: PNG, JPEG, GIF or WebP; empty for anything else."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((mime for magic, mime in _MAGIC if data.startswith(magic)), "")


def inline(part: MediaPart, *, limit_bytes: int, provider: str) -> Media:
    """The bytes of a part that carries them, with the MIME type they really have.

    The part's own MIME type wins over the URL's, and what a picture's bytes say over both.

    Raises:
        InvalidContentError: a broken data URL, bytes in an image part that are no picture, or more bytes than
            `limit_bytes`, which is what `provider` takes.
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
    """What providers call the format of a recording: the MIME subtype, or the common name of it (`mp3`, `wav`)."""
    subtype = mime.lower().partition(";")[0].rpartition("/")[2]
    return _AUDIO_FORMATS.get(subtype, subtype)


def _checked_image(data: bytes, mime: str) -> str:
    """The type of a picture. Kinds that only some providers read (SVG, HEIC, …) are left for them to judge."""
    seen = image_type(data)
    if seen:
        return seen
    if mime.startswith("image/") and mime not in _COMMON and data:
        return mime
    what = f"says {mime!r}" if mime else "names no type"
    raise InvalidContentError(f"an image part {what}, but its {len(data):,} bytes are no PNG, JPEG, GIF or WebP")
