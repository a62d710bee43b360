"""The record of a run: append-only, typed, versioned entries, and where its worker writes them.

An entry is what happened at one position of the run's program. Positions are given out in program order (`7`, and
`7.0.1` inside a branch), so a resumed run finds each answer again. Entries are never changed or removed: one
of an older format is brought up to date each time that it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import msgspec

from harborage import codec
from harborage.errors import HarborageError, error_text
from harborage.events import safe_excerpt

if TYPE_CHECKING:
    from harborage.events import Event
    from harborage.store import Commit, Committed, NewEvent

_MAX_KEPT_TEXT: Final = 4_000

_UNMARKED = 1
"""The format version of an entry without one. It never changes."""

FORMAT_VERSION = 1
"""The format that entries are written in."""

Upcast: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]
"""Brings an entry, decoded from its JSON with everything inside it, to the next format. Pure."""

UPCASTS: Mapping[int, Upcast] = {}
"""How an entry of a format version becomes one of the next: a line for every version before `FORMAT_VERSION`."""


class JournalCorruptError(HarborageError):
    """An entry of a run's journal cannot be read; it names the run and the entry, and nothing was changed."""


class JournalVersionError(JournalCorruptError):
    """An entry was written in a format that this code does not know. The run continues on a worker whose code knows it.

    `run_id`, `entry` (counted from 0) and `version` say what was found.
    """

    def __init__(self, run_id: str = "", entry: int = 0, version: int = 0) -> None:
        self.run_id = run_id
        self.entry = entry
        self.version = version
        found = f"format version {version}, this code reads {FORMAT_VERSION}"
        super().__init__(f"run {run_id}, entry {entry}: {found}; resume it with a newer Harborage")


class _Entry(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="entry", tag=str.lower):
    at: datetime
    position: str = ""
    v: int = _UNMARKED


class Started(_Entry, frozen=True, kw_only=True):
    """The run was started with `request`."""

    request: msgspec.Raw


class Begun(_Entry, frozen=True, kw_only=True):
    """A step with effects is about to run; by `key` the effect recognises a repeated attempt."""

    name: str
    key: str
    payload: msgspec.Raw


class Done(_Entry, frozen=True, kw_only=True):
    """A step ended with this result."""

    name: str
    result: msgspec.Raw


if TYPE_CHECKING:
    _Maybe: TypeAlias = msgspec.Raw | None
else:
    # Of a union with None msgspec would read only the null; a plain Raw is left at its default when it is not there.
    _Maybe = msgspec.Raw


class Failed(_Entry, frozen=True, kw_only=True):
    """A step raised: `error` is the class name, `notes` the error's notes for the record (`for_record`)."""

    name: str
    error: str
    message: str
    notes: _Maybe = None


class Cut(_Entry, frozen=True, kw_only=True):
    """A step was cut short by a hard cancel or the deadline."""

    name: str
    reason: str


class Joined(_Entry, frozen=True, kw_only=True):
    """A set of branches settled; one of `done`, `failed`, `cancelled` for each, in branch order."""

    outcomes: list[str]


class Arrived(_Entry, frozen=True, kw_only=True):
    """Controls, background results or the deadline reached the run at this boundary."""

    arrivals: msgspec.Raw


class Patched(_Entry, frozen=True, kw_only=True):
    """The run met a code change of this name for the first time, and takes the new path from now on."""

    change: str


class Rolled(_Entry, frozen=True, kw_only=True):
    """The run began a new history; earlier entries no longer count, `carry` is its request now."""

    carry: msgspec.Raw


class Waited(_Entry, frozen=True, kw_only=True):
    """The run was parked and went on."""

    woken: msgspec.Raw


class Ended(_Entry, frozen=True, kw_only=True):
    """The run is over: `finish` when the program returned one, else `error` and `message`."""

    finish: _Maybe = None
    error: str = ""
    message: str = ""


Entry = Started | Begun | Done | Failed | Cut | Joined | Arrived | Patched | Rolled | Waited | Ended

_OUTCOMES: Final = (b'{"entry":"done"', b'{"entry":"failed"', b'{"entry":"cut"')


# Made when the first entry is read: a decoder of every kind is costly to make, and a run in memory reads none.
@cache
def _decoder() -> msgspec.json.Decoder[Entry]:
    return msgspec.json.Decoder(Entry)


