"""How large and how deep a pause's payload is. Pure."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["MAX_PAYLOAD_BYTES", "MAX_PAYLOAD_DEPTH", "MAX_PAYLOAD_KEYS", "payload_depth", "payload_keys"]

MAX_PAYLOAD_DEPTH: Final = 6
"""Levels of dicts and lists in a pause's payload; the payload itself is the first."""
MAX_PAYLOAD_KEYS: Final = 64
"""Keys of a pause's payload, those of nested dicts included."""
MAX_PAYLOAD_BYTES: Final = 16 * 1024
"""Bytes of the JSON of a pause's payload."""

_GUARD: Final = 32


def payload_depth(value: Any, *, guard: int = _GUARD) -> int:
    """The levels of dicts and lists: 0 for a scalar, 1 for an empty dict. Counts to `guard`, so that a cycle ends."""
    if not isinstance(value, (dict, list, tuple)) or guard <= 0:
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max((payload_depth(item, guard=guard - 1) for item in inner), default=0)


def payload_keys(value: Any, *, guard: int = _GUARD) -> int:
    """The keys of all dicts, down to `guard` levels."""
    if guard <= 0:
        return 0
    if isinstance(value, dict):
        return len(value) + sum(payload_keys(item, guard=guard - 1) for item in value.values())
    if isinstance(value, (list, tuple)):
        return sum(payload_keys(item, guard=guard - 1) for item in value)
    return 0
