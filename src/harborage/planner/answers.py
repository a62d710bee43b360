"""The form that a run's answer must have: what a planner shows its model, and how it reads the model's text.

The planner over a model asks again, within its limits of repair, when an answer cannot be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol, runtime_checkable

import msgspec

from harborage.planner.errors import PlannerError

_WRAPPED: Final = "value"


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


class AnswerSchema(msgspec.Struct, frozen=True, omit_defaults=True):
    """The form of an answer that one run is asked for, in place of its agent's: a schema that a record can hold.

    A value that is no object is wrapped in an object with the one field `value`.
    """

    schema: dict[str, Any]
    is_wrapped: bool = False
    takes_text: bool = False

    def check(self, value: Any) -> Any:
        """As of `AnswerFormat`."""
        from harborage.tools.errors import ToolInvalidArgsError  # loaded by the first such answer
        from harborage.tools.schema import schema_validator

        if isinstance(value, str) and not self.takes_text:
            raise AnswerInvalidError("it is no JSON; write one JSON value that matches the schema, and nothing else")
        is_bare = self.is_wrapped and not (isinstance(value, dict) and value.keys() == {_WRAPPED})
        whole = {_WRAPPED: value} if is_bare else value
        try:
            schema_validator(self.schema, "output")(whole)
        except ToolInvalidArgsError as error:
            raise AnswerInvalidError(str(error)) from error
        return whole[_WRAPPED] if self.is_wrapped else whole


def read_answer(answer: AnswerFormat, text: str) -> Any:
    """Return the answer in the text of a model: the whole text, a fenced block, or the last JSON value in prose.

    Raises:
        AnswerInvalidError: there is none of this form.
    """
    from harborage.planner.repair.declarative import find_json  # loaded by the first answer of a model

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