@cache
def _list_decoder() -> msgspec.json.Decoder[list[Entry]]:
    return msgspec.json.Decoder(list[Entry])


def encode_entry(entry: Entry) -> bytes:
    """The stored form of an entry.

    Raises:
        UnserializableError: a result inside has no JSON form; the path starts at the step's name.
    """
    if entry.v != FORMAT_VERSION:
        entry = msgspec.structs.replace(entry, v=FORMAT_VERSION)
    return codec.encode(entry, getattr(entry, "name", "entry"))


def decode_entry(data: bytes, run_id: str, index: int) -> Entry:
    """The entry that was stored as `data`, the `index`-th of its run, in the format of today.

    Raises:
        JournalVersionError: it is of a newer format than this code knows.
        JournalCorruptError: it is not an entry.
    """
    try:
        entry = _decoder().decode(data)
    except msgspec.DecodeError as error:
        return _upgrade(data, run_id, index, error)
    return entry if entry.v == FORMAT_VERSION else _upgrade(data, run_id, index, None)


def decode_entries(stored: Sequence[bytes], run_id: str, first: int = 0) -> list[Entry]:
    """A run's entries from number `first` on, as `decode_entry` gives each of them.

    Raises:
        JournalVersionError, JournalCorruptError: as `decode_entry` does, for the first that cannot be read.
    """
    try:
        entries = _list_decoder().decode(b"[%b]" % b",".join(stored))
        if len(entries) == len(stored) and all(entry.v == FORMAT_VERSION for entry in entries):
            return entries
    except msgspec.DecodeError:
        pass  # decoded one by one, the damaged one is named
    return [decode_entry(data, run_id, index) for index, data in enumerate(stored, first)]


def is_outcome(stored: bytes) -> bool:
    """Return whether a stored entry is the outcome of a step."""
    return stored.startswith(_OUTCOMES)


def is_outdated(data: bytes) -> bool:
    """Whether an entry was stored in an older format than that of today."""
    return FORMAT_VERSION != _UNMARKED and _version_of(_members_of(data)) < FORMAT_VERSION


def _upgrade(data: bytes, run_id: str, index: int, error: Exception | None) -> Entry:
    """Return the entry of another format in today's; `error` is why it could not be decoded, if it is of today's."""
    found = _members_of(data)
    version = written = _version_of(found)
    while version != FORMAT_VERSION:
        upcast = UPCASTS.get(version)
        if upcast is None:
            raise JournalVersionError(run_id, index, version)
        version += 1
        found = {**upcast(found), "v": version}
    try:
        if written == FORMAT_VERSION and error is not None:
            raise error
        entry = _decoder().decode(codec.encode(found))
    except msgspec.DecodeError as reason:
        raise JournalCorruptError(f"run {run_id}, entry {index}: {reason}") from reason
    return entry


def _members_of(data: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _version_of(members: Mapping[str, Any]) -> int:
    """Return the format version of an entry; without a valid one, that of entries that have none."""
    version = members.get("v")
    return version if type(version) is int else _UNMARKED


def raw(value: Any) -> msgspec.Raw:
    """Return a live value typed as its encoded form, because an entry is encoded once, with all its values."""
    return value  # type: ignore[no-any-return]


def kept_text(error: BaseException) -> str:
    """Return the text of an error for the record: without secrets, and shortened."""
    return safe_excerpt(error_text(error), _MAX_KEPT_TEXT)


class RecordWriter(Protocol):
    """Adds entries to the end of a run's record and makes `changes` of other rows, in one commit: all or none.

    See `RunWriter` for the changes, their events, and what is raised.
    """

    async def __call__(
        self,
        entries: Sequence[bytes],
        changes: Commit,
        events: Sequence[tuple[Event, NewEvent]],
        accepted: Callable[[], None] | None,
        *,
        can_wait: bool = False,
    ) -> Committed: ...


class Record(Protocol):
    """Where the worker of a run writes down what happens. `append_now` is `append` without an await, of a record that
    is kept in memory; None for every other."""

    @property
    def append_now(self) -> Callable[[str, Sequence[bytes]], None] | None: ...

    @property
    def write(self) -> RecordWriter | None:
        """Adds entries and changes other rows in one commit; None for a record that only takes entries."""
        ...

    async def append(self, run_id: str, entries: Sequence[bytes]) -> None:
        """Add entries to the end of a run's record, all or none; they are kept once this returns."""
        ...
