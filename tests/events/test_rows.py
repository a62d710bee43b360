"""Events as rows of the store, and back."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from harborage.events import Event, EventType, PauseRequestedPayload, RedactedMap, SafePayload, TaskPausedPayload
from harborage.events.errors import EventCorruptError
from harborage.events.rows import decode_event, decode_for_wire, encode_event, typed_event
from harborage.events.wire import encode_wire
from harborage.identity import Identity, Quadruple
from harborage.store import EventRow, NewEvent
from tests.kit.tables import each_row

WHO = Quadruple("t", "u", "s", "r")
AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def back(kept: NewEvent | bytes, place: int = 1, *, is_damaged: bool = False) -> Event:
    """Return the event that is decoded from what was encoded."""
    new = NewEvent(type="x.y", data=kept) if isinstance(kept, bytes) else kept
    row = EventRow(
        sequence=place * 4096,
        who=WHO.identity,
        place=place,
        run_id=new.run_id,
        type=new.type,
        at=new.at,
        data=new.data,
        is_damaged=is_damaged,
    )
    return decode_event(row)


def test_the_bytes_are_plain_json() -> None:
    """Payload and extra; what is a column of its own is not repeated."""
    kept = encode_event(Event(EventType.TASK_PAUSED, WHO, TaskPausedPayload("x"), AT, extra={"a": "b"}))
    assert kept == NewEvent(
        type="task.paused", data=b'{"payload":{"TaskID":"x"},"extra":{"a":"b"}}', run_id="r", at=1767323045678901
    )


def test_everything_comes_back() -> None:
    """To the microsecond; the payload as a map, with both its numbers."""
    event = Event(EventType.TASK_PAUSED, WHO, TaskPausedPayload("x"), AT, extra={"a": "b"})
    wanted = Event(EventType.TASK_PAUSED, WHO, RedactedMap({"TaskID": "x"}), AT, 7, {"a": "b"}, 7 * 4096)
    assert back(encode_event(event), 7) == wanted


def test_a_redacted_payload_is_the_same_again() -> None:
    """It is not wrapped a second time."""
    event = Event(EventType.RUNTIME_ERROR, WHO.identity.with_run(""), RedactedMap({"message": "x"}), AT)
    assert back(encode_event(event)).payload == event.payload


def test_a_payload_that_is_no_object_is_wrapped() -> None:
    """So that every payload is a map."""
    assert back(b'{"payload":[1]}').payload == RedactedMap({"value": [1]})


def test_a_damaged_row_is_no_event() -> None:
    """Though it can be read."""
    with pytest.raises(EventCorruptError, match="event 9 of session s"):
        back(b'{"payload":{}}', 9, is_damaged=True)


@each_row("data", [b"", b"{}", b"[]", b'{"payload":{},"extra":1}', b"\xff"])
def test_what_cannot_be_read_is_named(data: bytes) -> None:
    """The error says which event of which session."""
    with pytest.raises(EventCorruptError, match="event 9 of session s"):
        back(data, 9)


def test_a_typed_payload_can_be_had_again() -> None:
    """For a type that has one safe class, the event is equal to the one that was published."""
    event = Event(EventType.PAUSE_REQUESTED, WHO, PauseRequestedPayload("token", "await_input"), AT, 1, None, 4096)
    assert typed_event(back(encode_event(event))) == event


@each_row(
    "event",
    [
        Event(EventType.TASK_PAUSED, WHO, TaskPausedPayload("x"), AT, 1),
        Event(EventType.RUNTIME_ERROR, WHO, RedactedMap({"message": "x"}), AT, 1),
        Event("order.shipped", WHO, RedactedMap({"x": 1}), AT, 1),
        Event(EventType.TASK_PAUSED, WHO, RedactedMap({"Other": 1}), AT, 1),
        Event(EventType.AUDIT_ADMIN_SCOPE_USED, Identity("t", "u", "s").with_run(""), RedactedMap({}), AT, 1),
    ],
)
def test_what_has_no_typed_form_stays_as_it_is(event: Event) -> None:
    """Typed already, plain, a product's own, of another shape, or of several shapes."""
    assert typed_event(event) is event


class _TimesAndParts(SafePayload, frozen=True):
    at: datetime
    names: tuple[str, ...] = ()
    who: Quadruple = WHO


@each_row(
    "payload",
    [
        TaskPausedPayload("x"),
        PauseRequestedPayload("token", "await_input"),
        _TimesAndParts(AT, ("ä", "b"), WHO),
        RedactedMap({"message": "x", "fields": {"a": [1, 2.5, None]}}),
        RedactedMap({}),
    ],
)
def test_on_the_wire_it_is_what_was_published(payload: Any) -> None:
    """Byte for byte: the times too, and what a plain payload became, also where no class of the type is known."""
    event = Event("of.ours", WHO, payload, AT, 7, {"a": "b"}, 7 * 4096)
    new = encode_event(event)
    row = EventRow(sequence=7 * 4096, who=WHO.identity, place=7, run_id="r", type="of.ours", at=new.at, data=new.data)
    assert encode_wire(decode_for_wire(row), 9) == encode_wire(event, 9)
    assert encode_wire(decode_event(row), 9) == encode_wire(event, 9)
    assert encode_event(decode_event(row)) == new
