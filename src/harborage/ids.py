"""Identifiers: ULIDs, 26 characters of Crockford base32 that sort by time of creation."""

from __future__ import annotations

import hashlib
import os
import time
from datetime import UTC, datetime, timedelta
from typing import Final

_LAST_MS: Final = 253_402_300_799_999
"""The last millisecond of the year 9999, after which no datetime exists."""
_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = tuple(high + low for high in _DIGITS for low in _DIGITS)


def new_id() -> str:
    """A fresh ULID. Ids made in one process sort in the order they were made, to the millisecond."""
    return ulid(*_time_and_chance())


def named_id(*parts: str) -> str:
    """The id that stands for these parts, in this order: always the same, and another for any others."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big"))  # so that no two lists of parts run together into the same bytes
        digest.update(data)
    found = digest.digest()
    return ulid(int.from_bytes(found[:6]), found[6:16])


def ulid(at_ms: int, chance: bytes) -> str:
    """The ULID of a time, in milliseconds since 1970, and ten random bytes."""
    value = at_ms << 80 | int.from_bytes(chance)
    return "".join([_PAIRS[value >> shift & 1023] for shift in range(120, -1, -10)])


def made_at(id: str) -> datetime | None:
    """When a ULID was made; None of any other text."""
    if len(id) != 26 or not set(id) <= set(_DIGITS) or id[0] > "7":
        return None
    at_ms = sum(_DIGITS.index(digit) << 5 * place for place, digit in enumerate(reversed(id[:10])))
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=at_ms) if at_ms <= _LAST_MS else None


def _time_and_chance() -> tuple[int, bytes]:
    """What the next id is made of."""
    return time.time_ns() // 1_000_000, os.urandom(10)
