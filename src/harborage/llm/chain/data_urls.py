"""Data URLs: what they declare, how much they hold, and their bytes. Pure.

Sizes are told from the length alone, so that asking costs nothing however heavy the content is.
"""

from __future__ import annotations

from typing import Final

import msgspec

from harborage.llm.errors import InvalidContentError
from harborage.llm.media import read_data_url

__all__ = ["DataURL", "parse_data_url", "utf8_size"]

_SCHEME: Final = "data:"


class DataURL(msgspec.Struct, frozen=True):
    """The parts of a data URL; `text` is the URL itself, of which the content begins at `start`."""

    text: str
    start: int
    mime: str
    is_base64: bool

    @property
    def size(self) -> int:
        """How many bytes the content has, decoded."""
        if not self.is_base64:
            return utf8_size(self.text[self.start :])
        encoded = len(self.text) - self.start
        return encoded * 3 // 4 - (self.text.endswith("=") + self.text.endswith("==") if encoded else 0)

    def content(self) -> bytes:
        """The bytes. Without `base64` they are the text as it stands: percent signs mean nothing.

        Raises:
            InvalidContentError: what should be base64 is not.
        """
        return read_data_url(self.text).data


def parse_data_url(text: str) -> DataURL:
    """The parts of `text`: `data:<type>;<parameters>,<content>`, where `base64` may be any of the parameters.

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


def utf8_size(text: str) -> int:
    """How many bytes `text` has in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
