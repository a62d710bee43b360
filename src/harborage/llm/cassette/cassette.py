"""A cassette: its exchanges, the file they are kept in, and which of them answers a request.

The file is JSON for people to read and to compare: of a conversation that goes on only the new part is written, and
tools are written once. Saving replaces the whole file.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from harborage import codec
from harborage.llm.cassette.requests import NormalRequest, describe_request, diff_requests, digest, find_nearest
from harborage.llm.errors import LLMConfigError

VERSION: Final = 1


class CassetteError(LLMConfigError):
    """A cassette cannot be used. `path` is its file."""

    def __init__(self, message: str = "", *, path: str = "") -> None:
        self.path = path
        super().__init__(message)


class CassetteInvalidError(CassetteError):
    """A file is no cassette, or one of another version; the text names the file and the place."""


class CassetteMissError(CassetteError):
    """A request is not on the cassette. `nearest` is the index of the most similar recording, `diff` what differs."""

    def __init__(self, message: str = "", *, path: str = "", nearest: int | None = None, diff: str = "") -> None:
        self.nearest = nearest
        self.diff = diff
        super().__init__(message, path=path)


class CassetteUnusedError(CassetteError):
    """Recordings were not asked for. `unused` are their indices."""

    def __init__(self, message: str = "", *, path: str = "", unused: tuple[int, ...] = ()) -> None:
        self.unused = unused
        super().__init__(message, path=path)


class Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool call of an answer; `args` is the text that the model wrote."""

    id: str
    name: str
    args: str = "{}"


class Answer(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The answer of the model, without the fields of usage and cost that are zero."""

    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[Call, ...] = ()
    finish_reason: str = ""
    usage: dict[str, Any] = {}
    cost: dict[str, Any] = {}


class Failure(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The error of a failed call: its class, its text and its attributes."""

    kind: str
    message: str = ""
    fields: dict[str, str | int | float | bool | None] = {}


class Streamed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Pieces of `content` or of `reasoning` that came one after another."""

    kind: str
    pieces: tuple[str, ...]


class Exchange(msgspec.Struct, frozen=True):
    """One request with its answer or its failure, and the deltas streamed before."""

    request: NormalRequest
    stream: tuple[Streamed, ...] = ()
    answer: Answer | None = None
    failure: Failure | None = None


class _Request(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """A request in the file. It begins with the messages of the exchange it `follows`; its tools are in the table."""

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
        self._keys = [exchange.request.key for exchange in exchanges]
        self._used: set[int] = set()

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Cassette:
        """Return the cassette in the file `path`.

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
            return cls(path, model=file.model, exchanges=_from_file(file))
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise invalid(error) from error

    def save(self) -> None:
        """Write the file, readable by its owner alone; a reader sees either the old file or the new one."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temp = self.path.with_name(f"{self.path.name}.tmp")
        with open(temp, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(msgspec.json.format(codec.encode(_to_file(self)), indent=2) + b"\n")
        temp.replace(self.path)

    def add(self, exchange: Exchange) -> None:
        """Record an exchange and save it at once, so that an interrupted recording keeps what it has."""
        self.exchanges.append(exchange)
        self._keys.append(exchange.request.key)
        self._used.add(len(self.exchanges) - 1)
        self.save()

    def take(self, wanted: NormalRequest) -> Exchange:
        """Return the next recording of a request.

        Raises:
            CassetteMissError: there is none, or none left; the text shows the nearest and the difference.
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
        """The indices of recordings that were not asked for."""
        return tuple(at for at in range(len(self.exchanges)) if at not in self._used)

    def assert_all_used(self) -> None:
        """Accept a replay that asked for everything.

        Raises:
            CassetteUnusedError: recordings are left over; the text lists them.
        """
        if not self.unused:
            return
        listed = "\n".join(f"  {at}: {describe_request(self.exchanges[at].request)}" for at in self.unused)
        raise CassetteUnusedError(
            f"{self.path}: {len(self.unused)} of {len(self.exchanges)} recordings were not asked for:\n{listed}",
            path=str(self.path),
            unused=self.unused,
        )

    def _miss(self, wanted: NormalRequest, same: list[int]) -> CassetteMissError:
        if same:
            times = "once" if len(same) == 1 else f"{len(same)} times"
            text = f"the request was recorded {times} and is sent once more: {describe_request(wanted)}"
            return CassetteMissError(f"{self.path}: {text}", path=str(self.path), nearest=same[-1])
        if not self.exchanges:
            return CassetteMissError(f"{self.path}: the cassette is empty", path=str(self.path))
        at = find_nearest(wanted, [exchange.request for exchange in self.exchanges], self.unused)
        diff = diff_requests(self.exchanges[at].request, wanted)
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


def _to_file(cassette: Cassette) -> _File:
    """Return the file of a cassette: the new part of each conversation, and tools once."""
    tools: dict[str, list[dict[str, Any]]] = {}
    exchanges: list[_Exchange] = []
    for at, exchange in enumerate(cassette.exchanges):
        whole = exchange.request
        follows, known = _longest_beginning(whole.messages, cassette.exchanges[:at])
        name = digest(whole.tools) if whole.tools else ""
        if name:
            tools.setdefault(name, list(whole.tools))
        messages = [_split_lines(message) for message in whole.messages[known:]]
        request = _Request(messages, follows, name, whole.settings)
        exchanges.append(_Exchange(request, exchange.stream, exchange.answer, exchange.failure))
    return _File(VERSION, cassette.model, exchanges, tools)


def _split_lines(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message with its text as a list of lines, for people to read and for diffs."""
    text = message.get("text", "")
    return {**message, "text": text.split("\n")} if "\n" in text else message


def _join_lines(message: dict[str, Any]) -> dict[str, Any]:
    text = message.get("text")
    if not isinstance(text, list):
        return message
    if not all(isinstance(line, str) for line in text):
        raise ValueError("a message's text is a string or a list of strings")
    return {**message, "text": "\n".join(text)}


def _longest_beginning(messages: tuple[dict[str, Any], ...], before: list[Exchange]) -> tuple[int | None, int]:
    """Return the latest exchange with whose messages these begin, and the number of these."""
    for at in range(len(before) - 1, -1, -1):
        earlier = before[at].request.messages
        if earlier and messages[: len(earlier)] == earlier:
            return at, len(earlier)
    return None, 0


def _from_file(file: _File) -> list[Exchange]:
    exchanges: list[Exchange] = []
    for at, one in enumerate(file.exchanges):
        follows = one.request.follows
        if follows is not None and not 0 <= follows < at:
            raise ValueError(f"exchange {at} follows {follows}, which is not before it")
        if one.request.tools and one.request.tools not in file.tools:
            raise ValueError(f"exchange {at} names the tools {one.request.tools!r}, which are not in the table")
        if (one.answer is None) == (one.failure is None):
            raise ValueError(f"exchange {at} needs either an answer or a failure")
        beginning = exchanges[follows].request.messages if follows is not None else ()
        tools = tuple(file.tools[one.request.tools]) if one.request.tools else ()
        messages = map(_join_lines, one.request.messages)
        request = NormalRequest((*beginning, *messages), tools, one.request.settings)
        exchanges.append(Exchange(request, one.stream, one.answer, one.failure))
    return exchanges
