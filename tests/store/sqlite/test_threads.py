"""A lane answers every call, whatever becomes of its station."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from harborage.state.errors import StoreClosedError
from harborage.store.sqlite.threads import Call, Lane


class Station:
    """Calls each piece of work with the number of its batch; breaks when a batch holds the word."""

    def __init__(self) -> None:
        self.batches = 0
        self.is_closed = False

    def carry_out(self, calls: Sequence[Call]) -> None:
        self.batches += 1
        for call in calls:
            if call.run_id == "break":
                raise RuntimeError("out of order")
            call.result = call.work(self.batches)

    def close(self) -> None:
        self.is_closed = True


async def test_calls_are_carried_out_in_order() -> None:
    """Calls of one loop have their results in the order they were made."""
    lane = Lane("lane", Station)
    await lane.open()
    done: list[int] = []
    await asyncio.gather(*(lane.ask(lambda _, index=index: done.append(index)) for index in range(2500)))
    assert done == list(range(2500))
    await lane.aclose()


async def test_a_connection_that_breaks_leaves_no_caller_waiting() -> None:
    """The callers of the batch get the error, and the lane goes on."""
    lane = Lane("lane", Station)
    await lane.open()
    with pytest.raises(RuntimeError, match="out of order"):
        await lane.ask(lambda batch: batch, "break")
    assert await lane.ask(lambda batch: batch) == 2
    await lane.aclose()


async def test_a_connection_that_cannot_be_made_fails_the_opening() -> None:
    """The error comes out of `open`; the lane is closed."""

    def make() -> Station:
        raise LookupError("no station")

    lane = Lane("lane", make)
    with pytest.raises(LookupError, match="no station"):
        await lane.open()
    assert lane.is_closed
    with pytest.raises(StoreClosedError):
        await lane.ask(lambda _: None)
    await lane.aclose()


async def test_a_lane_that_was_never_opened_can_be_closed() -> None:
    """There is no thread to wait for."""
    lane = Lane("lane", Station)
    await lane.aclose()
    assert lane.is_closed


async def test_an_opening_that_is_cancelled_can_be_closed() -> None:
    """Whoever gives up while the station is made closes the lane as usual; the station is closed, too."""
    station = Station()
    lane = Lane("lane", lambda: station)
    opening = asyncio.ensure_future(lane.open())
    await asyncio.sleep(0)
    opening.cancel()
    await asyncio.gather(opening, return_exceptions=True)
    await lane.aclose()
    assert station.is_closed


async def test_a_close_that_is_cancelled_closes_all_the_same() -> None:
    """The thread ends by itself; closing again waits for it."""
    station = Station()
    lane = Lane("lane", lambda: station)
    await lane.open()
    closing = asyncio.ensure_future(lane.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)
    await lane.aclose()
    assert station.is_closed
