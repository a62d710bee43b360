"""What these tests share: a call of the run `r-1` at a fixed time."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from harborage.identity import Quadruple
from harborage.testing.clock import FakeClock
from harborage.tools import CallContext


@pytest.fixture
def call() -> CallContext:
    """A call with a whole identity."""
    clock = FakeClock(datetime(2026, 3, 4, 5, 6, 7, 890_000, tzinfo=UTC))
    return CallContext(Quadruple("t", "u", "s", "r-1"), "c-1", "key-1", clock=clock)
