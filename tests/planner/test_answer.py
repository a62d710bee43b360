"""What a finish means to its task."""

from __future__ import annotations

import json

import pytest

from harborage.planner import (
    TASK_ERROR_CANCELLED,
    TASK_ERROR_RUN_LOOP,
    AnswerEnvelope,
    Finish,
    FinishReason,
    extract_answer,
    task_error_code_for_finish,
)
from tables import each_row


def test_envelope_bytes_are_exact():
    """The keys come in a fixed order, whatever their values."""
    envelope = AnswerEnvelope(answer="42", finish_reason="goal", tool_calls_seen=3)
    assert envelope.encode() == b'{"answer":"42","finish_reason":"goal","tool_calls_seen":3}'


def test_envelope_of_a_finish():
    """The envelope carries the extracted answer, the reason's wire string and the number of steps."""
    envelope = AnswerEnvelope.of(Finish(FinishReason.GOAL, {"answer": "yes"}), 2)
    assert envelope == AnswerEnvelope("yes", "goal", 2)
    assert json.loads(envelope.encode())["finish_reason"] == "goal"


@each_row(
    "payload, answer",
    [
        ("text", "text"),
        ("", ""),
        ({"answer": "inner", "more": 1}, "inner"),
        ({"answer": ""}, ""),
        ({"answer": 42}, '{"answer":42}'),
        ({"answer": None, "it's": [True, None]}, '{"answer":null,"it\'s":[true,null]}'),
        ({}, "{}"),
        (None, "goal"),
        (42, "42"),
        ([1, 2], "[1,2]"),
        (False, "false"),
    ],
)
def test_extracting_the_answer(payload, answer):
    """Text is the answer, so is the text under `answer`; nothing gives the reason, anything else is JSON."""
    assert extract_answer(Finish(FinishReason.GOAL, payload)) == answer


@pytest.mark.parametrize("reason", [reason for reason in FinishReason if reason is not FinishReason.GOAL])
def test_the_code_is_the_reason(reason):
    """A run that did not reach its goal fails its task with its reason as the code, verbatim."""
    assert task_error_code_for_finish(reason) == reason.value
    assert type(task_error_code_for_finish(reason)) is str


def test_codes_of_runs_without_a_finish():
    """A loop that raised and a run that was cancelled have codes of their own."""
    assert (TASK_ERROR_RUN_LOOP, TASK_ERROR_CANCELLED) == ("runloop_error", "cancelled")
