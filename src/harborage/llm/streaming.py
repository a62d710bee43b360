"""Builds an answer from the pieces that a provider streams, however it cuts them.

A driver feeds the pieces and takes the answer. The rules for all providers are here: deltas are passed on as they come,
`done` comes exactly once, calls are merged by their index, and a stream without an end of the answer is a failed call.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from harborage.llm.client import CompleteRequest, CompleteResponse, Cost, OnDelta, ToolCallStructured, Usage
from harborage.llm.errors import IncompleteAnswerError

_NO_COST = Cost()
_NO_USAGE = Usage()


class _Call:
    """The part of a tool call that has come."""

    __slots__ = ("args", "id", "name")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.args: list[str] = []


class AnswerBuilder:
    """Collects one streamed answer: `with AnswerBuilder(request, provider=…) as answer: … return answer.answer()`.

    Leaving the block calls the callbacks with `done`, on errors and cancellation too; the one for reasoning only when
    there was reasoning. An exception of a callback ends the block, after the other callback was called.
    """

    __slots__ = (
        "_calls",
        "_content",
        "_cost",
        "_details",
        "_finish",
        "_is_done",
        "_model",
        "_on_content",
        "_on_reasoning",
        "_provider",
        "_reasoning",
        "_usage",
    )

    def __init__(self, request: CompleteRequest, *, provider: str, model: str = "") -> None:
        self._provider = provider
        self._model = model or request.model
        self._on_content: OnDelta | None = request.on_content if request.stream else None
        self._on_reasoning: OnDelta | None = request.on_reasoning if request.stream else None
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._details: list[str] = []
        self._calls: dict[int, _Call] = {}
        self._cost = _NO_COST
        self._usage = _NO_USAGE
        self._finish = ""
        self._is_done = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def content(self, delta: str) -> None:
        """Add a piece of the answer's text."""
        if not delta:
            return
        self._content.append(delta)
        if self._on_content is not None:
            self._on_content(delta, False)

    def reasoning(self, delta: str) -> None:
        """Add a piece of the model's thinking."""
        if not delta:
            return
        self._reasoning.append(delta)
        if self._on_reasoning is not None:
            self._on_reasoning(delta, False)

    def reasoning_detail(self, text: str) -> None:
        """Add a whole block of thinking, as some providers report at the end; blocks win over the streamed pieces."""
        if text:
            self._details.append(text)

    def tool_call(self, index: int, *, id: str = "", name: str = "", args: str = "") -> None:
        """Add a piece of the tool call at `index`: the first id and name stay, arguments are joined."""
        call = self._calls.get(index)
        if call is None:
            call = self._calls[index] = _Call()
        call.id = call.id or id
        call.name = call.name or name
        if args:
            call.args.append(args)

    def usage(self, usage: Usage) -> None:
        """Set the usage; the latest report with a count stays."""
        if usage.prompt_tokens or usage.completion_tokens or usage.total_tokens:
            self._usage = usage

    def cost(self, cost: Cost) -> None:
        """Set the cost that the provider reports; the latest that is not zero stays."""
        if cost.total_cost:
            self._cost = cost

    def finish(self, reason: str) -> None:
        """Set the reason for which the provider has finished the answer."""
        self._finish = reason or self._finish

    @property
    def has_finished(self) -> bool:
        """Whether the provider has finished the answer."""
        return bool(self._finish)

    def answer(self) -> CompleteResponse:
        """Return the whole answer.

        Raises:
            IncompleteAnswerError: the provider has not finished it.
        """
        if not self._finish:
            what = "before it was finished" if self._content or self._calls or self._reasoning else "without a word"
            raise IncompleteAnswerError(
                f"{self._provider}: the answer ended {what}; the connection was cut, or the server broke off",
                provider=self._provider,
                model=self._model,
            )
        calls = tuple(_structured(self._calls[index], at) for at, index in enumerate(sorted(self._calls)))
        return CompleteResponse(
            content="".join(self._content),
            tool_calls=calls,
            reasoning="\n\n".join(self._details) if self._details else "".join(self._reasoning),
            cost=self._cost,
            usage=self._usage,
            finish_reason=self._finish,
        )

    def close(self) -> None:
        """Call the callbacks with `done`. Closing twice does nothing."""
        if self._is_done:
            return
        self._is_done = True
        try:
            if self._on_reasoning is not None and (self._reasoning or self._details):
                self._on_reasoning("", True)
        finally:
            if self._on_content is not None:
                self._on_content("", True)


def _structured(call: _Call, at: int) -> ToolCallStructured:
    """Return the call as one value; a call without an id gets one from its position."""
    return ToolCallStructured(
        id=call.id or f"call_{at}", name=call.name, args="".join(call.args).encode() or b"{}", index=at
    )
