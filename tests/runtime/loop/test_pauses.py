"""A pause as a value: when it is due, and what resolving makes of it."""

from __future__ import annotations

from datetime import timedelta

from harborage.runtime.pauses import PauseDecision, PauseReason, PauseState
from tests.kit.pauses import NOON, make_pause
from tests.kit.tables import each_row


def test_the_words_are_those_of_the_wire() -> None:
    """States, reasons and decisions are spelled as clients spell them."""
    assert [*PauseState] == ["paused", "resumed"]
    assert [*PauseDecision] == ["approve", "reject", "resume", "timeout"]
    assert [*PauseReason] == ["approval_required", "await_input", "external_event", "constraints_conflict"]


@each_row("decision, goes_on", [*zip(PauseDecision, [True, False, True, False], strict=True)])
def test_an_approval_and_an_answer_let_work_go_on(decision: PauseDecision, goes_on: bool) -> None:
    """A rejection and a timeout end what waited."""
    assert decision.goes_on is goes_on


@each_row("late_by, is_due", [(-1, False), (0, True), (1, True)])
def test_a_pause_is_due_at_its_deadline(late_by: int, is_due: bool) -> None:
    """The deadline itself counts as passed."""
    assert make_pause(deadline=NOON).is_due(NOON + timedelta(microseconds=late_by)) is is_due


def test_without_a_deadline_a_pause_is_never_due() -> None:
    """It waits until a person decides."""
    assert not make_pause().is_due(NOON + timedelta(days=10_000))


def test_a_resolved_pause_is_not_due() -> None:
    """What is resolved cannot expire."""
    resolved = make_pause(deadline=NOON).resolve(PauseDecision.RESUME, None, NOON)
    assert not resolved.is_due(NOON + timedelta(days=1))


def test_the_answer_is_merged_over_the_question() -> None:
    """Keys of the answer win, the others stay, and neither original changes."""
    question = {"ask": "city?", "tries": 1}
    resolved = make_pause(payload=question).resolve(PauseDecision.RESUME, {"tries": 2, "city": "Rome"}, NOON)
    assert resolved.payload == {"ask": "city?", "tries": 2, "city": "Rome"}
    assert question == {"ask": "city?", "tries": 1}
    assert (resolved.state, resolved.decision, resolved.resumed_at) == (PauseState.RESUMED, PauseDecision.RESUME, NOON)


def test_an_answer_to_a_pause_without_a_payload_is_its_payload() -> None:
    """Nothing is invented when one side is missing."""
    assert make_pause().resolve(PauseDecision.RESUME, {"a": 1}, NOON).payload == {"a": 1}
    assert make_pause().resolve(PauseDecision.RESUME, None, NOON).payload is None
    assert make_pause(payload={"a": 1}).resolve(PauseDecision.RESUME, None, NOON).payload == {"a": 1}


def test_a_shown_pause_carries_no_trajectory() -> None:
    """The history is only for the caller who carries the run on."""
    pause = make_pause(trajectory=b"{}")
    assert pause.without_trajectory().trajectory is None
    assert pause.without_trajectory().token == pause.token
