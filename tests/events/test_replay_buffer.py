"""The replay buffer: what it keeps, and when a cursor is too old."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage.events import CursorTooOldError, Event, EventType, ReplayUnavailableError, TaskPausedPayload
from harborage.events.memory_bus import ReplayBuffer
from harborage.identity import Quadruple
from tests.kit.tables import each_row


def _buffer(size: int, count: int) -> ReplayBuffer:
    buffer = ReplayBuffer(size)
    for sequence in range(1, count + 1):
        buffer.append(Event(EventType.TASK_PAUSED, Quadruple("t", "u", "s"), TaskPausedPayload("x"), None, sequence))
    return buffer


def _after(buffer: ReplayBuffer, sequence: int) -> list[int]:
    return [event.sequence for event in buffer.after(sequence)]


def test_an_empty_buffer_has_nothing_after_anything() -> None:
    """Any cursor into an empty buffer finds nothing."""
    assert _after(ReplayBuffer(4), 0) == _after(ReplayBuffer(4), 99) == []


def test_a_cursor_before_the_buffer_is_too_old() -> None:
    """The error names the oldest event kept and the cursor asked for."""
    with pytest.raises(CursorTooOldError, match="oldest=7 requested=1") as caught:
        _buffer(4, 10).after(1)
    assert (caught.value.oldest, caught.value.requested) == (7, 1)


@each_row("cursor, found", [(0, [7, 8, 9, 10]), (6, [7, 8, 9, 10]), (8, [9, 10]), (10, []), (11, [])])
def test_a_cursor_in_the_buffer_finds_what_is_newer(cursor: int, found: list[int]) -> None:
    """Zero asks for everything; the newest event and beyond find nothing."""
    assert _after(_buffer(4, 10), cursor) == found


def test_a_buffer_of_size_zero_keeps_nothing() -> None:
    """Without a buffer there is no replay."""
    buffer = _buffer(0, 3)
    assert len(buffer) == 0
    with pytest.raises(ReplayUnavailableError):
        buffer.require_replay()


def test_a_cleared_buffer_is_empty() -> None:
    """Clearing forgets every event."""
    buffer = _buffer(4, 3)
    assert len(buffer) == 3
    buffer.clear()
    assert len(buffer) == 0


@given(size=st.integers(1, 20), count=st.integers(0, 40), cursor=st.integers(0, 45))
def test_a_buffer_answers_exactly_or_not_at_all(size: int, count: int, cursor: int) -> None:
    """What comes back is every newer event in order, unless some of them have been forgotten."""
    buffer = _buffer(size, count)
    kept = list(range(1, count + 1))[-size:]
    if kept and 0 < cursor < kept[0] - 1:
        with pytest.raises(CursorTooOldError):
            buffer.after(cursor)
    else:
        assert _after(buffer, cursor) == [sequence for sequence in kept if sequence > cursor]
