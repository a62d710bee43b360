"""When a run retries a provider that is down: which failures are retried, how long the waits are, when to stop.

Pure. The client has made its own few retries before; these are the long waits of a run, which leaves memory meanwhile.
"""

from __future__ import annotations

import math
import zlib
from datetime import datetime, timedelta
from typing import Final

from harborage.llm import (
    ConnectionFailedError,
    IncompleteAnswerError,
    ProviderError,
    ProviderTimeoutError,
    ProviderUnavailableError,
    RateLimitedError,
)

STORED_PATIENCE: Final = timedelta(days=1)
"""How long a run over a storage waits for a provider in all, by default."""

MEMORY_PATIENCE: Final = timedelta(minutes=2)
"""The same without a storage, where the caller waits in the same process."""

_FIRST_S: Final = 15.0
_LONGEST_S: Final = 900.0
_MOST_DOUBLINGS: Final = 10
_LONGEST_ASKED_S: Final = 86_400.0
_TEMPORARY: Final = (
    ConnectionFailedError,
    IncompleteAnswerError,
    ProviderTimeoutError,
    ProviderUnavailableError,
    RateLimitedError,
)


def outage_of(error: BaseException | None) -> ProviderError | None:
    """Return the temporary failure of a provider behind `error`; None for any other error, such as a refused key."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, _TEMPORARY):
            return error
        seen.add(id(error))
        error = error.__cause__
    return None


def next_attempt(
    attempts: int, *, since: datetime, now: datetime, patience: timedelta, asked_s: float | None = None, key: str = ""
) -> datetime | None:
    """Return when a step that has failed `attempts` times since `since` is retried; None if its patience has ended.

    The wait is 15 seconds at first and twice as long each time, up to a quarter of an hour, less up to a quarter by
    `key`, so that many runs do not retry at once. A longer wait that the provider asks for is kept, up to a day. The
    last attempt is made when the patience ends.
    """
    latest = since + patience
    if now >= latest:
        return None
    wait_s = min(_LONGEST_S, _FIRST_S * 2.0 ** min(max(0, attempts - 1), _MOST_DOUBLINGS))
    wait_s *= 1.0 - (zlib.crc32(f"{key}/{attempts}".encode()) % 1000) / 4000
    if asked_s is not None and math.isfinite(asked_s):
        wait_s = max(wait_s, min(asked_s, _LONGEST_ASKED_S))
    return min(latest, now + timedelta(seconds=wait_s))


def patience_of(wanted: timedelta | None, *, is_kept: bool) -> timedelta | None:
    """Return how long runs wait for a provider, None for not at all; `wanted` is the runtime's option."""
    if wanted is None:
        return STORED_PATIENCE if is_kept else MEMORY_PATIENCE
    return wanted if wanted > timedelta() else None
