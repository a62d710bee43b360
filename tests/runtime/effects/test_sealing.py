"""What a peer gave to be kept is sealed in the record, and opened by every process over the same store."""

from __future__ import annotations

import pytest

from harborage.runtime.effects.sealing import SealBrokenError, Seals
from harborage.state.memory import MemoryStateStore

pytestmark = pytest.mark.anyio


async def test_another_process_opens_what_was_sealed() -> None:
    """The key is in the store; the sealed text holds nothing of the plain one."""
    store = MemoryStateStore()
    sealed = await Seals(store).seal("state of a peer")
    assert "peer" not in sealed
    assert await Seals(store).open(sealed) == "state of a peer"


async def test_a_changed_or_foreign_text_does_not_open() -> None:
    """Neither does one whose key is in another store."""
    store = MemoryStateStore()
    sealed = await Seals(store).seal("state of a peer")
    with pytest.raises(SealBrokenError, match="changed"):
        await Seals(store).open(sealed[:-6] + "AAAA" + sealed[-2:])
    with pytest.raises(SealBrokenError, match="not in this store"):
        await Seals(MemoryStateStore()).open(sealed)
