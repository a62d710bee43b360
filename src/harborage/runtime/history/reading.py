"""Finds a run in a store by the beginning of its id, reads its journal, and decodes its entries."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from harborage import codec
from harborage.errors import HarborageError
from harborage.runtime.durable.engine import RunNotFoundError
from harborage.runtime.durable.histories import read_value
from harborage.runtime.durable.journal import Entry, JournalCorruptError, Started, decode_entries, encode_entry
from harborage.runtime.durable.model_records import Exchange
from harborage.runtime.durable.reader import RunReader
from harborage.runtime.loop.seam import RunRequest
from harborage.store import RunQuery

if TYPE_CHECKING:
    from harborage.store import RunRow, Store


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


def opened_from(entries: Sequence[Entry]) -> Opened:
    """Return a journal whose entries are decoded.

    Raises:
        JournalCorruptError: there are none, or the first is not the run's request.
    """
    if not entries or not isinstance(entries[0], Started):
        raise JournalCorruptError("entry 0: a run begins with `started`")
    request: RunRequest = read_value(entries[0].request, RunRequest, "entry 0")
    return Opened(request, list(entries))


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


def exchanges_in(recorded: msgspec.Raw | None, where: str) -> list[Exchange]:
    """Return the recorded model calls of a step.

    Raises:
        JournalCorruptError: they cannot be read.
    """
    if not recorded:
        return []
    try:
        found: list[Exchange] = codec.decode(bytes(recorded), list[Exchange])
    except msgspec.DecodeError as error:
        raise JournalCorruptError(f"{where}: {error}") from error
    return found


_SHOWN: Final = 5
_LEAST_END: Final = 4


class RunPrefixError(HarborageError):
    """Several runs have an id that begins or ends so. `wanted` is that part, `found` the ids."""

    def __init__(self, wanted: str = "", found: tuple[str, ...] = ()) -> None:
        self.wanted = wanted
        self.found = found
        shown = ", ".join(found[:_SHOWN])
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        super().__init__(f"{wanted!r} could be any of {len(found)} runs: {shown}{more}; give the last characters")


async def all_runs(store: Store, query: RunQuery) -> builtins.list[RunRow]:
    """Return every run of a query, oldest first."""
    return await RunReader(store).rows(msgspec.structs.replace(query, oldest_first=True))


def is_part(wanted: str, whole: str) -> bool:
    """Whether `wanted` names `whole`, an id: it is how that begins, or at least its last four characters."""
    part = wanted.upper()
    return whole.startswith(part) or (len(part) >= _LEAST_END and whole.endswith(part))


async def find_run(store: Store, wanted: str, *, where: str = "") -> RunRow:
    """Return the run whose id is `wanted`, or begins or ends with it; `where` names the store in errors.

    An id begins with the time: runs that were started together differ at the end, of which four characters are enough.

    Raises:
        RunNotFoundError: there is none.
        RunPrefixError: there are several.
    """
    if not wanted:
        raise _not_found("an empty id names no run", wanted, where)
    exact = (await store.runs(RunQuery(run_ids=(wanted,), limit=1))).rows
    if exact:
        return exact[0]
    found = [one for one in await all_runs(store, RunQuery()) if is_part(wanted, one.run_id)]
    if not found:
        raise _not_found(f"no run {wanted!r}", wanted, where)
    if len(found) > 1:
        raise RunPrefixError(wanted, tuple(one.run_id for one in found))
    return found[0]


def _not_found(what: str, wanted: str, where: str) -> RunNotFoundError:
    place = f" in {where}" if where else ""
    return RunNotFoundError(wanted, message=f"{what}{place}; 'harborage runs list' shows those there are")


async def read_run(store: Store, run_id: str) -> builtins.list[bytes]:
    """Return a run's journal with its large values in their places; empty for an unknown run.

    Raises:
        EntryDamagedError, JournalCorruptError: it is damaged; the text names the entry.
    """
    return [encode_entry(one) for one in await RunReader(store).entries(run_id)]
