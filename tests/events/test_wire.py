"""Events as they leave the process."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from harborage import codec
from harborage.codec import UnserializableError
from harborage.events import (
    KEEPALIVE_FRAME,
    PAYLOADS,
    BusDroppedPayload,
    DecisionPayload,
    Event,
    EventType,
    InvalidEventError,
    RedactedMap,
    TaskGroupCompletion,
    TaskGroupMember,
    TaskGroupResolvedPayload,
    TaskPausedPayload,
    ToolInvokedPayload,
    TopologyChangedPayload,
    TopologyNode,
    TopologyProjection,
    Triple,
    comment_frame,
    encode_wire,
    event_frame,
    retry_frame,
    to_wire,
    wire_time,
)
from harborage.events.wire import _may_hold_times
from harborage.identity import Quadruple
from tests.kit.tables import each_row

AT = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
WHO = Quadruple("t", "u", "s", "r")
EVENT = Event(EventType.TASK_PAUSED, WHO, TaskPausedPayload("task"), AT, 7)


def test_an_event_has_a_snake_case_envelope_around_its_payload() -> None:
    """The envelope is flat and in snake case; payload keys are the payload's own."""
    assert to_wire(EVENT) == {
        "type": "task.paused",
        "sequence": 7,
        "occurred_at": "2026-01-02T03:04:05.000678000Z",
        "tenant": "t",
        "user": "u",
        "session": "s",
        "run": "r",
        "payload": {"TaskID": "task"},
    }


def test_bytes_and_data_say_the_same() -> None:
    """The encoded form decodes to the plain form, and has its keys in order."""
    assert json.loads(encode_wire(EVENT)) == to_wire(EVENT)
    assert encode_wire(EVENT).startswith(b'{"type":"task.paused","sequence":7,"occurred_at":"2026')


def test_what_is_empty_is_left_out() -> None:
    """An event without run or extras has no such keys; extras appear when there are some."""
    bare = Event(EventType.TASK_PAUSED, Quadruple("t", "u", "s"), None, AT, 7, {})
    assert sorted(to_wire(bare)) == ["occurred_at", "sequence", "session", "tenant", "type", "user"]
    extra = Event(EventType.TASK_PAUSED, WHO, EVENT.payload, AT, 7, {"producer": "test"})
    assert to_wire(extra)["extra"] == {"producer": "test"}


def test_an_admin_audit_keeps_its_empty_identity() -> None:
    """Tenant, user and session are always there, even when empty."""
    wire = to_wire(Event(EventType.AUDIT_ADMIN_SCOPE_USED, Quadruple(), EVENT.payload, AT, 1))
    assert (wire["tenant"], wire["user"], wire["session"]) == ("", "", "")


def test_a_redacted_payload_is_under_data() -> None:
    """What was redacted arrives as {"Data": …}."""
    event = Event(EventType.RUNTIME_ERROR, WHO, RedactedMap({"message": "m", "at": AT}), AT, 7)
    assert to_wire(event)["payload"] == {"Data": {"message": "m", "at": "2026-01-02T03:04:05.000678Z"}}


def test_a_time_inside_a_payload_is_rfc_3339() -> None:
    """OccurredAt of a payload is a time in UTC that parses back."""
    body = DecisionPayload(identity=WHO, decision_kind="Finish", occurred_at=AT)
    wire: dict[str, Any] = to_wire(Event(EventType.PLANNER_DECISION, WHO, body, AT, 1))["payload"]
    assert datetime.fromisoformat(wire["OccurredAt"]) == AT
    assert wire["Identity"]["RunID"] == "r"


@each_row(
    "moment, text",
    [
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00.000000000Z"),
        (datetime(2026, 1, 2, 1, tzinfo=timezone(timedelta(hours=2))), "2026-01-01T23:00:00.000000000Z"),
        (datetime(999, 1, 2, 3, 4, 5, 999999, tzinfo=UTC), "0999-01-02T03:04:05.999999000Z"),
    ],
)
def test_times_have_nine_digits_in_utc(moment: datetime, text: str) -> None:
    """Whatever the zone and the fraction, the envelope's time has one form."""
    assert wire_time(moment) == text


def test_an_event_that_was_never_published_has_no_wire_form() -> None:
    """Without a time there is nothing to send."""
    with pytest.raises(InvalidEventError, match="never published"):
        encode_wire(Event(EventType.TASK_PAUSED, WHO, EVENT.payload))


def test_a_value_without_a_json_form_is_named() -> None:
    """The error says where in the event the offender sits."""
    event = Event(EventType.RUNTIME_ERROR, WHO, RedactedMap({"fields": {"f": object()}}), AT, 7)
    with pytest.raises(UnserializableError) as caught:
        encode_wire(event)
    assert caught.value.field == "event.payload.Data.fields.f"


def test_a_frame_names_type_and_number() -> None:
    """A frame has the type as its event, the number as its id, one line of data, and a blank line."""
    lines = event_frame(EVENT).split(b"\n")
    assert lines[:2] == [b"event: task.paused", b"id: 7"]
    assert lines[2] == b"data: " + encode_wire(EVENT)
    assert lines[3:] == [b"", b""]


def test_text_with_line_breaks_stays_on_one_line() -> None:
    """Line breaks inside a payload are escaped, so a frame cannot be torn apart."""
    event = Event(EventType.RUNTIME_ERROR, WHO, RedactedMap({"message": "a\n\nevent: b"}), AT, 7)
    assert event_frame(event).count(b"\n") == 4


def test_frames_without_events() -> None:
    """Comments keep a connection alive, and a hint says when to come back."""
    assert KEEPALIVE_FRAME == b": keepalive\n\n"
    assert comment_frame("stream.replay_unavailable why") == b": stream.replay_unavailable why\n\n"
    assert retry_frame(3000) == b"retry: 3000\n\n"


def test_an_event_without_a_number_has_no_id() -> None:
    """A client that resumes keeps the place of the last numbered event."""
    event = Event(EventType.TASK_PAUSED, WHO, TaskPausedPayload("x"), AT)
    assert b"id:" not in event_frame(event)


def test_every_time_is_written_alike() -> None:
    """Those of payloads and of their parts have nine fractional digits as the envelope's; all else is as it was."""
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    completion = TaskGroupCompletion(
        "g", Triple("t", "u", "s"), "o", "complete", at, (TaskGroupMember("m", "complete"),)
    )
    for payload, found in (
        (ToolInvokedPayload(WHO, "pay", "inprocess", at), "StartedAt"),
        (TopologyChangedPayload(TopologyProjection("e", at, (TopologyNode("n", "node"),))), "occurred_at"),
        (TaskGroupResolvedPayload(completion), "ResolvedAt"),
    ):
        wire = to_wire(Event(EventType.TOOL_INVOKED, WHO, payload, at, 7))["payload"]
        plain = codec.to_plain(payload)
        assert json.dumps(wire).replace("05.000000000Z", "05Z") == json.dumps(plain)
        assert f'"{found}": "2026-01-02T03:04:05.000000000Z"' in json.dumps(wire)


def test_payloads_without_times_are_written_as_they_are() -> None:
    """Nothing is copied for them."""
    quick = [kind for kinds in PAYLOADS.values() for kind in kinds if not _may_hold_times(kind)]
    assert TaskPausedPayload in quick
    assert BusDroppedPayload in quick
