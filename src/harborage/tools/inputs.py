"""What a call in a peer may need of a person before it goes on: values that a run records, and the answers to them.

A tool whose peer returns such a need instead of a result (`ToolResult(InputNeeded(…))`) is called again with the
answers, as `CallContext.given`: minutes or days later, in this process or another.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec


class InputAction(StrEnum):
    """What a person did with a question."""

    ACCEPT = "accept"
    DECLINE = "decline"
    CANCEL = "cancel"


class InputQuestion(msgspec.Struct, frozen=True, omit_defaults=True):
    """One question. `key` is the peer's name of it, `schema` that of the answer; with a `url` the person goes there,
    and says only whether that is done. One that is `declined` is put to no person, for this reason."""

    key: str
    message: str
    schema: dict[str, Any] = {}
    url: str = ""
    declined: str = ""


class InputNeeded(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a call needs before it goes on. `state` is the peer's own, given back as it is; nobody is shown it.

    `round` counts the times that the call has needed something, from 1.
    """

    source: str
    tool: str
    questions: tuple[InputQuestion, ...] = ()
    state: str = ""
    round: int = 1

    def __repr__(self) -> str:
        return f"InputNeeded({self.source!r}, {self.tool!r}, {len(self.questions)} questions)"


class InputAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer to the question of this key; `content` is there where it was accepted. `declined` says why a question
    was put to no person."""

    key: str
    action: InputAction
    content: Any = None
    declined: str = ""


class InputGiven(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answers that a call goes on with, and the state of the peer."""

    answers: tuple[InputAnswer, ...] = ()
    state: str = ""
    round: int = 1

    def __repr__(self) -> str:
        return f"InputGiven({len(self.answers)} answers)"
