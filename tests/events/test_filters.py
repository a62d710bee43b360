"""Filters: what a subscriber must name, and what it then gets."""

from __future__ import annotations

import pytest

from harborage.events import Event, EventType, Filter, IdentityScopeRequiredError, TaskPausedPayload, matches
from harborage.events.filters import require_scope
from harborage.identity import Identity, Quadruple
from tests.kit.tables import each_row

WHO = Quadruple("t", "u", "s", "r")
EVENT = Event(EventType.TASK_PAUSED, WHO, TaskPausedPayload("task"))


@each_row("filter", [Filter(), Filter(session="s"), Filter("t", "u"), Filter("t", "", "s"), Filter("", "u", "s", "r")])
def test_a_filter_must_name_a_whole_session(filter: Filter) -> None:
    """Less than tenant, user and session is refused."""
    with pytest.raises(IdentityScopeRequiredError):
        require_scope(filter)


@each_row("filter", [Filter("t", "u", "s"), Filter(admin=True), Filter("t", admin=True)])
def test_a_whole_session_or_an_admin_is_enough(filter: Filter) -> None:
    """A filter that names a session passes, and so does any admin filter."""
    require_scope(filter)


@each_row(
    "filter, is_match",
    [
        (Filter("t", "u", "s"), True),
        (Filter("t", "u", "s", "r"), True),
        (Filter("t", "u", "s", "other"), False),
        (Filter("other", "u", "s"), False),
        (Filter("t", "other", "s"), False),
        (Filter("t", "u", "other"), False),
        (Filter("t", "u", "s", types=("task.paused",)), True),
        (Filter("t", "u", "s", types=(EventType.TASK_PAUSED, EventType.TASK_FAILED)), True),
        (Filter("t", "u", "s", types=("task.failed",)), False),
        (Filter("x", "y", "z", "other", admin=True), True),
        (Filter(admin=True, types=("task.failed",)), False),
    ],
)
def test_a_filter_lets_through_its_session_run_and_types(filter: Filter, is_match: bool) -> None:
    """Each axis narrows; an admin filter narrows by type alone."""
    assert matches(filter, EVENT) is is_match


def test_a_filter_is_made_from_an_identity() -> None:
    """An identity gives the filter of its session, a quadruple with a run that of the run."""
    assert Filter.of(Identity("t", "u", "s")) == Filter("t", "u", "s")
    assert Filter.of(WHO, ("task.paused",)) == Filter("t", "u", "s", "r", ("task.paused",))
    assert Filter.of(Quadruple("t", "u", "s")) == Filter("t", "u", "s")


def test_a_filter_knows_the_envelope_of_its_notices() -> None:
    """Notices about a subscriber carry its triple, without a run."""
    assert Filter.of(WHO).identity == Quadruple("t", "u", "s")
