"""A run's record, read: its request, its entries, and what their positions mean. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from harborage import codec
from harborage.runtime.durable import RunRequest
from harborage.runtime.engines.histories import read_value
from harborage.runtime.exchanges import Exchange
from harborage.runtime.journal import Entry, JournalCorruptError, Started, decode_entries

__all__ = ["Opened", "Place", "exchanges_in", "open_record", "place_of"]


class Opened(NamedTuple):
    """A record that was read: what the run was asked for, and every entry in order."""

    request: RunRequest
    entries: list[Entry]

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.request.who.run_id


class Place(NamedTuple):
    """Where in its run an entry stands: after how many rollovers, at which question, in which branch of it."""

    history: int
    at: int
    branch: int | None = None


def open_record(record: Sequence[bytes]) -> Opened:
    """The record that these entries are, whole as `Run.history()` gives them.

    Raises:
        JournalCorruptError: there are none, one of them is none, or the first says nothing of what was asked for.
    """
    if not record:
        raise JournalCorruptError("there is no record: a run's first entry is written before it begins")
    first = decode_entries(record[:1], "")[0]
    if not isinstance(first, Started):
        raise JournalCorruptError(f"entry 0: a run begins with `started`, not {type(first).__name__}")
    request: RunRequest = read_value(first.request, RunRequest, "entry 0")
    return Opened(request, [first, *decode_entries(record, request.who.run_id)[1:]])


def place_of(position: str) -> Place:
    """What a position says.

    Raises:
        JournalCorruptError: it is none.
    """
    number, tilde, rest = position.partition("~")
    history, path = (number, rest) if tilde else ("0", position)
    parts = path.split(".")
    try:
        return Place(int(history), int(parts[0]), int(parts[1]) if len(parts) > 1 else None)
    except ValueError:
        raise JournalCorruptError(f"{position!r} is no position") from None


def exchanges_in(heard: msgspec.Raw | None, where: str) -> list[Exchange]:
    """The calls of the model that a step has on record.

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
