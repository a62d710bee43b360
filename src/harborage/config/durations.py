"""Durations as configuration spells them: `30s`, `1h30m`, `500ms`, `720h`. Pure."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

_UNITS: Final = {"h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1_000, "us": 1, "µs": 1}
"""Microseconds of each unit."""

_PART: Final = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)(h|ms|us|µs|m|s)")
_MOST_CHARS: Final = 64


def parse_duration(text: str) -> timedelta | None:
    """Return the duration that a text spells, or None. `0` needs no unit; a sign may come first."""
    sign, rest = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if rest == "0":
        return timedelta()
    if not rest or len(rest) > _MOST_CHARS:
        return None
    at, micros = 0, 0.0
    while at < len(rest):
        found = _PART.match(rest, at)
        if found is None:
            return None
        micros += float(found[1]) * _UNITS[found[2]]
        at = found.end()
    try:
        return timedelta(microseconds=sign * round(micros))
    except OverflowError:
        return None


def spell_duration(value: timedelta) -> str:
    """Return a duration in the largest units that it fits into: `24h`, `1h30m`, `500ms`."""
    micros = round(value / timedelta(microseconds=1))
    if not micros:
        return "0s"
    sign, micros = ("-", -micros) if micros < 0 else ("", micros)
    parts = []
    for unit in ("h", "m", "s", "ms", "us"):
        count, micros = divmod(micros, _UNITS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return sign + "".join(parts)
