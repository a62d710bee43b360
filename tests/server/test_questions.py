"""The rules of questions and answers that every way in shares."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from harborage.identity import Quadruple
from harborage.planner import PauseReason
from harborage.runtime.loop.pauses import Pause, PauseDecision, PauseState
from harborage.runtime.pending import Question
from harborage.server.questions import (
    AnsweredBeforeError,
    AnswerUnfitError,
    Dropped,
    Value,
    Verdict,
    Words,
    check_answer,
    how_to_answer,
    is_question,
    question_text,
    read_verdict,
    read_words,
    takes_verdict,
    takes_yes_or_no,
)

CALL = {"tool": "refund", "fingerprint": "f", "args_summary": {"args": {"euros": 5}}}
NUMBER = {"question": "How many?", "schema": {"type": "integer"}}
FLAG = {"question": "Really?", "schema": {"type": "boolean"}}
OPEN = {"question": "Which one?"}


def asked(payload: Any, reason: PauseReason = PauseReason.AWAIT_INPUT, **more: Any) -> Pause:
    """A pause with this question."""
    return Pause(
        token="p-1",
        reason=reason,
        state=PauseState.PAUSED,
        identity=Quadruple("acme", "ada", "s-1", "r-1"),
        paused_at=datetime(2026, 11, 28, tzinfo=UTC),
        payload=payload,
        **more,
    )


def answered(payload: Any, decision: PauseDecision, **answer: Any) -> Pause:
    """The same, once it was answered."""
    pause = asked(payload)
    return Pause(
        token=pause.token,
        reason=pause.reason,
        state=PauseState.RESUMED,
        identity=pause.identity,
        paused_at=pause.paused_at,
        payload={**payload, **answer},
        decision=decision,
    )


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("approve", Verdict(True)),
        (" Yes. ", Verdict(True)),
        ("go ahead!", Verdict(True)),
        ("no", Verdict(False)),
        ("reject because it is too much", Verdict(False, "it is too much")),
        ("no, too much", Verdict(False, "too much")),
        ("Nothing speaks against it", None),
        ("yes, but only 3", None),
        ("", None),
    ],
)
def test_words_are_read_as_a_verdict_or_as_none(text: str, verdict: Verdict | None) -> None:
    """Whatever is neither yes nor no is asked again: nothing is approved by half."""
    assert read_words(text) == verdict


def test_a_verdict_as_data_has_no_other_fields() -> None:
    """True and false are verdicts, too."""
    assert read_verdict(True) == Verdict(True)
    edited = {"approved": True, "reason": "ok", "editedArgs": {"euros": 3}, "remember": "run"}
    assert read_verdict(edited) == Verdict(True, "ok", {"euros": 3}, "run")
    for bad in (None, "yes", {}, {"approved": "yes"}, {"approved": True, "more": 1}):
        with pytest.raises(AnswerUnfitError):
            read_verdict(bad)


def test_only_some_questions_take_a_verdict() -> None:
    """An approval does; a question whose value is true or false is answered by yes and no."""
    for payload, reason, is_verdict, is_yes_or_no in (
        (CALL, PauseReason.AWAIT_INPUT, True, True),
        (OPEN, PauseReason.APPROVAL_REQUIRED, True, True),
        (FLAG, PauseReason.AWAIT_INPUT, False, True),
        (NUMBER, PauseReason.APPROVAL_REQUIRED, False, False),
        (OPEN, PauseReason.AWAIT_INPUT, False, False),
    ):
        question = Question(asked(payload, reason))
        assert (takes_verdict(question), takes_yes_or_no(question)) == (is_verdict, is_yes_or_no), payload
        assert ("approve" in how_to_answer(question)) is is_yes_or_no
    assert "refund" in question_text(Question(asked(CALL)))
    assert question_text(Question(asked(OPEN))) == "Which one?"


def test_a_pause_that_a_control_opened_asks_nothing() -> None:
    """Whoever paused the run resumes it."""
    assert is_question(asked(OPEN))
    assert not is_question(asked({"requested_by": "steering"}))


def test_an_answer_that_comes_again_is_known() -> None:
    """Another one is refused, and so is a verdict on what takes words."""
    assert check_answer(asked(CALL), Verdict(True))
    assert not check_answer(answered(CALL, PauseDecision.APPROVE), Verdict(True))
    assert not check_answer(answered(CALL, PauseDecision.REJECT), Dropped())
    assert not check_answer(answered(FLAG, PauseDecision.RESUME, answer=False), Verdict(False))
    assert not check_answer(answered(NUMBER, PauseDecision.RESUME, answer=3), Value(3))
    assert not check_answer(answered(NUMBER, PauseDecision.RESUME, message="three"), Words("three"))
    for pause, other in (
        (answered(CALL, PauseDecision.APPROVE), Verdict(False)),
        (answered(CALL, PauseDecision.TIMEOUT), Verdict(True)),
        (answered(NUMBER, PauseDecision.RESUME, answer=3), Value(4)),
        (answered(OPEN, PauseDecision.RESUME, answer="a"), Words("b")),
    ):
        with pytest.raises(AnsweredBeforeError):
            check_answer(pause, other)
    with pytest.raises(AnswerUnfitError):
        check_answer(asked(NUMBER), Verdict(True))
