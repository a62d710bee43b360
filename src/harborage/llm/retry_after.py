"""How long a provider asks to wait, in whichever of the many ways it says so. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from harborage.clock import SYSTEM_CLOCK

__all__ = ["retry_after", "seconds_in_body"]

_NUMBER = re.compile(r"\d+(?:\.\d+)?|\.\d+")
_SPAN = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|h|m|s|d))+")
_PIECE = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s|d)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_RESET = "x-ratelimit-reset-"
# In the body of Google's services.
_RETRY_DELAY = re.compile(rb'"retryDelay"\s*:\s*"(\d+(?:\.\d+)?)s"')


def retry_after(headers: Mapping[str, str], *, now: datetime | None = None) -> float | None:
    """The seconds to wait before a repeat, never negative; None when the headers ask for nothing.

    `retry-after-ms` comes first, then `Retry-After` (seconds or an HTTP date), then the `x-ratelimit-reset-*` of every
    limit that is used up. A date is compared with the answer's own `Date`, else with `now`, else with the clock.
    """
    plain = {name.lower(): value.strip() for name, value in headers.items()}
    milliseconds = _number(plain.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    value = plain.get("retry-after", "")
    seconds = _number(value)
    if seconds is None and value:
        seconds = _until(value, _date(plain.get("date", "")) or now or SYSTEM_CLOCK.now())
    return seconds if seconds is not None else _reset(plain)


def seconds_in_body(body: bytes) -> float | None:
    """The delay that an error body asks for, as Google's services do; None when it names none."""
    found = _RETRY_DELAY.search(body)
    return float(found.group(1)) if found else None


def _number(value: str) -> float | None:
    return float(value) if _NUMBER.fullmatch(value) else None


def _date(value: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(value)
    except (TypeError, ValueError):
        return None
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)


def _until(value: str, now: datetime) -> float | None:
    date = _date(value)
    return None if date is None else max(0.0, (date - now).total_seconds())


def _reset(headers: Mapping[str, str]) -> float | None:
    """The longest reset among the limits that have nothing left; such as `1s`, `6m0s`, `120ms`."""
    waits = [
        _span(value)
        for name, value in headers.items()
        if name.startswith(_RESET) and headers.get(f"x-ratelimit-remaining-{name.removeprefix(_RESET)}", "0") == "0"
    ]
    return max((wait for wait in waits if wait is not None), default=None)


def _span(value: str) -> float | None:
    if not _SPAN.fullmatch(value):
        return _number(value)
    return sum(float(amount) * _UNITS[unit] for amount, unit in _PIECE.findall(value))
