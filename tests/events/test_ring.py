"""The replay window: what it keeps, and when it has to admit that it forgot."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage.events import CursorTooOldError, Event, EventType, ReplayUnavailableError, TaskPausedPayload
from harborage.events.ring import Ring
from harborage.identity import Quadruple
from tests.kit.tables import each_row


def _ring(size: int, count: int) -> Ring:
    ring = Ring(size)
    for sequence in range(1, count + 1):
        ring.append(Event(EventType.TASK_PAUSED, Quadruple("t", "u", "s"), TaskPausedPayload("x"), None, sequence))
    return ring


def _after(ring: Ring, sequence: int) -> list[int]:
    return [event.sequence for event in ring.after(sequence)]


def test_an_empty_ring_has_nothing_after_anything() -> None:
    """Any cursor into an empty window finds nothing."""
    assert _after(Ring(4), 0) == _after(Ring(4), 99) == []


def test_a_cursor_before_the_window_is_too_old() -> None:
    """The error names the oldest event kept and the cursor asked for."""
    with pytest.raises(CursorTooOldError, match="oldest=7 requested=1") as caught:
        _ring(4, 10).after(1)
    assert (caught.value.oldest, caught.value.requested) == (7, 1)


@each_row("cursor, found", [(0, [7, 8, 9, 10]), (6, [7, 8, 9, 10]), (8, [9, 10]), (10, []), (11, [])])
def test_a_cursor_in_the_window_finds_what_is_newer(cursor: int, found: list[int]) -> None:
    """Zero asks for everything; the newest event and beyond find nothing."""
    assert _after(_ring(4, 10), cursor) == found


def test_a_ring_of_size_zero_keeps_nothing() -> None:
    """Without a window there is no replay."""
    ring = _ring(0, 3)
    assert len(ring) == 0
    with pytest.raises(ReplayUnavailableError):
        ring.require_replay()


def test_a_cleared_ring_is_empty() -> None:
    """Clearing forgets every event."""
    ring = _ring(4, 3)
    assert len(ring) == 3
    ring.clear()
    assert len(ring) == 0


@given(size=st.integers(1, 20), count=st.integers(0, 40), cursor=st.integers(0, 45))
def test_a_ring_answers_exactly_or_not_at_all(size: int, count: int, cursor: int) -> None:
    """What comes back is every newer event in order, unless some of them have been forgotten."""
    ring = _ring(size, count)
    kept = list(range(1, count + 1))[-size:]
    if kept and 0 < cursor < kept[0] - 1:
        with pytest.raises(CursorTooOldError):
            ring.after(cursor)
    else:
        assert _after(ring, cursor) == [sequence for sequence in kept if sequence > cursor]
