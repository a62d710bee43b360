"""Server-sent events of the protocol, read piece by piece as they come, and the events that they spell. No I/O."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

import msgspec

from harborage.errors import HarborageError
from harborage.events import Event, RedactedMap, typed_event
from harborage.identity import Quadruple
from harborage.store import EVENT_STEP

MOST_BYTES: Final = 32 * 1024 * 1024
"""How many bytes one frame has at most."""

_DATA: Final = "Data"


class FrameTooLongError(HarborageError):
    """A frame of the stream has more bytes than any event may have; the connection is given up."""


class Frame(msgspec.Struct, frozen=True):
    """What stands between two blank lines of a stream: `id` as it was sent, None without one; `comment` is a notice."""

    event: str = ""
    id: str | None = None
    data: str = ""
    comment: str = ""


class FrameReader:
    """Cuts what arrives into frames; a piece may end anywhere, also within a character."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._lines: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> Iterator[Frame]:
        """Yield the frames that are whole with this piece.

        Raises:
            FrameTooLongError: one goes on for too long.
        """
        self._rest.append(piece)
        self._size += len(piece)
        if b"\n" in piece:
            *lines, rest = b"".join(self._rest).split(b"\n")
            self._rest = [rest]
            for line in lines:
                if line := line.removesuffix(b"\r"):
                    self._lines.append(line)
                elif self._lines:
                    yield _frame(self._lines)
                    self._lines = []
            self._size = len(rest) + sum(map(len, self._lines))
        if self._size > MOST_BYTES:
            raise FrameTooLongError()


def _frame(lines: list[bytes]) -> Frame:
    event, number, data, comments = "", None, [], []
    for line in lines:
        name, _, raw = line.partition(b":")
        value = raw.removeprefix(b" ").decode("utf-8", "replace")
        match name:
            case b"":
                comments.append(value)
            case b"event":
                event = value
            case b"id" if "\0" not in value:
                number = value
            case b"data":
                data.append(value)
            case _:
                pass  # `retry`, which is advice, and fields that this version does not know
    return Frame(event, number, "\n".join(data), "\n".join(comments))


class _WireEvent(msgspec.Struct, frozen=True):
    type: str
    sequence: int
    occurred_at: datetime
    tenant: str = ""
    user: str = ""
    session: str = ""
    run: str = ""
    payload: Any = None
    extra: dict[str, str] | None = None


_decoder: Final = msgspec.json.Decoder(_WireEvent)


def decode_wire(data: str | bytes) -> Event:
    """Return the event that a server sent, its payload typed as a local subscriber gets it.

    Its `sequence` is the number on the wire; `store_sequence` is the same of a stored event, 0 of a streamed delta.

    Raises:
        msgspec.DecodeError: it is no event.
    """
    wire = _decoder.decode(data)
    who = Quadruple(wire.tenant, wire.user, wire.session, wire.run)
    stored = 0 if wire.sequence % EVENT_STEP else wire.sequence
    body = wire.payload
    if body is None:
        return Event(wire.type, who, None, wire.occurred_at, wire.sequence, wire.extra, stored)
    plain = body if isinstance(body, dict) else {"value": body}
    if plain.keys() == {_DATA} and isinstance(plain[_DATA], dict):
        plain = plain[_DATA]  # a payload that the bus had to redact
    return typed_event(Event(wire.type, who, RedactedMap(plain), wire.occurred_at, wire.sequence, wire.extra, stored))
