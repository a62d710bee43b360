"""Frames of a stream, and the events that they spell."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage.client.frames import MOST_BYTES, Frame, FrameReader, FrameTooLongError, decode_wire
from harborage.events import (
    PAYLOADS,
    Event,
    EventType,
    RedactedMap,
    SafePayload,
    TaskCompletedPayload,
    comment_frame,
    encode_wire,
    event_frame,
    retry_frame,
)
from tests.events.test_wire import AT, WHO
from tests.kit.tables import each_row

EVENT = Event(EventType.TASK_COMPLETED, WHO, TaskCompletedPayload("ünïcode"), AT, 8192, None, 8192)
STREAM = (
    b"retry: 3000\nid: 4096\n\n"
    + event_frame(EVENT)
    + comment_frame("keepalive")
    + b"event: two\r\nid: 9\r\ndata: 1\r\ndata: 2\r\n\r\n"
    + retry_frame(1)
)
FRAMES = [
    Frame("", "4096", "", ""),
    Frame("task.completed", "8192", encode_wire(EVENT).decode(), ""),
    Frame("", None, "", "keepalive"),
    Frame("two", "9", "1\n2", ""),
    Frame("", None, "", ""),
]


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_a_stream_is_the_same_wherever_it_is_cut_into_pieces(cuts: list[int]) -> None:
    """Frames do not depend on how the bytes arrive, also not where a piece ends within a character."""
    reader, places = FrameReader(), [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[one:other] for one, other in pairwise(places)]
    assert [frame for piece in pieces for frame in reader.feed(piece)] == FRAMES


def test_a_frame_without_an_end_is_given_up() -> None:
    """A frame that goes on beyond every event is refused, not kept."""
    reader = FrameReader()
    for _ in range(MOST_BYTES // 2**20):
        assert list(reader.feed(b"x" * 2**20)) == []
    with pytest.raises(FrameTooLongError):
        list(reader.feed(b"x"))


def test_an_event_is_the_one_that_a_local_subscriber_gets() -> None:
    """What the wire spells is the same value, its payload typed."""
    assert decode_wire(encode_wire(EVENT)) == EVENT


@each_row("kind", [kind for kind, classes in PAYLOADS.items() if not issubclass(classes[0], SafePayload)])
def test_a_redacted_payload_is_a_map(kind: EventType) -> None:
    """A payload that the bus redacts is the map that local subscribers get, not the object around it."""
    event = Event(kind, WHO, RedactedMap({"a": [1]}), AT, 4096, {"k": "v"}, 4096)
    assert decode_wire(encode_wire(event)) == event


def test_an_unknown_event_of_a_newer_server_is_read() -> None:
    """A type that this version does not know has its payload as a map; unknown keys are skipped."""
    data = b'{"type":"x.y","sequence":4097,"occurred_at":"2026-01-02T03:04:05.000000001Z","tenant":"t","new":1,'
    found = decode_wire(data + b'"user":"u","session":"s","payload":{"A":1}}')
    assert (found.type, found.payload, found.store_sequence) == ("x.y", RedactedMap({"A": 1}), 0)


@each_row("data", [b"", b"[]", b'{"type":"x"}', b"nope"])
def test_what_is_no_event_is_refused(data: bytes) -> None:
    """Bytes that spell no event are a decoding error."""
    with pytest.raises(msgspec.DecodeError):
        decode_wire(data)
