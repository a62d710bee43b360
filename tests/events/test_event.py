"""Events as values: what may be published, spelling, and time in nanoseconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage.events import (
    Event,
    EventType,
    InvalidEventError,
    SequenceProvidedError,
    TaskPausedPayload,
    UnknownEventTypeError,
    unix_ns,
    validate_event,
)
from harborage.events.event import wire_key
from harborage.identity import IdentityRequiredError, Quadruple
from tests.kit.tables import each_row

WHO = Quadruple("t", "u", "s")
BODY = TaskPausedPayload("task")


def test_a_complete_event_is_valid() -> None:
    """A registered type, a whole triple and a payload are enough; the run may be empty."""
    validate_event(Event(EventType.TASK_PAUSED, WHO, BODY))


def test_an_unregistered_type_is_named() -> None:
    """The first check is the type, and the error says which it was."""
    with pytest.raises(UnknownEventTypeError, match=r"order\.lost") as caught:
        validate_event(Event("order.lost", Quadruple(), None, sequence=3))
    assert caught.value.type == "order.lost"


@each_row("who", [Quadruple("", "u", "s"), Quadruple("t", "", "s"), Quadruple("t", "u", "")])
def test_an_incomplete_identity_comes_second(who: Quadruple) -> None:
    """An event must belong to a whole session, whatever else is wrong with it."""
    with pytest.raises(IdentityRequiredError):
        validate_event(Event(EventType.TASK_PAUSED, who, None, sequence=3))


def test_a_number_comes_third() -> None:
    """Only the bus numbers events."""
    with pytest.raises(SequenceProvidedError):
        validate_event(Event(EventType.TASK_PAUSED, WHO, None, sequence=3))


def test_a_missing_payload_comes_last() -> None:
    """An event without a payload is refused."""
    with pytest.raises(InvalidEventError, match=r"task\.paused"):
        validate_event(Event(EventType.TASK_PAUSED, WHO, None))


@each_row(
    "name, key",
    [("task_id", "TaskID"), ("mime", "MIME"), ("authorize_url", "AuthorizeURL"), ("duration_ms", "DurationMS"),
     ("uri", "URI"), ("ok", "OK"), ("from_", "From"), ("kid", "KID"), ("result_n", "ResultN")],
)  # fmt: skip
def test_wire_keys_are_pascal_case_with_upper_case_abbreviations(name: str, key: str) -> None:
    """A field name becomes its wire key by one rule."""
    assert wire_key(name) == key


def test_nanoseconds_count_from_1970() -> None:
    """One microsecond after the epoch is a thousand nanoseconds, in every time zone."""
    moment = datetime(1970, 1, 1, 2, 0, 0, 1, tzinfo=timezone(timedelta(hours=2)))
    assert unix_ns(moment) == 1_000


@given(st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30)))
def test_nanoseconds_are_exact(moment: datetime) -> None:
    """No microsecond is lost on the way to nanoseconds and back."""
    aware = moment.replace(tzinfo=UTC)
    assert datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=unix_ns(aware) // 1_000) == aware
