"""How an answer of a certain form is read out of what a model wrote."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from harborage.planner.answers import AnswerInvalidError, read_answer
from tests.kit.tables import each_row


class Whole:
    """An object with a whole number `n`; the answer is the number."""

    schema: ClassVar = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

    def check(self, value: Any) -> Any:
        if isinstance(value, dict) and isinstance(value.get("n"), int):
            return value["n"]
        raise AnswerInvalidError("no JSON" if isinstance(value, str) else "Expected `int` - at $.n")


@each_row(
    "text, answer",
    [
        ('{"n": 1}', 1),
        (' \n{"n": 1}\n', 1),
        ('Here it is:\n```json\n{"n": 2}\n```\nDone.', 2),
        ('First {"m": 1}, then {"n": 3}.', 3),
        ('{"n": 1} or rather {"n": 4}', 4),
    ],
)
def test_an_answer_is_found(text: str, answer: int) -> None:
    """As the whole text, in a fenced block, or as the last value in prose that has the form."""
    assert read_answer(Whole(), text) == answer


@each_row("text, reason", [("none", "no JSON"), ('{"n": "x"}', r"\$\.n"), ("```\n{}\n```", r"\$\.n"), ("", "no JSON")])
def test_what_is_wrong_with_an_answer_is_said(text: str, reason: str) -> None:
    """The path where there is JSON of another form, and otherwise that there is none."""
    with pytest.raises(AnswerInvalidError, match=reason):
        read_answer(Whole(), text)
