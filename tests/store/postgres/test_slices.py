"""Lists that no index answers look at some runs at a time; together their pages find what a look at all would."""

from __future__ import annotations

from typing import Any

import pytest

from harborage.store.memory import MemoryStore
from harborage.store.sql import ways
from harborage.testing.clock import FakeClock
from tests.kit.slices import check_lists, fill


async def test_pages_of_slices_find_every_run_once(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """For any owner and any filter, in both orders; counts agree unless they are capped."""
    monkeypatch.setattr(ways, "SLICE", 4)
    whole = MemoryStore(clock=(clock := FakeClock()))
    await fill(whole, clock)
    store = await place.open(clock=(clock := FakeClock()))
    await fill(store, clock)
    await check_lists(store, whole)
