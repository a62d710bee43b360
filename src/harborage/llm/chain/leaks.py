"""The first raw content in a conversation that is too heavy for a prompt. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from harborage.llm.chain.data_urls import parse_data_url, utf8_size
from harborage.llm.content import AudioPart, FilePart, ImagePart, Part, TextPart

if TYPE_CHECKING:
    from harborage.llm.client import ChatMessage

__all__ = ["Leak", "find_leak"]

_FIELDS = {ImagePart: "Image", AudioPart: "Audio", FilePart: "File"}


class Leak(msgspec.Struct, frozen=True):
    """Where heavy content stands, how many bytes it has decoded, and the size from which it is too heavy there."""

    site: str
    size_bytes: int
    threshold: int


def find_leak(
    messages: Sequence[ChatMessage], threshold: int, inline_limit: int, *, where: Iterable[int] | None = None
) -> Leak | None:
    """The first text of `threshold` bytes or more, or data URL of `inline_limit` or more; None without one.

    `where` are the only places that may have one, where the caller knows that.
    """
    for index in range(len(messages)) if where is None else where:
        content = messages[index].content
        if content.text is not None:
            size = utf8_size(content.text)
            if size >= threshold:
                return Leak(f"Messages[{index}].Content.Text", size, threshold)
        elif content.parts:
            leak = _in_parts(content.parts, index, threshold, inline_limit)
            if leak is not None:
                return leak
    return None


def _in_parts(parts: Sequence[Part], index: int, threshold: int, inline_limit: int) -> Leak | None:
    for at, part in enumerate(parts):
        site = f"Messages[{index}].Parts[{at}]"
        if isinstance(part, TextPart):
            size = utf8_size(part.text)
            if size >= threshold:
                return Leak(f"{site}.Text", size, threshold)
        elif part.data_url:
            size = parse_data_url(part.data_url).size
            if size >= inline_limit:
                return Leak(f"{site}.{_FIELDS[type(part)]}.DataURL", size, inline_limit)
    return None
