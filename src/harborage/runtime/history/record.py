"""A run's decoded journal: its request, its entries, and the meaning of their positions. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from harborage import codec
from harborage.runtime.durable import RunRequest
from harborage.runtime.engines.histories import read_value
from harborage.runtime.journal import Entry, JournalCorruptError, Started, decode_entries
from harborage.runtime.model_records import Exchange


class Opened(NamedTuple):
    """A decoded journal: the request of the run, and every entry in order."""

    request: RunRequest
    entries: list[Entry]

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.request.who.run_id


class Place(NamedTuple):
    """The position of an entry: the rollovers before it, its step, and its branch in that step."""

    history: int
    at: int
    branch: int | None = None


def open_record(record: Sequence[bytes]) -> Opened:
    """Decode the entries of `Run.history()`.

    Raises:
        JournalCorruptError: there are none, one cannot be read, or the first is not the run's request.
    """
    if not record:
        raise JournalCorruptError("there is no record: a run's first entry is written before it begins")
    first = decode_entries(record[:1], "")[0]
    if not isinstance(first, Started):
        raise JournalCorruptError(f"entry 0: a run begins with `started`, not {type(first).__name__}")
    request: RunRequest = read_value(first.request, RunRequest, "entry 0")
    return Opened(request, [first, *decode_entries(record, request.who.run_id)[1:]])


def place_of(position: str) -> Place:
    """Parse a position.

    Raises:
        JournalCorruptError: it is no position.
    """
    number, tilde, rest = position.partition("~")
    history, path = (number, rest) if tilde else ("0", position)
    parts = path.split(".")
    try:
        return Place(int(history), int(parts[0]), int(parts[1]) if len(parts) > 1 else None)
    except ValueError:
        raise JournalCorruptError(f"{position!r} is no position") from None


def exchanges_in(heard: msgspec.Raw | None, where: str) -> list[Exchange]:
    """Return the recorded model calls of a step.

    Raises:
        JournalCorruptError: they cannot be read.
    """
    if not heard:
        return []
    try:
        found: list[Exchange] = codec.decode(bytes(heard), list[Exchange])
    except msgspec.DecodeError as error:
        raise JournalCorruptError(f"{where}: {error}") from error
    return found
