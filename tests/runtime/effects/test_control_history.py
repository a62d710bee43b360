"""The history of applied controls."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage.identity import Identity, IdentityRequiredError, Quadruple, bound
from harborage.runtime.effects.control_history import MAX_CONTROL_SESSIONS
from harborage.runtime.steering import (
    MAX_CONTROL_HISTORY,
    AppliedControl,
    ControlHistory,
    ControlType,
    NoOutstandingPauseError,
    PayloadInvalidError,
)
from tests.kit.tables import each_row

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
OWN = Identity("t", "u", "s")
FOREIGN = Identity("t2", "u", "s")


def line(run: str, err: Exception | None = None) -> AppliedControl:
    return AppliedControl(ControlType.CANCEL, run, NOON, err)


def runs(lines: list[AppliedControl]) -> list[str]:
    return [each.run_id for each in lines]


def test_lines_come_back_oldest_first() -> None:
    """A session's lines are listed in the order they were applied, those of all its runs together."""
    history = ControlHistory()
    for run in ("r1", "r2", "r1"):
        history.record(Quadruple("t", "u", "s", run), line(run))
    assert runs(history.of("s")) == ["r1", "r2", "r1"]


def test_a_session_without_lines_is_empty() -> None:
    """Asking for an unknown session is no error."""
    assert ControlHistory().of("s") == []
    assert ControlHistory().of("s", who=OWN) == []


def test_the_list_belongs_to_the_caller() -> None:
    """Changing a listing does not change the history."""
    history = ControlHistory()
    history.record(OWN, line("r"))
    history.of("s").clear()
    assert runs(history.of("s")) == ["r"]


@given(st.integers(1, 8), st.integers(0, 30))
def test_the_newest_lines_win(limit: int, count: int) -> None:
    """A full session drops its oldest lines, however many came."""
    history = ControlHistory(limit)
    for n in range(count):
        history.record(OWN, line(str(n)))
    assert runs(history.of("s")) == [str(n) for n in range(count)][-limit:]


@each_row("limit", [None, 0, -1])
def test_the_default_is_256_lines(limit: int | None) -> None:
    """Without a limit, or with one that is not positive, the newest 256 are kept."""
    history = ControlHistory() if limit is None else ControlHistory(limit)
    for n in range(MAX_CONTROL_HISTORY + 1):
        history.record(OWN, line(str(n)))
    kept = runs(history.of("s"))
    assert MAX_CONTROL_HISTORY == len(kept) == 256
    assert kept[0] == "1"


def test_failures_are_recorded_with_their_error() -> None:
    """A control that failed is in the history too, with an error of the same type, text and attributes."""
    history = ControlHistory()
    history.record(OWN, line("r", PayloadInvalidError("too long", bound="string", limit=4096, actual=5000)))
    (entry,) = history.of("s")
    assert isinstance(entry.err, PayloadInvalidError)
    assert str(entry.err) == "too long"
    assert (entry.err.bound, entry.err.actual) == ("string", 5000)


def failing() -> None:
    raise NoOutstandingPauseError


def test_the_history_keeps_no_frames_alive() -> None:
    """A recorded error does not hold on to what the run had on its stack."""

    class Heavy:
        pass

    def run(history: ControlHistory) -> weakref.ref[Heavy]:
        heavy = Heavy()
        try:
            failing()
        except NoOutstandingPauseError as error:
            history.record(OWN, line("r", error))
        return weakref.ref(heavy)

    history = ControlHistory()
    alive = run(history)
    gc.collect()
    assert alive() is None
    (entry,) = history.of("s")
    assert isinstance(entry.err, NoOutstandingPauseError)
    assert entry.err.__traceback__ is None


def test_sessions_of_two_tenants_with_one_id_are_strangers() -> None:
    """Who asks decides which of two sessions of the same id is listed."""
    history = ControlHistory()
    history.record(OWN, line("mine"))
    history.record(FOREIGN, line("theirs"))
    assert runs(history.of("s", who=OWN)) == ["mine"]
    assert runs(history.of("s", who=FOREIGN.with_run("r"))) == ["theirs"]
    assert history.of("s", who=Identity("t", "u2", "s")) == []


def test_the_ambient_identity_is_asked_when_none_is_given() -> None:
    """Inside a bound identity only its own sessions are visible, even an only one of that id."""
    history = ControlHistory()
    history.record(FOREIGN, line("theirs"))
    with bound(OWN):
        assert history.of("s") == []
    with bound(FOREIGN):
        assert runs(history.of("s")) == ["theirs"]


def test_an_ambiguous_session_takes_an_identity() -> None:
    """Without any identity a session id that several owners share is refused, never merged."""
    history = ControlHistory()
    history.record(OWN, line("mine"))
    assert runs(history.of("s")) == ["mine"]
    history.record(FOREIGN, line("theirs"))
    with pytest.raises(IdentityRequiredError):
        history.of("s")


def test_the_session_that_was_quiet_longest_goes_first() -> None:
    """The number of sessions is bounded; writing to one keeps it."""
    history = ControlHistory(max_sessions=2)
    for session in ("a", "b", "a", "c"):
        history.record(Identity("t", "u", session), line(session))
    assert len(history) == 2
    assert [runs(history.of(session)) for session in "abc"] == [["a", "a"], [], ["c"]]


@pytest.mark.parametrize("make", [ControlHistory, lambda: ControlHistory(max_sessions=0)])
def test_there_is_a_bound_by_default(make: Callable[[], ControlHistory]) -> None:
    """The history does not grow with the number of sessions a process has ever seen."""
    history = make()
    for n in range(MAX_CONTROL_SESSIONS + 10):
        history.record(Identity("t", "u", str(n)), line("r"))
    assert len(history) == MAX_CONTROL_SESSIONS


def test_a_closed_session_can_be_forgotten() -> None:
    """Forgetting drops one session; forgetting it again does nothing."""
    history = ControlHistory()
    history.record(OWN, line("mine"))
    history.record(FOREIGN, line("theirs"))
    history.forget(OWN)
    history.forget(OWN.with_run("r"))
    assert history.of("s", who=OWN) == []
    assert runs(history.of("s", who=FOREIGN)) == ["theirs"]
