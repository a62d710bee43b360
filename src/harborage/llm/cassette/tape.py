"""The cassette itself: its exchanges, the file they are kept in, and which of them is the answer to a request.

The file is JSON for people to read and to compare: a conversation that goes on is told by what is new in it, and tools
are told once. Writing replaces the file whole.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from harborage import codec
from harborage.llm.cassette.errors import CassetteInvalidError, CassetteMissError, CassetteUnusedError
from harborage.llm.cassette.nearest import difference, nearest, told
from harborage.llm.cassette.normal import Asked, digest

__all__ = ["Answer", "Call", "Cassette", "Exchange", "Failure", "Streamed"]

VERSION: Final = 1


class Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool call of an answer; `args` is the text that the model wrote."""

    id: str
    name: str
    args: str = "{}"


class Answer(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What the model answered; usage and cost by the fields that say something."""

    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[Call, ...] = ()
    finish_reason: str = ""
    usage: dict[str, Any] = {}
    cost: dict[str, Any] = {}


class Failure(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What the call failed with: the error's class, its text, and what it carries."""

    kind: str
    message: str = ""
    fields: dict[str, str | int | float | bool | None] = {}


class Streamed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Pieces of `content` or of `reasoning` that came one after another."""

    kind: str
    pieces: tuple[str, ...]


class Exchange(msgspec.Struct, frozen=True):
    """One request and what came of it: an answer or a failure, after what was streamed."""

    asked: Asked
    stream: tuple[Streamed, ...] = ()
    answer: Answer | None = None
    failure: Failure | None = None


class _Request(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """A request on file. It begins with the messages of the exchange it `follows`; its tools are in the table."""

    messages: list[dict[str, Any]]
    follows: int | None = None
    tools: str = ""
    settings: dict[str, Any] = {}


class _Exchange(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    request: _Request
    stream: tuple[Streamed, ...] = ()
    answer: Answer | None = None
    failure: Failure | None = None


class _File(msgspec.Struct, forbid_unknown_fields=True):
    harborage_cassette: int
    model: str = ""
    exchanges: list[_Exchange] = []
    tools: dict[str, list[dict[str, Any]]] = {}


class Cassette:
    """The exchanges of one file. Equal requests are answered in the order in which they were recorded.

    `model` says which one was recorded, as `provider:model`. One cassette may serve many runs of one event loop.
    """

    def __init__(self, path: str | os.PathLike[str], *, model: str = "", exchanges: Sequence[Exchange] = ()) -> None:
        self.path = Path(path)
        self.model = model
        self.exchanges = list(exchanges)
        self._keys = [exchange.asked.key for exchange in exchanges]
        self._used: set[int] = set()

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Cassette:
        """The cassette in the file `path`.

        Raises:
            CassetteInvalidError: there is no such file, or it is no cassette of a known version.
        """
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise CassetteInvalidError(f"cannot read the cassette {path}: {reason}", path=str(path)) from error
        return cls._decoded(data, path)

    @classmethod
    def _decoded(cls, data: bytes, path: str | os.PathLike[str]) -> Cassette:
        def invalid(reason: object) -> CassetteInvalidError:
            return CassetteInvalidError(f"{path} is no cassette that can be played: {reason}", path=str(path))

        try:
            version = msgspec.json.decode(data, type=_Version).harborage_cassette
            if version != VERSION:
                raise invalid(f"its version is {version}, and {VERSION} is known")
            file = msgspec.json.decode(data, type=_File)
            return cls(path, model=file.model, exchanges=_unfolded(file))
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise invalid(error) from error

    def save(self) -> None:
        """Write the file, its owner's alone; whoever reads it meanwhile sees the old one or the new one."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temp = self.path.with_name(f"{self.path.name}.tmp")
        with open(temp, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(msgspec.json.format(codec.encode(_folded(self)), indent=2) + b"\n")
        temp.replace(self.path)

    def add(self, exchange: Exchange) -> None:
        """Record an exchange, and keep it at once: a recording that is cut short is still one."""
        self.exchanges.append(exchange)
        self._keys.append(exchange.asked.key)
        self._used.add(len(self.exchanges) - 1)
        self.save()

    def take(self, wanted: Asked) -> Exchange:
        """The next recording of a request.

        Raises:
            CassetteMissError: there is none, or none left; the text shows the nearest and what differs.
        """
        key = wanted.key
        same = [at for at, recorded in enumerate(self._keys) if recorded == key]
        for at in same:
            if at not in self._used:
                self._used.add(at)
                return self.exchanges[at]
        raise self._miss(wanted, same)

    @property
    def unused(self) -> tuple[int, ...]:
        """The indices of recordings that nobody asked for."""
        return tuple(at for at in range(len(self.exchanges)) if at not in self._used)

    def assert_all_used(self) -> None:
        """Accept a replay that asked for everything.

        Raises:
            CassetteUnusedError: recordings are left over; the text lists them.
        """
        if not self.unused:
            return
        listed = "\n".join(f"  {at}: {told(self.exchanges[at].asked)}" for at in self.unused)
        raise CassetteUnusedError(
            f"{self.path}: {len(self.unused)} of {len(self.exchanges)} recordings were not asked for:\n{listed}",
            path=str(self.path),
            unused=self.unused,
        )

    def rewind(self) -> None:
        """Play from the beginning."""
        self._used.clear()

    def _miss(self, wanted: Asked, same: list[int]) -> CassetteMissError:
        if same:
            text = f"the request was recorded {len(same)} time(s), and is asked once more: {told(wanted)}"
            return CassetteMissError(f"{self.path}: {text}", path=str(self.path), nearest=same[-1])
        if not self.exchanges:
            return CassetteMissError(f"{self.path}: the cassette is empty", path=str(self.path))
        at = nearest(wanted, [exchange.asked for exchange in self.exchanges], self.unused)
        diff = difference(self.exchanges[at].asked, wanted)
        return CassetteMissError(
            f"{self.path}: this request is not on the cassette, which holds {len(self.exchanges)} "
            f"({len(self.unused)} not asked for yet). Nearest is recording {at}:\n{diff}\n"
            "If the change is meant, record the cassette again.",
            path=str(self.path),
            nearest=at,
            diff=diff,
        )


class _Version(msgspec.Struct):
    harborage_cassette: int


def _folded(cassette: Cassette) -> _File:
    """The file of a cassette: conversations by what is new in them, tools once."""
    tools: dict[str, list[dict[str, Any]]] = {}
    exchanges: list[_Exchange] = []
    for at, exchange in enumerate(cassette.exchanges):
        asked = exchange.asked
        follows, begun = _begun(asked.messages, cassette.exchanges[:at])
        name = digest(asked.tools) if asked.tools else ""
        if name:
            tools.setdefault(name, list(asked.tools))
        messages = [_in_lines(message) for message in asked.messages[begun:]]
        request = _Request(messages, follows, name, asked.settings)
        exchanges.append(_Exchange(request, exchange.stream, exchange.answer, exchange.failure))
    return _File(VERSION, cassette.model, exchanges, tools)


def _in_lines(message: dict[str, Any]) -> dict[str, Any]:
    """A message whose long text is a list of lines: people read it, and comparing tools compare it line by line."""
    text = message.get("text", "")
    return {**message, "text": text.split("\n")} if "\n" in text else message


def _in_one(message: dict[str, Any]) -> dict[str, Any]:
    text = message.get("text")
    if not isinstance(text, list):
        return message
    if not all(isinstance(line, str) for line in text):
        raise ValueError("a message's text is a string or a list of strings")
    return {**message, "text": "\n".join(text)}


def _begun(messages: tuple[dict[str, Any], ...], before: list[Exchange]) -> tuple[int | None, int]:
    """The latest exchange whose messages these begin with, and how many they are."""
    for at in range(len(before) - 1, -1, -1):
        earlier = before[at].asked.messages
        if earlier and messages[: len(earlier)] == earlier:
            return at, len(earlier)
    return None, 0


def _unfolded(file: _File) -> list[Exchange]:
    exchanges: list[Exchange] = []
    for at, one in enumerate(file.exchanges):
        follows = one.request.follows
        if follows is not None and not 0 <= follows < at:
            raise ValueError(f"exchange {at} follows {follows}, which is not before it")
        if one.request.tools and one.request.tools not in file.tools:
            raise ValueError(f"exchange {at} names the tools {one.request.tools!r}, which are not in the table")
        if (one.answer is None) == (one.failure is None):
            raise ValueError(f"exchange {at} needs either an answer or a failure")
        begun = exchanges[follows].asked.messages if follows is not None else ()
        tools = tuple(file.tools[one.request.tools]) if one.request.tools else ()
        messages = map(_in_one, one.request.messages)
        asked = Asked((*begun, *messages), tools, one.request.settings)
        exchanges.append(Exchange(asked, one.stream, one.answer, one.failure))
    return exchanges
