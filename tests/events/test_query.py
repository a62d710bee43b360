"""What a client asks for: which scope it needs, which bus filter it becomes, and what it finally gets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from harborage.events import (
    AdminScopeRequiredError,
    Event,
    EventQuery,
    EventType,
    Filter,
    TaskPausedPayload,
    bus_filter,
    needs_admin,
    selects,
)
from harborage.identity import Identity, Quadruple
from tests.kit.tables import each_row

ME = Identity("t", "u", "s")
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
NONE: frozenset[str] = frozenset()


@each_row(
    "query, is_admin",
    [
        (EventQuery(), False),
        (EventQuery(tenant_ids=("t",), user_ids=("u",), session_ids=("s",)), False),
        (EventQuery(tenant_ids=("", "t")), False),
        (EventQuery(session_ids=("elsewhere",)), False),
        (EventQuery(user_ids=("other",), session_ids=("elsewhere",)), True),
        (EventQuery(user_ids=("other",)), True),
        (EventQuery(run_ids=("a", "b")), False),
        (EventQuery(tenant_ids=("x",)), True),
        (EventQuery(tenant_ids=("t", "x")), True),
        (EventQuery(user_ids=("u", "v")), True),
        (EventQuery(session_ids=("s", "z")), True),
    ],
)
def test_reaching_beyond_one_session_needs_a_scope(query: EventQuery, is_admin: bool) -> None:
    """Another tenant, another user, or more than one session; a single other session of one's own does not."""
    assert needs_admin(query, ME) is is_admin


def test_an_empty_query_is_the_caller_s_own_session() -> None:
    """Empty lists and blanks mean the caller's own; blank types are skipped."""
    query = EventQuery(tenant_ids=("",), event_types=("", "task.paused"))
    assert bus_filter(query, ME, NONE) == Filter("t", "u", "s", types=("task.paused",))


def test_one_run_narrows_and_several_do_not() -> None:
    """A run becomes part of the filter only when it is the only one."""
    assert bus_filter(EventQuery(run_ids=("r",)), ME, NONE).run == "r"
    assert bus_filter(EventQuery(run_ids=("r", "q")), ME, NONE).run == ""


@pytest.mark.parametrize("scope", ["admin", "console:fleet"])
def test_either_scope_opens_other_tenants(scope: str) -> None:
    """With one of the two scopes the filter is an admin's, and says what was asked for."""
    query = EventQuery(tenant_ids=("x",))
    with pytest.raises(AdminScopeRequiredError):
        bus_filter(query, ME, frozenset({"tools"}))
    assert bus_filter(query, ME, frozenset({scope})) == Filter("x", "u", "s", admin=True)


def _event(who: Quadruple, at: datetime | None = NOW) -> Event:
    return Event(EventType.TASK_PAUSED, who, TaskPausedPayload("task"), at)


@each_row(
    "query, who, is_selected",
    [
        (EventQuery(tenant_ids=("x", "y")), Quadruple("y", "u", "s"), True),
        (EventQuery(tenant_ids=("x", "y")), Quadruple("t", "u", "s"), False),
        (EventQuery(tenant_ids=("x",)), Quadruple("x", "other", "s"), False),
        (EventQuery(session_ids=("a", "b")), Quadruple("t", "u", "b"), True),
        (EventQuery(session_ids=("a", "b")), Quadruple("t", "u", "s"), False),
        (EventQuery(run_ids=("r",), tenant_ids=("x",)), Quadruple("x", "u", "s", "q"), False),
        (EventQuery(run_ids=("r", "q"), tenant_ids=("x",)), Quadruple("x", "u", "s", "z"), True),
        (EventQuery(event_types=("task.failed",)), Quadruple("t", "u", "s"), False),
        (EventQuery(event_types=("",)), Quadruple("t", "u", "s"), True),
    ],
)
def test_an_answer_holds_only_what_was_listed(query: EventQuery, who: Quadruple, is_selected: bool) -> None:
    """What an admin filter lets through too much is left out again."""
    assert selects(query, ME, _event(who)) is is_selected


def test_since_is_included_and_until_is_not() -> None:
    """A time range is closed at its start and open at its end; an event without a time is in no range."""
    who, second = ME.with_run(""), timedelta(seconds=1)
    query = EventQuery(since=NOW, until=NOW + second)
    assert selects(query, ME, _event(who, NOW))
    assert not selects(query, ME, _event(who, NOW - second))
    assert not selects(query, ME, _event(who, NOW + second))
    assert not selects(query, ME, _event(who, None))
