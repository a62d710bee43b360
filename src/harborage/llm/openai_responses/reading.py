"""What the Responses API answers: a stream of events, or one object with the same pieces in it. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from harborage.llm.client import Usage, reported_usage

if TYPE_CHECKING:
    from harborage.llm.streaming import AnswerBuilder

__all__ = ["Reading"]


class _Part(msgspec.Struct):
    """A piece of a message or of a summary."""

    type: str = ""
    text: str = ""
    refusal: str = ""


class _Item(msgspec.Struct):
    """One thing that the model put out: a message, a call, a summary of its thinking."""

    type: str = ""
    call_id: str | None = ""
    name: str | None = ""
    arguments: str | None = ""
    content: list[_Part] | None = None
    summary: list[_Part] | None = None


class _Response(msgspec.Struct):
    """The state of the whole answer."""

    status: str = ""
    output: list[_Item] = []
    usage: dict[str, Any] | None = None
    incomplete_details: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


class _Event(msgspec.Struct):
    """One event of a stream; each kind has its own few of these fields."""

    type: str = ""
    delta: str | dict[str, Any] = ""
    text: str = ""
    output_index: int = 0
    item: _Item | None = None
    response: _Response | None = None
    error: dict[str, Any] | None = None


_event = msgspec.json.Decoder(_Event)
_response = msgspec.json.Decoder(_Response)

ErrorOf = Callable[[bytes, str], Exception]
"""Makes an error of what the provider said and of the model's name."""


class Reading:
    """Feeds one answer to its builder; `event` and `response` are the two ways it may come."""

    __slots__ = ("_answer", "_broke_off", "_called", "_malformed", "_model", "_refused", "_text_of")

    def __init__(self, answer: AnswerBuilder, broke_off: ErrorOf, malformed: ErrorOf, *, model: str) -> None:
        self._answer = answer
        self._broke_off = broke_off
        self._malformed = malformed
        self._model = model
        self._text_of: int | None = None
        self._called: dict[int, bool] = {}  # calls by place, and whether their arguments have come in pieces
        self._refused = False

    def event(self, data: bytes) -> bool:
        """Take one event of a stream; true when the answer is whole.

        Raises:
            ProviderError: the provider reports a failure, or sends what is none of its events.
        """
        if data == b"[DONE]":
            return True
        try:
            event = _event.decode(data)
        except (msgspec.DecodeError, UnicodeError):
            raise self._malformed(data, self._model) from None
        delta = event.delta if isinstance(event.delta, str) else ""
        match event.type:
            case "response.output_text.delta":
                self._say(delta, event.output_index)
            case "response.refusal.delta":
                self._refused = True
                self._say(delta, event.output_index)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                self._answer.reasoning(delta)
            case "response.reasoning_summary_text.done" | "response.reasoning_text.done":
                self._answer.reasoning_detail(event.text)
            case "response.function_call_arguments.delta":
                self._called[event.output_index] = True
                self._answer.tool_call(event.output_index, args=delta)
            case "response.output_item.added" | "response.output_item.done" if event.item is not None:
                self._call(event.item, event.output_index, is_whole=event.type.endswith("done"))
            case "response.completed" | "response.incomplete" | "response.failed" if event.response is not None:
                self._end(event.response, data)
            case "error":
                raise self._broke_off(data, self._model)
            case _ if event.error is not None and not event.type:
                raise self._broke_off(data, self._model)
            case _:
                pass  # a kind of event that says nothing of the answer, or that is newer than this file
        return self._answer.has_finished

    def response(self, data: bytes) -> None:
        """Take an answer that came in one piece.

        Raises:
            ProviderError: as for `event`.
        """
        try:
            response = _response.decode(data)
        except (msgspec.DecodeError, UnicodeError):
            raise self._malformed(data, self._model) from None
        for index, item in enumerate(response.output):
            for part in item.summary or ():
                self._answer.reasoning_detail(part.text)
            for part in item.content or ():
                self._piece(item, part, index)
            self._call(item, index, is_whole=True)
        self._end(response, data)

    def _piece(self, item: _Item, part: _Part, index: int) -> None:
        if item.type == "reasoning":
            self._answer.reasoning_detail(part.text)
            return
        self._refused = self._refused or bool(part.refusal)
        self._say(part.text or part.refusal, index)

    def _say(self, text: str, index: int) -> None:
        """Text of the message at `index`; a further message begins a paragraph of its own."""
        if text and self._text_of is not None and index != self._text_of:
            self._answer.content("\n\n")
        if text:
            self._text_of = index
        self._answer.content(text)

    def _call(self, item: _Item, index: int, *, is_whole: bool) -> None:
        if item.type != "function_call":
            return
        came_in_pieces = self._called.setdefault(index, False)
        args = item.arguments if is_whole and not came_in_pieces else ""
        self._answer.tool_call(index, id=item.call_id or "", name=item.name or "", args=args or "")

    def _end(self, response: _Response, data: bytes) -> None:
        self._answer.usage(_usage(response.usage or {}))
        if response.status == "failed" or response.error:
            raise self._broke_off(msgspec.json.encode({"error": response.error or {}}), self._model)
        if response.status == "incomplete":
            reason = (response.incomplete_details or {}).get("reason", "")
            self._answer.finish("length" if reason == "max_output_tokens" else str(reason) or "incomplete")
        elif response.status == "completed":
            self._answer.finish("tool_calls" if self._called else "content_filter" if self._refused else "stop")
        else:
            raise self._malformed(data, self._model)


def _usage(told: dict[str, Any]) -> Usage:
    read = told.get("input_tokens_details") or {}
    written = told.get("output_tokens_details") or {}
    extras = {name: value for name, value in {**read, **written}.items() if value and name != "reasoning_tokens"}
    return reported_usage(
        prompt=told.get("input_tokens"),
        completion=told.get("output_tokens"),
        reasoning=written.get("reasoning_tokens"),
        total=told.get("total_tokens"),
        extras=extras,
    )
