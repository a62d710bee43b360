"""Reads what a server sends, whole or in pieces, into the builder of the answer. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from harborage import codec
from harborage.llm.client import Cost, Usage, is_amount, reported_usage
from harborage.llm.errors import MalformedAnswerError

if TYPE_CHECKING:
    from harborage.llm.http_errors import Refusal
    from harborage.llm.streaming import AnswerBuilder


_DONE = b"[DONE]"


class ResponseReader:
    """Reads one answer into `answer`; `refused` makes the error for a body in which the server reports a failure."""

    __slots__ = ("_answer", "_calls", "_details", "_model", "_provider", "_refused")

    def __init__(
        self, answer: AnswerBuilder, refused: Callable[[bytes], Refusal], *, provider: str, model: str
    ) -> None:
        self._answer = answer
        self._refused = refused
        self._provider = provider
        self._model = model
        self._calls = _CallPlaces()
        self._details: dict[tuple[int, str], list[str]] = {}

    def take(self, data: bytes) -> bool:
        """Read one event of a stream; return whether it is the last.

        Raises:
            MalformedAnswerError: it does not follow the protocol.
            ProviderError: the server reports a failure.
        """
        if data == _DONE:
            return True
        chunk = self._decoded(data)
        if chunk.choices:
            choice = chunk.choices[0]
            message = choice.delta or choice.message
            if message is not None:
                self._message(message)
            if choice.finish_reason:
                self._finish(choice.finish_reason, data)
        if chunk.usage:
            self._usage(chunk)
        return False

    def take_last(self, data: bytes) -> None:
        """Read the event at the end of a stream; one that was cut off is ignored."""
        try:
            self.take(data)
        except MalformedAnswerError:
            return

    def take_whole(self, data: bytes) -> None:
        """Read an answer that was not streamed; it is finished even without a finish reason.

        Raises:
            MalformedAnswerError: it does not follow the protocol.
            ProviderError: the server reports a failure, in spite of its status.
        """
        chunk = self._decoded(data)
        choice = chunk.choices[0] if chunk.choices else Choice()
        message = choice.message or choice.delta
        if message is None:
            raise self._malformed("the answer has no message")
        for at, piece in enumerate(message.tool_calls or ()):
            piece.index = at
        self._message(message)
        self._finish(choice.finish_reason or ("tool_calls" if message.tool_calls else "stop"), data)
        self._usage(chunk)

    def end(self) -> None:
        """Pass on the blocks of thinking that came in pieces, at the end of the answer."""
        for _, pieces in sorted(self._details.items()):
            self._answer.reasoning_detail("".join(pieces))
        self._details.clear()

    def _decoded(self, data: bytes) -> Chunk:
        try:
            chunk = decode_chunk(data)
        except (msgspec.DecodeError, UnicodeError) as error:
            raise self._malformed(f"a piece of the answer cannot be read ({error})") from None
        if chunk.is_error:
            raise self._refused(data)
        return chunk

    def _message(self, message: Message) -> None:
        content = message.content
        if content:
            if isinstance(content, str):
                self._answer.content(content)
            else:
                self._blocks(content)
        reasoning = message.reasoning_content or message.reasoning
        if reasoning:
            self._answer.reasoning(reasoning)
        if message.reasoning_details:
            self._thinking(message.reasoning_details, is_streamed=bool(reasoning))
        if message.tool_calls:
            for piece in message.tool_calls:
                self._call(piece)
        if message.refusal:
            self._answer.content(message.refusal)

    def _blocks(self, blocks: list[Block]) -> None:
        for block in blocks:
            if block.thinking:
                self._answer.reasoning(_thinking_text(block.thinking))
            elif block.text:
                self._answer.content(block.text)

    def _thinking(self, details: list[Detail], *, is_streamed: bool) -> None:
        """Keep the pieces of each block, and stream those that came in no other field."""
        for at, detail in enumerate(details):
            text = detail.text or detail.summary
            if not text:
                continue
            place = (at if detail.index is None else detail.index, detail.type)
            self._details.setdefault(place, []).append(text)
            if not is_streamed:
                self._answer.reasoning(text)

    def _call(self, piece: ToolPiece) -> None:
        function = piece.function
        name = (function.name if function is not None else None) or ""
        arguments = function.arguments if function is not None else None
        if arguments is not None and not isinstance(arguments, str):
            arguments = codec.encode(arguments).decode()
        self._answer.tool_call(
            self._calls.place(piece.index, piece.id or "", name), id=piece.id or "", name=name, args=arguments or ""
        )

    def _finish(self, reason: str, data: bytes) -> None:
        if reason == "error":
            raise self._refused(data)
        self._answer.finish(reason)

    def _usage(self, chunk: Chunk) -> None:
        if chunk.usage:
            self._answer.usage(wire_usage(chunk.usage))
            self._answer.cost(wire_cost(chunk.usage))

    def _malformed(self, what: str) -> MalformedAnswerError:
        return MalformedAnswerError(f"{self._provider}: {what}", provider=self._provider, model=self._model)


class _CallPlaces:
    """Finds the call of each piece, for servers that number calls, that number them all 0, and that do not number them.

    A piece with a name and an id of its own begins a call; any other goes on with the call of its number.
    """

    __slots__ = ("_by_id", "_by_index", "_count")

    def __init__(self) -> None:
        self._by_index: dict[int, tuple[int, str]] = {}
        self._by_id: dict[str, int] = {}
        self._count = 0

    def place(self, index: int | None, id: str, name: str) -> int:
        if index is None:
            if id in self._by_id:
                return self._by_id[id]
            is_new = bool(id or name) or not self._count
            return self._begin(index, id) if is_new else self._count - 1
        known = self._by_index.get(index)
        if known is None or (name and id and known[1] and id != known[1]):
            return self._begin(index, id)
        return known[0]

    def _begin(self, index: int | None, id: str) -> int:
        place, self._count = self._count, self._count + 1
        if index is not None:
            self._by_index[index] = (place, id)
        if id:
            self._by_id[id] = place
        return place


def _thinking_text(thinking: str | list[object]) -> str:
    if isinstance(thinking, str):
        return thinking
    return "".join(str(block.get("text") or "") for block in thinking if isinstance(block, dict))


class Function(msgspec.Struct, gc=False):
    """A call's name and arguments; some servers send the arguments as an object."""

    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class ToolPiece(msgspec.Struct):
    """A tool call, or a piece of one."""

    index: int | None = None
    id: str | None = None
    function: Function | None = None


