"""The rules of a check of everything in the tables of a database, slice by slice; it repairs nothing.

Each rule is a generator that yields the statements it needs and receives their rows, so that a driver carries them out
in its own way, awaited or not.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar
from zlib import crc32

from harborage.identity import Identity
from harborage.store.check import Disagreement, check_pause
from harborage.store.errors import EntryDamagedError
from harborage.store.examining import (
    SIZES,
    Examined,
    Judges,
    Part,
    Place,
    bodies_flawed,
    entry_flaw,
    event_flaw,
    run_gone,
    session_gone,
)
from harborage.store.rows import EVENT_STEP, ControlRow
from harborage.store.sql.lists import Statement
from harborage.store.times import LATEST

if TYPE_CHECKING:
    from harborage.store.rows import PauseRow, SessionRow

T = TypeVar("T")

Asking: TypeAlias = Generator[Statement, Sequence[Any], T]
"""Yields statements, is sent the rows of each, and returns what it makes of them."""


class AuditRows(Protocol):
    """How a driver reads the rows of the statements that are its own, damaged ones as far as possible."""

    def suspects(self, rows: Sequence[Any], after: int, until: int) -> Sequence[tuple[str, str]]:
        """The id of each suspect run between two numbers, with what is wrong with its row, "" if it can be read."""
        ...

    def pause(self, row: Any) -> PauseRow:
        """The pause of a row of `pauses`, whose last column is left out."""
        ...

    def session(self, row: Any) -> SessionRow:
        """The session of a row of `sessions`."""
        ...

    def text(self, data: Any) -> str:
        """The text of a column; "" for none."""
        ...


class Audit:
    """Checks slices of the tables, by the statements of a driver and those that all share."""

    def __init__(self, sql: Mapping[str, str]) -> None:
        self._sql = sql
        self._parts: Final[Mapping[Part, Callable[[Place, Judges, AuditRows], Asking[Examined]]]] = {
            Part.RUNS: self._runs,
            Part.ENTRIES: self._entries,
            Part.BODIES: self._bodies,
            Part.CONTROLS: self._controls,
            Part.PAUSES: self._pauses,
            Part.GROUPS: self._groups,
            Part.SESSIONS: self._sessions,
            Part.EVENTS: self._events,
        }

    def examine(self, part: Part, judges: Judges, after: Place, rows: AuditRows) -> Asking[Examined]:
        """Look at a slice of one part of the tables, behind the row of these numbers."""
        return self._parts[part](after, judges, rows)

    def _runs(self, after: Place, _: Judges, reader: AuditRows) -> Asking[Examined]:
        until = yield from self._value("runs_until", after=after[0], size=SIZES[Part.RUNS])
        if until is None:
            return Examined()
        text = f"{self._sql['suspect_run_columns']}\n{self._sql['suspect_runs']}"
        rows = yield Statement(text, {"after": after[0], "until": until, "latest": LATEST})
        suspects = reader.suspects(rows, after[0], until)
        found = [Disagreement("run_damaged", run_id, damage) for run_id, damage in suspects if damage]
        runs = [run_id for run_id, damage in suspects if not damage]
        return (yield from self._examined(Part.RUNS, (until, 0), found, runs=runs))

    def _entries(self, after: Place, judges: Judges, reader: AuditRows) -> Asking[Examined]:
        found: list[Disagreement] = []
        gone: dict[int, None] = {}
        rows = yield self._slice(Part.ENTRIES, after)
        for _, _, run, position, crc, data, is_gone in rows:
            is_whole = crc32(data) == crc
            if is_gone:
                gone[run] = None
            elif not is_whole or judges.entry("", position - 1, data):
                name = yield from self._name(run, reader)
                found.append(entry_flaw(name, position, data, is_whole=is_whole, judges=judges))
            else:
                found += yield from self._bodies_gone(run, position, judges.bodies(data), reader)
        found += yield from self._runs_gone(gone, judges)
        return (yield from self._examined(Part.ENTRIES, _last_place(rows), found))

    def _bodies(self, after: Place, _: Judges, reader: AuditRows) -> Asking[Examined]:
        rows = yield self._slice(Part.BODIES, after)
        found = bodies_flawed((reader.text(digest), data, reader.text(run_id)) for _, digest, data, run_id in rows)
        return (yield from self._examined(Part.BODIES, _last_number(rows), found))

    def _controls(self, after: Place, judges: Judges, reader: AuditRows) -> Asking[Examined]:
        found: list[Disagreement] = []
        gone: dict[int, None] = {}
        rows = yield self._slice(Part.CONTROLS, after)
        for num, run, run_name, event_name, sent_at, data, is_unread, is_gone in rows:
            run_id, event_id = reader.text(run_name), reader.text(event_name)
            control = ControlRow(number=num, run_id=run_id, event_id=event_id, type="", sent_at=sent_at, data=data)
            if is_gone:
                gone[run] = None
            elif is_unread and (says := judges.control(control)):
                found.append(Disagreement("control_damaged", run_id, says))
        found += yield from self._runs_gone(gone, judges)
        return (yield from self._examined(Part.CONTROLS, _last_number(rows), found))

    def _pauses(self, after: Place, judges: Judges, reader: AuditRows) -> Asking[Examined]:
        found: list[Disagreement] = []
        rows = yield self._slice(Part.PAUSES, after)
        for *columns, is_of_no_run in rows:
            pause = reader.pause(columns)
            if says := judges.pause(pause):
                found.append(Disagreement("pause_damaged", pause.token, says))
            else:
                found += check_pause(pause, is_known=not is_of_no_run)
        return (yield from self._examined(Part.PAUSES, _last_number(rows), found))

    def _groups(self, after: Place, _: Judges, reader: AuditRows) -> Asking[Examined]:
        rows = yield self._slice(Part.GROUPS, after)
        suspects = [(Identity(*who), group_id) for _, *who, group_id, is_suspect in rows if is_suspect]
        return (yield from self._examined(Part.GROUPS, _last_number(rows), groups=suspects))

    def _sessions(self, after: Place, judges: Judges, reader: AuditRows) -> Asking[Examined]:
        rows = yield self._slice(Part.SESSIONS, after)
        if not rows:
            return Examined()
        sessions = [reader.session(row) for row in rows]
        counted = yield self._statement("suspect_sessions", after=after[0], until=sessions[-1].number)
        suspects = {num for (num,) in counted}
        flaws = [(one.who.session_id, judges.session(one)) for one in sessions]
        return (
            yield from self._examined(
                Part.SESSIONS,
                _last_number(rows),
                [Disagreement("session_damaged", name, says) for name, says in flaws if says],
                sessions=[one.who for one in sessions if one.number in suspects and not one.is_damaged],
            )
        )

    def _events(self, after: Place, judges: Judges, reader: AuditRows) -> Asking[Examined]:
        found: list[Disagreement] = []
        gone: dict[int, None] = {}
        rows = yield self._slice(Part.EVENTS, after)
        for sequence, session, place, at, crc, data, is_gone, name, *texts in rows:
            if is_gone:
                gone[session] = None
            elif sequence % EVENT_STEP or crc32(data) != crc or not _are_texts(texts) or judges.event(at, data):
                found.append(event_flaw(reader.text(name), place, sequence, judges.event(at, data)))
        found += map(session_gone, gone)
        return (yield from self._examined(Part.EVENTS, _last_number(rows), found))

    # ── Statements ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _statement(self, name: str, **values: Any) -> Statement:
        return Statement(self._sql[name], values)

    def _slice(self, part: Part, after: Place) -> Statement:
        values = {"after": after[0], "size": SIZES[part]}
        return self._statement(part, **values, **({"position": after[1]} if part is Part.ENTRIES else {}))

    def _value(self, name: str, **values: Any) -> Asking[Any]:
        """The first column of the only row; None when there is none."""
        rows = yield self._statement(name, **values)
        return rows[0][0] if rows else None

    def _examined(
        self, part: Part, after: Place | None, found: Sequence[Disagreement] = (), **suspects: Any
    ) -> Asking[Examined]:
        """What a slice found that ends behind `after`; None when no row was left."""
        if after is None:
            return Examined(found=found)
        last = yield from self._value(f"{part}_last")
        return Examined(found=found, after=after, last=last or 0, **suspects)

    def _name(self, run: int, reader: AuditRows) -> Asking[str]:
        return reader.text((yield from self._value("run_name", number=run)))

    def _bodies_gone(
        self, run: int, position: int, digests: Iterable[str], reader: AuditRows
    ) -> Asking[list[Disagreement]]:
        """The bodies that an entry names and that are not kept."""
        found: list[Disagreement] = []
        for digest in digests:
            if (yield from self._value("is_named", digest=digest, number=run)) is None:
                run_id = yield from self._name(run, reader)
                found.append(Disagreement("body_gone", run_id, str(EntryDamagedError(run_id, position - 1, digest))))
        return found

    def _runs_gone(self, runs: Iterable[int], judges: Judges) -> Asking[list[Disagreement]]:
        found: list[Disagreement] = []
        for run in runs:
            first = yield from self._value("first_entry", number=run)
            found.append(run_gone(run, None if first is None else bytes(first), judges))
        return found


def _last_place(rows: Sequence[Any]) -> Place | None:
    return (rows[-1][0], rows[-1][1]) if rows else None


def _last_number(rows: Sequence[Any]) -> Place | None:
    return (rows[-1][0], 0) if rows else None


def _are_texts(columns: Iterable[bytes]) -> bool:
    try:
        for data in columns:
            data.decode()
    except UnicodeDecodeError:
        return False
    return True
