"""Watches carry one value at most."""

from __future__ import annotations

import pytest

from harborage.tasks.ends import Watch

pytestmark = pytest.mark.anyio


async def test_the_first_end_counts() -> None:
    """Of value, cancel and close only the first one ends a watch."""
    for end in ("deliver", "cancel", "close"):
        watch: Watch[int] = Watch()
        watch.deliver(1) if end == "deliver" else getattr(watch, end)()
        watch.deliver(2)
        watch.cancel()
        watch.close()
        wanted = 1 if end == "deliver" else None
        assert (watch.peek(), await watch.wait(), watch.is_closed) == (wanted, wanted, True)


async def test_giving_up_is_reported_once() -> None:
    """The keeper hears of a watch that is given up, once, and never of one that has ended."""
    received: list[Watch[int]] = []
    given_up: Watch[int] = Watch(received.append)
    ended: Watch[int] = Watch(received.append)
    ended.deliver(1)
    for watch in (given_up, given_up, ended):
        watch.cancel()
    assert received == [given_up]


def test_peeking_needs_no_loop() -> None:
    """A watch can be made, delivered and read where no event loop runs."""
    watch: Watch[int] = Watch()
    assert (watch.peek(), watch.is_closed) == (None, False)
    watch.deliver(5)
    assert watch.peek() == 5
