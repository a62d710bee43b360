"""What a run's finish means to the task that it was: the answer's JSON, or the code of its failure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

import msgspec

from harborage import codec

if TYPE_CHECKING:
    from harborage.planner.decisions import Finish
    from harborage.planner.enums import FinishReason

__all__ = [
    "TASK_ERROR_CANCELLED",
    "TASK_ERROR_RUN_LOOP",
    "AnswerEnvelope",
    "extract_answer",
    "task_error_code_for_finish",
]

TASK_ERROR_RUN_LOOP: Final = "runloop_error"
"""The code of a task whose run loop raised."""

TASK_ERROR_CANCELLED: Final = "cancelled"
"""The code of a task whose run was cancelled."""


class AnswerEnvelope(msgspec.Struct, frozen=True):
    """The result of a task that reached its goal. `tool_calls_seen` is the number of steps in its history."""

    answer: str
    finish_reason: str
    tool_calls_seen: int

    @classmethod
    def of(cls, finish: Finish, tool_calls_seen: int) -> Self:
        """The envelope around what `finish` says."""
        return cls(extract_answer(finish), str(finish.reason), tool_calls_seen)

    def encode(self) -> bytes:
        """The JSON that is stored: the keys `answer`, `finish_reason`, `tool_calls_seen`, in this order."""
        return codec.encode(self, "AnswerEnvelope")


def extract_answer(finish: Finish) -> str:
    """The answer in a finish: a text payload, the text under its `answer` key, the reason when there is no payload.

    Any other payload is given as JSON.

    Raises:
        UnserializableError: the payload cannot become JSON.
    """
    match finish.payload:
        case str(text) | {"answer": str(text)}:
            return text
        case None:
            return str(finish.reason)
        case other:
            return codec.encode_text(other, "Finish.payload")


def task_error_code_for_finish(reason: FinishReason | str) -> str:
    """The failure code of a task whose run ended without reaching its goal: the reason, verbatim."""
    return str(reason)
