"""Lists that no index answers look at some runs at a time; together their pages find what a look at all would."""

from __future__ import annotations

from pathlib import Path

import pytest

from harborage.store.memory import MemoryStore
from harborage.store.sql import ways
from harborage.store.sqlite import SQLiteStore
from harborage.testing.clock import FakeClock
from tests.kit.slices import check_lists, fill


@pytest.mark.parametrize("size", [4, 20_000])
async def test_pages_of_slices_find_every_run_once(path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Whoever's runs are asked for, and whatever narrows them, in both orders; counts agree unless they are capped."""
    monkeypatch.setattr(ways, "SLICE", size)
    whole = MemoryStore(clock=(clock := FakeClock()))
    await fill(whole, clock)
    store = await SQLiteStore.open(path, clock=(clock := FakeClock()))
    await fill(store, clock)
    await check_lists(store, whole)
    await store.aclose()
