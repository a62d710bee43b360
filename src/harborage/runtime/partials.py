"""The growing output of a run: what the beginning of its model's answer says already, each time as a whole value."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, runtime_checkable

import msgspec

from harborage.events import EventType, LLMCompletionChunkPayload
from harborage.planner.answers import AnswerInvalidError
from harborage.planner.decisions import ChunkKind

if TYPE_CHECKING:
    from harborage.events import Event

Path: TypeAlias = tuple[str | int, ...]
"""The place of a value in a JSON document: keys and positions from its top."""

_CONTENT: Final = str(ChunkKind.CONTENT)
_RESET: Final = str(ChunkKind.RESET)
_CLOSES: Final = {"{": "}", "[": "]"}
_ENDS: Final = frozenset(",]} \t\r\n")
_NOTHING: Final = object()


@runtime_checkable
class GrowingOutput(Protocol):
    """What makes the output of an agent, of the beginning of its answer, too."""

    def read_partial(self, text: str, document: PartialJson) -> Any:
        """Return the output that the beginning of an answer stands for, `document` its JSON.

        Raises:
            AnswerInvalidError: it stands for none yet.
        """
        ...


class HasOutput(Protocol):
    """What a run gave, here or on a server."""

    @property
    def output(self) -> Any:
        """The output itself."""
        ...


class _Open:
    """A container that is still open: where it may be cut so that what is in it is whole."""

    __slots__ = ("cut", "is_key", "key", "kind", "position")

    def __init__(self, kind: str, cut: int) -> None:
        self.kind = kind
        self.cut = cut
        self.key = ""
        self.is_key = kind == "{"
        self.position = 0


class PartialJson:
    """The first JSON object or array of a text that grows; each character is looked at once."""

    def __init__(self) -> None:
        self._text = ""
        self._at = 0
        self._start = -1
        self._open: list[_Open] = []
        self._is_whole = False
        self._string = -1  # where the open string begins
        self._token = -1  # where the open number or word begins

    @property
    def has_begun(self) -> bool:
        """Whether there is any of it yet."""
        return self._start >= 0

    def feed(self, piece: str) -> None:
        """Take what was added to the text."""
        self._text += piece
        while self._at < len(self._text) and not self._is_whole:
            at = self._at
            self._step(self._text[at])
            if self._at == at and self._string >= 0:
                return

    def candidates(self, grows: Callable[[Path], bool]) -> Iterator[Any]:
        """Yield what the text may stand for so far, the fullest first.

        A text that has not ended is a part of it only where `grows` says that any text may stand there.
        """
        if self._start < 0:
            return
        if self._is_whole:
            yield from self._decoded(self._text[self._start : self._at])
            return
        if self._string >= 0 and not self._is_in_key and grows(self._path):
            yield from self._decoded(self._text[self._start : self._at] + '"' + self._closing(len(self._open)))
        for depth in range(len(self._open), 0, -1):
            cut = self._open[depth - 1].cut
            yield from self._decoded(self._text[self._start : cut] + self._closing(depth))

    @property
    def _is_in_key(self) -> bool:
        return bool(self._open) and self._open[-1].is_key

    @property
    def _path(self) -> Path:
        return tuple(one.key if one.kind == "{" else one.position for one in self._open)

    def _closing(self, depth: int) -> str:
        return "".join(_CLOSES[one.kind] for one in reversed(self._open[:depth]))

    def _decoded(self, text: str) -> Iterator[Any]:
        try:
            yield msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return

    def _step(self, char: str) -> None:
        if self._start < 0:
            if char in _CLOSES:
                self._start = self._at
                self._open.append(_Open(char, self._at + 1))
            self._at += 1
        elif self._string >= 0:
            self._step_in_string()
        elif self._token >= 0 and char in _ENDS:
            self._token = -1
            self._value_ends(self._at)
        elif self._token >= 0:
            self._at += 1
        else:
            self._step_between(char)

    def _step_in_string(self) -> None:
        """Go to the end of the string, or of what there is of it."""
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == "\\":
                length = 6 if self._text[self._at + 1 : self._at + 2] == "u" else 2
                if self._at + length > len(self._text):
                    return  # the rest of the escape comes with the next piece
                self._at += length
                continue
            self._at += 1
            if char == '"':
                top, begin = self._open[-1], self._string
                self._string = -1
                if top.is_key:
                    top.key = next(self._decoded(self._text[begin : self._at]), "")
                else:
                    self._value_ends(self._at)
                return

    def _step_between(self, char: str) -> None:
        top = self._open[-1]
        self._at += 1
        match char:
            case '"':
                self._string = self._at - 1
            case "{" | "[":
                self._open.append(_Open(char, self._at))
            case "}" | "]":
                self._open.pop()
                if self._open:
                    self._value_ends(self._at)
                else:
                    self._is_whole = True
            case ":":
                top.is_key = False
            case ",":
                top.is_key = top.kind == "{"
                top.position += 1
            case _ if not char.isspace():
                self._token = self._at - 1
            case _:
                pass

    def _value_ends(self, at: int) -> None:
        self._open[-1].cut = at


class GrowingAnswer:
    """What a run's model has written of its answer."""

    def __init__(self, decode: Callable[[Any], Any]) -> None:
        output: object = decode
        self._output = output if isinstance(output, GrowingOutput) else None
        self._text = ""
        self._document = PartialJson()

    def restart(self) -> None:
        """Forget what was written: it was no answer, or it is written again."""
        if self._text:
            self._text, self._document = "", PartialJson()

    def grow(self, piece: str) -> Any:
        """Return the output with this piece of the answer; a mark of its own where it is none yet."""
        self._text += piece
        if self._output is None:
            return self._text
        self._document.feed(piece)
        try:
            return self._output.read_partial(self._text, self._document)
        except AnswerInvalidError:
            return _NOTHING


async def read_outputs(
    reading: AsyncGenerator[Event, None], result: Callable[[], Awaitable[HasOutput]], decode: Callable[[Any], Any]
) -> AsyncGenerator[Any, None]:
    """Yield the growing output of the run whose events are read, and at last the whole.

    Raises:
        Exception: as of `Run.outputs`.
    """
    answer = GrowingAnswer(decode)
    last: Any = _NOTHING
    async with aclosing(reading) as events:
        async for event in events:
            piece = event.payload
            if event.type is EventType.PLANNER_DECISION:
                answer.restart()
            if not isinstance(piece, LLMCompletionChunkPayload):
                continue
            if piece.kind == _RESET:
                answer.restart()
            elif piece.kind == _CONTENT and piece.delta:
                found = answer.grow(piece.delta)
                if found is not _NOTHING and (last is _NOTHING or found != last):
                    last = found
                    yield found
    whole = (await result()).output
    if last is _NOTHING or whole != last:
        yield whole
