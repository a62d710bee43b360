"""The model client of a replay: it answers each step from the recorded calls of that step, without a network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from harborage import codec
from harborage.errors import HarborageError
from harborage.llm import AnswerBuilder, CompleteRequest, CompleteResponse
from harborage.runtime.history.differences import Difference, DifferenceKind, prompt_diff
from harborage.runtime.model_records import Exchange, Prompt, error_of, prompt_of, response_of, slim

_OFF: Final = "the record holds no answers of a model: it was made with records_model=False, or before there was any"


class NotRecordedError(HarborageError):
    """The planner makes a model call that was not recorded."""


class RecordedCall(NamedTuple):
    """One recorded call of the model, with its prompt whole."""

    prompt: Prompt
    exchange: Exchange


class ReplayClient:
    """The client of one replay. `difference` is the first request without a recorded answer."""

    def __init__(self, *, is_any_recorded: bool, clean: Callable[[Any], Any] | None = None) -> None:
        self._is_any_recorded = is_any_recorded
        self._clean = clean
        self._step = 0
        self._calls: list[RecordedCall] = []
        self.difference: Difference | None = None

    def begin(self, step: int, calls: Sequence[RecordedCall]) -> None:
        """Answer the calls of this step from now on."""
        self._step = step
        self._calls = list(calls)

    @property
    def unasked(self) -> list[RecordedCall]:
        """The recorded calls that the step has not made yet."""
        return list(self._calls)

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        """Return the recorded answer to this request.

        Raises:
            NotRecordedError: the request was not recorded.
            LLMError: the recorded error of the call.
        """
        asked = slim(prompt_of(request))
        found = self._find(asked)
        if found is None and self._clean is not None:
            asked = self._clean(asked)
            found = self._find(asked)
        if found is None:
            raise self._differs(asked)
        self._calls.remove(found)
        exchange = found.exchange
        if exchange.failure is not None:
            raise error_of(exchange.failure)
        if exchange.answer is None:
            raise self._miss(DifferenceKind.MODEL, "the model's answer could not be recorded when the run was made")
        with AnswerBuilder(request, provider="replay") as building:
            building.reasoning(exchange.answer.reasoning)
            building.content(exchange.answer.content)
        return response_of(exchange.answer)

    def _find(self, asked: Prompt) -> RecordedCall | None:
        return next((one for one in self._calls if _are_same(one.prompt, asked)), None)

    async def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def _differs(self, asked: Prompt) -> NotRecordedError:
        if self._calls:
            diff = prompt_diff(self._calls[0].prompt, asked)
            return self._miss(DifferenceKind.PROMPT, "the model is asked something else than was recorded", diff)
        what = "the model is asked once more than was recorded" if self._is_any_recorded else _OFF
        return self._miss(DifferenceKind.MODEL, what)

    def _miss(self, kind: DifferenceKind, what: str, diff: str = "") -> NotRecordedError:
        if self.difference is None:
            self.difference = Difference(kind=kind, step=self._step, what=what, diff=diff)
        return NotRecordedError(what)


def _are_same(recorded: Prompt, asked: Prompt) -> bool:
    # A schema made of tuples is recorded with lists; in JSON they are equal.
    return recorded == asked or codec.encode(recorded) == codec.encode(asked)
