"""The keys of all servers over one store: which one signs, which ones count, and for how long."""

from __future__ import annotations

from datetime import timedelta

import pytest

from harborage.server.signing import READS_FOR, SIGNS_FOR, SigningKeys
from harborage.state.memory import MemoryStateStore
from harborage.testing.clock import FakeClock

pytestmark = pytest.mark.anyio


@pytest.fixture
def clock() -> FakeClock:
    """The clock by which keys grow old."""
    return FakeClock()


async def test_servers_over_one_store_share_a_key(clock: FakeClock) -> None:
    """The second one finds what the first one has made; both accept it, for the purpose that it signed for alone."""
    store = MemoryStateStore()
    one, other = (SigningKeys(lambda: store, clock) for _ in range(2))
    key = await one.current()
    assert await other.current() == key == await one.current()
    found = await other.find(key.id)
    assert found is not None
    assert found.has_signed(b"x", "a", key.sign(b"x", "a"))
    assert not found.has_signed(b"x", "b", key.sign(b"x", "a"))
    assert not found.has_signed(b"y", "a", key.sign(b"x", "a"))
    assert await SigningKeys(MemoryStateStore, clock).find(key.id) is None


async def test_a_key_that_is_not_known_is_looked_for_once_a_second(clock: FakeClock) -> None:
    """So that whoever makes ids up costs the store nothing."""
    store = MemoryStateStore()
    one, other = (SigningKeys(lambda: store, clock) for _ in range(2))
    assert await one.find("made-up") is None
    key = await other.current()
    assert await one.find(key.id) is None
    clock.advance(1.0)
    assert await one.find(key.id) == key


async def test_keys_are_replaced_and_end(clock: FakeClock) -> None:
    """A week old one signs no more; what it signed is accepted for the longest that a link may be good for."""
    store = MemoryStateStore()
    keys = SigningKeys(lambda: store, clock)
    first = await keys.current()
    clock.advance(SIGNS_FOR.total_seconds() + 1)
    second = await keys.current()
    assert second != first
    assert await keys.find(first.id) == first
    clock.advance((READS_FOR - SIGNS_FOR).total_seconds())
    assert await keys.find(first.id) is None
    assert await keys.find(second.id) == second
    assert timedelta(days=7) < READS_FOR - SIGNS_FOR
