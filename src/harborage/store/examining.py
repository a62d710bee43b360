"""A check of everything that a store keeps, slice by slice: what each slice found, and where the next one begins.

A slice is one short look at a few thousand rows, so it delays no writer, and what it found was so at one moment. Where
tables keep a fact twice, a slice only says whose facts may not agree; `harborage.store.check` then looks at those.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from harborage.identity import Identity
from harborage.store.check import Disagreement
from harborage.store.errors import EntryDamagedError
from harborage.store.rows import EVENT_STEP, ControlRow, PauseRow, SessionRow

Place: TypeAlias = tuple[int, int]
"""Behind which row a slice begins, by the numbers that its table is in the order of."""

BEGINNING: Final[Place] = (0, 0)


class Part(StrEnum):
    """What is checked, in this order."""

    RUNS = "runs"
    ENTRIES = "entries"
    BODIES = "bodies"
    CONTROLS = "controls"
    PAUSES = "pauses"
    GROUPS = "groups"
    SESSIONS = "sessions"
    EVENTS = "events"


SIZES: Final = {
    Part.RUNS: 2000,
    Part.ENTRIES: 5000,
    Part.BODIES: 50,
    Part.CONTROLS: 2000,
    Part.PAUSES: 1000,
    Part.GROUPS: 1000,
    Part.SESSIONS: 1000,
    Part.EVENTS: 5000,
}
"""How many rows a slice looks at."""


class Judges(msgspec.Struct, frozen=True, kw_only=True):
    """Checks of stored bytes, by the code that wrote them: each returns what is wrong, "" for nothing.

    `entry` is given the run's id, the number of the entry from 0 on, and its bytes; `bodies` are the digests that an
    entry names, `run` is the id of the run that has this first entry, "" where it does not say. An event is given by
    its time and its bytes.
    """

    entry: Callable[[str, int, bytes], str]
    bodies: Callable[[bytes], Iterable[str]]
    run: Callable[[bytes], str]
    event: Callable[[int, bytes], str]
    control: Callable[[ControlRow], str]
    pause: Callable[[PauseRow], str]
    session: Callable[[SessionRow], str]


class Examined(msgspec.Struct, frozen=True, kw_only=True):
    """What a slice found, and whose facts are to be looked at: runs by id, sessions, groups by session and id.

    The next slice begins at `after`; None when the part was looked at whole. `last` is the number of its last row now.
    """

    found: Sequence[Disagreement] = ()
    runs: Sequence[str] = ()
    sessions: Sequence[Identity] = ()
    groups: Sequence[tuple[Identity, str]] = ()
    after: Place | None = None
    last: int = 0


def entry_flaw(run_id: str, position: int, data: bytes, *, is_whole: bool, judges: Judges) -> Disagreement:
    """What is wrong with an entry that is not what was kept, or that cannot be read."""
    says = judges.entry(run_id, position - 1, data) if is_whole else ""
    return Disagreement("entry_damaged", run_id, says or str(EntryDamagedError(run_id, position - 1)))


def run_gone(number: int, first_entry: bytes | None, judges: Judges) -> Disagreement:
    """A run whose row is gone while something else of it is kept."""
    run_id = judges.run(first_entry) if first_entry is not None else ""
    run_id = run_id or f"number {number}"
    return Disagreement("run_missing", run_id, f"run {run_id}: its row in harborage_runs is gone")


def session_gone(number: int) -> Disagreement:
    """A session whose row is gone while its events are kept."""
    return Disagreement(
        "session_missing", str(number), f"session number {number}: its row is gone, its events are kept"
    )


def event_flaw(session: str, place: int, sequence: int, says: str) -> Disagreement:
    """What is wrong with an event that is not what was kept, or, as `says` it, that cannot be read."""
    if sequence % EVENT_STEP:
        says = f"its sequence {sequence} is between two stored events"
    return Disagreement(
        "event_damaged", session, f"session {session}, event {place}: {says or 'it is not what was kept'}"
    )


def bodies_flawed(rows: Iterable[tuple[str, bytes, str | None]]) -> list[Disagreement]:
    """The bodies that are not what was kept, of digest, bytes and the run that names them."""
    return [
        Disagreement("body_damaged", run_id or digest, str(EntryDamagedError(run_id or "?", digest=digest)))
        for digest, data, run_id in rows
        if hashlib.sha256(data).hexdigest() != digest
    ]
