"""How a planner tells the world about itself."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage.events import EventType, PlannerFinishPayload, RuntimeWarningPayload
from harborage.identity import Quadruple
from harborage.planner import RunContext, publish
from harborage.planner.emission import clipped

WHO = Quadruple("t", "u", "s", "r")
AT = datetime(2026, 1, 1, tzinfo=UTC)
BODY = PlannerFinishPayload(identity=WHO, reason="goal", occurred_at=AT)


def test_an_event_carries_the_run():
    """The event has the run's whole identity and the payload's time."""
    events = []
    publish(RunContext(quadruple=WHO, emit=events.append), EventType.PLANNER_FINISH, BODY)
    (event,) = events
    assert (event.type, event.identity, event.payload, event.occurred_at) == ("planner.finish", WHO, BODY, AT)


def test_a_payload_without_a_time():
    """Where the payload has no time, the bus is left to set it."""
    events = []
    body = RuntimeWarningPayload(message="m", fields={})
    publish(RunContext(quadruple=WHO, emit=events.append), EventType.RUNTIME_WARNING, body)
    assert events[0].occurred_at is None


def test_nobody_listens():
    """Without an emitter telling is nothing."""
    assert publish(RunContext(quadruple=WHO), EventType.PLANNER_FINISH, BODY) is None


def test_a_failing_emitter_is_logged(caplog):
    """A failure to tell is logged with the event's type and goes no further."""

    def emit(event):
        raise OSError("bus gone")

    publish(RunContext(quadruple=WHO, emit=emit), EventType.PLANNER_FINISH, BODY)
    (record,) = caplog.records
    assert record.event_type == "planner.finish"
    assert "bus gone" in caplog.text


def test_interrupts_are_not_swallowed():
    """What is not an ordinary error passes through."""

    def emit(event):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        publish(RunContext(quadruple=WHO, emit=emit), EventType.PLANNER_FINISH, BODY)


@given(st.text(), st.integers(3, 300))
def test_clipped_text_fits(text, limit):
    """Clipped text never exceeds its limit in bytes, and short text is left alone."""
    cut = clipped(text, limit)
    assert len(cut.encode()) <= limit
    if len(text.encode()) <= limit:
        assert cut == text
    else:
        assert cut.endswith("...")
        assert text.startswith(cut[:-3])


def test_clipping_takes_any_text():
    """Text that is no valid Unicode is clipped too."""
    assert clipped("\ud800x") == "?x"