class Detail(msgspec.Struct):
    """A block of thinking, or a piece of one; an encrypted one has neither text nor summary."""

    type: str = ""
    text: str | None = None
    summary: str | None = None
    index: int | None = None


class Block(msgspec.Struct):
    """One block of a content that comes in blocks; a thinking block holds blocks of its own."""

    type: str = ""
    text: str | None = None
    thinking: str | list[Any] | None = None


class Message(msgspec.Struct):
    """A message of the model, or a piece of it."""

    content: str | list[Block] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[Detail] | None = None
    tool_calls: list[ToolPiece] | None = None
    refusal: str | None = None


class Choice(msgspec.Struct):
    """One of the answers; a request asks for one."""

    delta: Message | None = None
    message: Message | None = None
    finish_reason: str | None = None
    index: int = 0


class Chunk(msgspec.Struct):
    """A whole answer, or a piece of a streamed one, or an error in the place of either."""

    choices: list[Choice] | None = None
    usage: dict[str, Any] | None = None
    error: Any = None
    object: str | None = None

    @property
    def is_error(self) -> bool:
        """Whether the server reports a failure."""
        return bool(self.error) or self.object == "error"


decode_chunk = msgspec.json.Decoder(Chunk).decode

_COUNTED = frozenset({"prompt_tokens", "completion_tokens", "total_tokens", "cost"})


def wire_usage(usage: Mapping[str, Any]) -> Usage:
    """Return the tokens of a usage report; its other counts are kept as extras."""
    details = usage.get("completion_tokens_details")
    reasoning = details.get("reasoning_tokens") if isinstance(details, Mapping) else None
    return reported_usage(
        prompt=usage.get("prompt_tokens"),
        completion=usage.get("completion_tokens"),
        reasoning=reasoning or usage.get("reasoning_tokens"),
        total=usage.get("total_tokens"),
        extras={name: value for name, value in usage.items() if name not in _COUNTED and value is not None},
    )


def wire_cost(usage: Mapping[str, Any]) -> Cost:
    """Return the price that the provider reports, in US dollars; zero without one."""
    cost = usage.get("cost")
    if isinstance(cost, Mapping):
        cost = cost.get("total_cost")
    return Cost(total_cost=float(cost), currency="USD") if cost and is_amount(cost) else Cost()
