"""The form that a run's answer must have: what a planner shows its model, and how it reads the model's text.

The planner over a model asks again, within its limits of repair, when an answer cannot be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from harborage.planner.errors import PlannerError
from harborage.planner.repair.declarative import find_json


class AnswerInvalidError(PlannerError):
    """The text of a model is no answer of the form that was asked for; the message says what to change."""


@runtime_checkable
class AnswerFormat(Protocol):
    """The form of an answer. `schema` is its JSON schema, an object at the top, as providers want it."""

    @property
    def schema(self) -> Mapping[str, Any]:
        """The JSON schema of an answer."""
        ...

    def check(self, value: Any) -> Any:
        """Return the answer, as plain JSON, that `value` stands for.

        `value` is plain JSON that should match the schema, or a text where no JSON was found.

        Raises:
            AnswerInvalidError: it is none; the message says to a model what to change.
        """
        ...


def read_answer(answer: AnswerFormat, text: str) -> Any:
    """Return the answer in the text of a model: the whole text, a fenced block, or the last JSON value in prose.

    Raises:
        AnswerInvalidError: there is none of this form.
    """
    failed: AnswerInvalidError | None = None
    for value in find_json(text):
        try:
            return answer.check(value)
        except AnswerInvalidError as error:
            failed = failed or error
    try:
        return answer.check(text)
    except AnswerInvalidError as error:
        raise failed or error from None
