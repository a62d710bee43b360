"""How a text is shortened where it is quoted in an event, an error or a corrective turn. Pure."""

from __future__ import annotations

__all__ = ["cut"]


def cut(text: str, limit: int) -> str:
    """`text`, or its first `limit` bytes of UTF-8 and an ellipsis; never half a character."""
    encoded = text.encode("utf-8", "replace")
    return encoded.decode() if len(encoded) <= limit else encoded[:limit].decode("utf-8", "ignore") + "…"
