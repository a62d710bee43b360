"""Which change of health may follow which."""

from __future__ import annotations

from itertools import product

import pytest

from harborage.memory import MemoryHealth, MemoryHealthError
from harborage.memory.health import check_edge

_LEGAL = {
    ("healthy", "healthy"),
    ("healthy", "retry"),
    ("retry", "retry"),
    ("retry", "healthy"),
    ("retry", "degraded"),
    ("degraded", "degraded"),
    ("degraded", "recovering"),
    ("recovering", "recovering"),
    ("recovering", "healthy"),
    ("recovering", "degraded"),
}


def test_every_edge_is_legal_or_refused() -> None:
    """The ten edges of the health machine pass, and the six others are refused by name; blank stands for healthy."""
    for prior, new in product(MemoryHealth, repeat=2):
        if (prior, new) in _LEGAL:
            check_edge(prior, new)
            continue
        with pytest.raises(MemoryHealthError, match=f"from {prior} to {new}"):
            check_edge(prior, new)
    check_edge("", "retry")
