"""The nine controls, the three scopes, and the record of a control."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime

import msgspec
import pytest

from harborage.identity import Quadruple
from harborage.runtime.steering import AppliedControl, ControlEvent, ControlType, Scope, control_types
from tests.kit.tables import each_row

RUN = Quadruple("t", "u", "s", "r")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

NINE = [
    "APPROVE",
    "CANCEL",
    "INJECT_CONTEXT",
    "PAUSE",
    "PRIORITIZE",
    "REDIRECT",
    "REJECT",
    "RESUME",
    "USER_MESSAGE",
]


def test_there_are_nine_control_types_sorted() -> None:
    """`control_types` gives the nine wire strings in order, and a list of its own each time."""
    assert control_types() == NINE
    control_types().clear()
    assert control_types() == NINE
    assert all(isinstance(each, ControlType) for each in control_types())


def test_scopes_are_ordered_by_power() -> None:
    """A user of the session is below the owner, who is below an administrator, whatever the alphabet says."""
    assert sorted(Scope, reverse=True) == [Scope.ADMIN, Scope.OWNER_USER, Scope.SESSION_USER]
    assert [scope.value for scope in sorted(Scope)] == ["session_user", "owner_user", "admin"]


@each_row("low, high", list(itertools.combinations(Scope, 2)))
def test_scope_comparisons_agree(low: Scope, high: Scope) -> None:
    """All four comparisons give the same order."""
    assert low < high
    assert low <= high
    assert high > low
    assert high >= low
    assert not high < low
    assert not high <= low
    assert low <= low
    assert high >= high


def test_a_scope_does_not_compare_with_plain_text() -> None:
    """Comparing a scope with a string fails instead of falling back to the alphabet, from either side."""
    with pytest.raises(TypeError, match=r"Scope\("):
        assert Scope.ADMIN < "owner_user"
    with pytest.raises(TypeError, match=r"Scope\("):
        assert "owner_user" < Scope.ADMIN  # noqa: SIM300
    assert Scope.ADMIN == "admin"


def test_a_control_needs_four_facts() -> None:
    """A control without payload, id and time is complete."""
    event = ControlEvent(ControlType.CANCEL, RUN, Scope.OWNER_USER, "t")
    assert event.payload is None
    assert event.event_id == ""
    assert event.enqueued_at is None


def test_a_control_survives_json() -> None:
    """A control that was stored as JSON comes back equal, with its type and scope as members."""
    event = ControlEvent(
        ControlType.REDIRECT, RUN, Scope.ADMIN, "other", {"goal": "north"}, event_id="e1", enqueued_at=NOON
    )
    back = msgspec.json.decode(msgspec.json.encode(event), type=ControlEvent)
    assert back == event
    assert back.type is ControlType.REDIRECT
    assert back.caller_scope is Scope.ADMIN


def test_an_applied_control_is_a_success_unless_it_says_why_not() -> None:
    """`err` is None for a control that took effect."""
    assert AppliedControl(ControlType.PAUSE, "r", NOON).err is None
