"""Moments as a store keeps them: whole microseconds since 1970 in UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, overload

LATEST: Final = 253_402_300_799_999_999
"""The last microsecond of the year 9999, after which no datetime exists."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


@overload
def micros(moment: datetime) -> int: ...
@overload
def micros(moment: None) -> None: ...
def micros(moment: datetime | None) -> int | None:
    """The moment as a number; None stays None."""
    return None if moment is None else (moment - _EPOCH) // _MICROSECOND


def moment(micros: int) -> datetime:
    """The moment that was kept as this number."""
    return _EPOCH + timedelta(microseconds=micros)
