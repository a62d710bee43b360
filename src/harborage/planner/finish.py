"""The planner that finishes at once, and what a finish means for the run's task: its answer or its error code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from harborage import codec
from harborage.planner.context import raise_if_cancelled
from harborage.planner.decisions import Finish, FinishReason
from harborage.planner.errors import InvalidConfigError

if TYPE_CHECKING:
    from harborage.planner.config import FactoryDeps, PlannerConfig
    from harborage.planner.context import RunContext


class FinishPlanner:
    """Ends every run at its first step with `goal`, and with the payload and metadata of `template`.

    The run's id is added to the metadata. Any number of runs may share one instance; identity is not checked.
    """

    def __init__(self, template: Finish | None = None) -> None:
        self._payload = None if template is None else template.payload
        self._metadata = dict(template.metadata or {}) if template is not None else {}

    async def next(self, run: RunContext) -> Finish:
        """The finish.

        Raises:
            asyncio.CancelledError: the caller was cancelled.
        """
        raise_if_cancelled()
        metadata = dict(self._metadata)
        if run.quadruple.run_id:
            metadata["run_id"] = run.quadruple.run_id
        return Finish(FinishReason.GOAL, self._payload, metadata or None)


def make(config: PlannerConfig, deps: FactoryDeps) -> FinishPlanner:
    """A `FinishPlanner`, which asks no model: `extra` has to be empty, and the other options have no effect.

    Raises:
        InvalidConfigError: `extra` is not empty.
    """
    if config.extra:
        names = ", ".join(config.extra)
        raise InvalidConfigError(f"planner.extra: the finish planner has no options of its own; leave out {names}")
    return FinishPlanner()


TASK_ERROR_RUN_LOOP: Final = "runloop_error"
"""The code of a task whose run loop raised."""

TASK_ERROR_CANCELLED: Final = "cancelled"
"""The code of a task whose run was cancelled."""


class AnswerEnvelope(msgspec.Struct, frozen=True):
    """The result of a task that reached its goal. `tool_calls_seen` is the number of steps in its history.

    `output` is the answer as JSON, of an agent that declares the type of its output; unset for any other.
    """

    answer: str
    finish_reason: str
    tool_calls_seen: int
    output: Any = msgspec.UNSET

    @classmethod
    def of(cls, finish: Finish, tool_calls_seen: int) -> Self:
        """The envelope around what `finish` says."""
        return cls(extract_answer(finish), str(finish.reason), tool_calls_seen)

    def encode(self) -> bytes:
        """The JSON that is stored: the keys `answer`, `finish_reason`, `tool_calls_seen`, in this order, then `output`
        where it is set."""
        return codec.encode(self, "AnswerEnvelope")


def extract_answer(finish: Finish) -> str:
    """Return the answer in a finish: a text payload, the text under its `answer` key, the reason without a payload.

    Any other payload is returned as JSON.

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
    """Return the error code of a task whose run ended without reaching its goal: the reason, verbatim."""
    return str(reason)
