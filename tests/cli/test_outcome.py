"""Exit codes, answers and the last line for machines."""

from __future__ import annotations

import json
from typing import Any

from harborage.cli.outcome import EXIT_CODES, Ending, answer_of, ending_of, failed, result_line
from harborage.llm import AuthenticationFailedError
from harborage.planner import Finish, FinishReason
from harborage.runtime.durable.engine import RunFailedError
from harborage.runtime.effects.planning import PlannerStepError
from harborage.runtime.loop.errors import MaxStepsExceededError
from harborage.runtime.loop.limits import LimitName
from tests.kit.tables import each_row


@each_row(
    "reason, code",
    [
        (FinishReason.GOAL, 0),
        (FinishReason.NO_PATH, 3),
        (FinishReason.CONSTRAINTS_CONFLICT, 3),
        (FinishReason.DEADLINE_EXCEEDED, 4),
        (FinishReason.CANCELLED, 130),
    ],
)
def test_a_reason_is_a_code(reason: FinishReason, code: int) -> None:
    """Only the goal is success; each other way to end has its code."""
    ending = ending_of(Finish(reason))
    assert (ending.code, ending.reason) == (code, str(reason))
    assert ending.why
    assert code in EXIT_CODES


def test_a_limit_that_ended_a_run_is_named_and_has_the_code_of_what_ran_out() -> None:
    """Of steps, calls, tokens and cost as of time; a planner's own conflict is no limit."""
    for limit in LimitName:
        text = f"the run's limit of 1 {limit} is reached"
        metadata = {"steering_reason": "limit", "limit": str(limit), "detail": text}
        ending = ending_of(Finish(FinishReason.CONSTRAINTS_CONFLICT, metadata=metadata))
        assert (ending.code, ending.why) == (4, text), limit
    assert ending_of(Finish(FinishReason.CONSTRAINTS_CONFLICT, metadata={"limit": "steps"})).code == 3
    metadata = {"max_steps_exceeded": True, "max_steps": 12}  # by a planner with a limit of its own
    ending = ending_of(Finish(FinishReason.NO_PATH, "so far so good", metadata=metadata))
    assert (ending.code, ending.why, ending.answer) == (4, "the limit of 12 steps is reached", "so far so good")


def test_every_reason_has_a_code() -> None:
    """No finish reason is left without one."""
    assert {ending_of(Finish(reason)).code for reason in FinishReason} <= EXIT_CODES.keys()


@each_row(
    "cause, why",
    [
        ("control_reject", "its question was rejected"),
        ("pause_timeout", "its question was not answered in time"),
        ("hard_cancel", "cancelled, now"),
        ("cancel_while_paused", "cancelled while it was paused"),
        ("something new", "cancelled"),
        (["odd"], "cancelled"),
        (None, "cancelled"),
    ],
)
def test_the_reason_of_a_runs_end_is_shown(cause: Any, why: str) -> None:
    """Where steering ended a run, that is said instead of the bare reason."""
    assert ending_of(Finish(FinishReason.CANCELLED, metadata={"steering_reason": cause})).why == why


def failure(error: Exception) -> RunFailedError:
    """A run's failure, the way an engine raises it."""
    raised = RunFailedError("run-1", type(error).__name__, str(error))
    raised.__cause__ = error
    return raised


def test_a_failed_run_says_why() -> None:
    """A run that failed is code 1 with the text of its error."""
    ending = ending_of(failure(ValueError("no such thing")))
    assert (ending.code, ending.error, ending.why) == (1, "ValueError", "no such thing")
    assert ending.message == "the run failed: no such thing"
    assert ending.is_unexplained


def test_a_model_that_refuses_says_why_itself() -> None:
    """What a provider refused is shown in its own words, which name the fix, and needs no traceback."""
    error = PlannerStepError(0, "openai: status 401: no; check the key in OPENAI_API_KEY")
    error.__cause__ = AuthenticationFailedError("openai: status 401: no; check the key in OPENAI_API_KEY")
    ending = ending_of(failure(error))
    assert (ending.code, ending.error) == (1, "AuthenticationFailedError")
    assert ending.message == "the run failed: openai: status 401: no; check the key in OPENAI_API_KEY"
    assert not ending.is_unexplained


def test_a_failure_without_a_cause_still_says_something() -> None:
    """After a restart the error itself is gone; its recorded text is shown."""
    assert "boom" in ending_of(RunFailedError("run-1", "ValueError", "boom")).message


def test_running_out_of_steps_is_no_failure() -> None:
    """A run that used up its steps is code 4."""
    ending = ending_of(failure(MaxStepsExceededError("9 steps without a finish", max_steps=9)))
    assert (ending.code, ending.message) == (4, "9 steps without a finish")


@each_row(
    "payload, answer",
    [
        (None, ""),
        ("text", "text"),
        ({"answer": "text", "more": 1}, "text"),
        ({"answer": 1}, '{\n  "answer": 1\n}'),
        ([1, "naïve"], '[\n  1,\n  "naïve"\n]'),
        (7, "7"),
    ],
)
def test_the_answer_is_the_text_of_the_payload(payload: Any, answer: str) -> None:
    """Text is the answer, so is the text under `answer`; other payloads are shown as JSON."""
    assert answer_of(payload) == answer


def test_an_answer_without_a_json_form_is_spelled() -> None:
    """A payload that is no JSON is shown all the same."""
    assert "object at" in answer_of(object())


def test_the_result_line_of_a_finish() -> None:
    """The last line names the run, the reason, the code and what the planner finished with."""
    ending = ending_of(Finish(FinishReason.GOAL, {"answer": "x"}, {"cost": 1}))
    assert json.loads(result_line(ending, "run-1")) == {
        "type": "result",
        "run": "run-1",
        "reason": "goal",
        "exit_code": 0,
        "answer": "x",
        "payload": {"answer": "x"},
        "metadata": {"cost": 1},
    }


def test_the_result_line_of_a_failure() -> None:
    """A failure has an error in the place of an answer."""
    assert json.loads(result_line(failed("TargetError", "no file", 2), "")) == {
        "type": "result",
        "run": "",
        "reason": "failed",
        "exit_code": 2,
        "error": {"type": "TargetError", "message": "no file"},
    }


def test_a_result_that_is_no_json_keeps_its_answer() -> None:
    """A payload without a JSON form does not cost the reader the line."""
    ending = Ending(code=0, reason="goal", answer="x", payload=object())
    assert json.loads(result_line(ending, "run-1"))["answer"] == "x"
