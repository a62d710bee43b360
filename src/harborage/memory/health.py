"""The health of a rolling summary: which change may follow which. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from harborage.memory.errors import MemoryHealthError
from harborage.memory.values import MemoryHealth

__all__ = ["RETRIES", "HealthReason", "check_edge"]

RETRIES: Final = 3
"""After so many failures in a row no summary is asked for when a turn is added."""


class HealthReason(StrEnum):
    """Why the health changed; the wire strings of `memory.health_changed`."""

    SUMMARIZER_SUCCEEDED = "summarizer_succeeded"
    SUMMARIZER_FAILED = "summarizer_failed"
    RETRIES_EXHAUSTED = "retries_exhausted"
    RECOVERY_LOOP_ATTEMPT = "recovery_loop_attempt"
    RECOVERY_BATCH_FAILED = "recovery_batch_failed"
    RECOVERY_LOOP_DRAINED = "recovery_loop_drained"
    RECOVERY_BATCH_DRAINED = "recovery_batch_drained"


_H = MemoryHealth
_EDGES: Final[Mapping[MemoryHealth, frozenset[MemoryHealth]]] = {
    _H.HEALTHY: frozenset({_H.HEALTHY, _H.RETRY}),
    _H.RETRY: frozenset({_H.RETRY, _H.HEALTHY, _H.DEGRADED}),
    _H.DEGRADED: frozenset({_H.DEGRADED, _H.RECOVERING}),
    _H.RECOVERING: frozenset({_H.RECOVERING, _H.HEALTHY, _H.DEGRADED}),
}


def check_edge(prior: MemoryHealth | str, new: MemoryHealth | str) -> None:
    """Accept a change of health that may happen; blank stands for healthy.

    Raises:
        MemoryHealthError: it may not.
    """
    before, after = (MemoryHealth(one or MemoryHealth.HEALTHY) for one in (prior, new))
    if after not in _EDGES[before]:
        raise MemoryHealthError(before, after)
