"""A check of everything in a file, slice by slice: each method is one step of a transaction, and repairs nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
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
from harborage.store.sqlite.connection import statements
from harborage.store.sqlite.salvage import salvaged_text
from harborage.store.times import LATEST

if TYPE_CHECKING:
    from harborage.store.sqlite.database import Database
    from harborage.store.sqlite.reading import Reading
    from harborage.store.sqlite.transactions import Transaction


class Audit:
    """Checks slices of the tables of one file."""

    def __init__(self, reading: Reading) -> None:
        self._sql = statements("audit")
        self._reading = reading
        self._parts: dict[Part, Callable[[Transaction, int, Judges], Examined]] = {
            Part.RUNS: self._runs,
            Part.ENTRIES: self._entries,
            Part.BODIES: self._bodies,
            Part.CONTROLS: self._controls,
            Part.PAUSES: self._pauses,
            Part.GROUPS: self._groups,
            Part.SESSIONS: self._sessions,
            Part.EVENTS: self._events,
        }

    def examine(self, tx: Transaction, part: Part, judges: Judges, after: Place) -> Examined:
        """Look at a slice of one part of the tables, behind the row of this number."""
        return self._parts[part](tx, after[0], judges)

    def _runs(self, tx: Transaction, after: int, _: Judges) -> Examined:
        until: Any = tx.execute(self._sql["runs_until"], {"after": after, "size": SIZES[Part.RUNS]}).get
        if until is None:
            return Examined()
        within = {"after": after, "until": until, "latest": LATEST}
        suspects = [num for (num,) in tx.execute(self._sql["suspect_runs"], within)]
        try:
            tx.execute(self._sql["run_texts"], within).fetchall()
        except UnicodeDecodeError:
            suspects = [num for (num,) in tx.execute(self._sql["run_numbers"], within)]
        rows = [self._reading.row(tx, num) for num in suspects]
        return Examined(
            found=[Disagreement("run_damaged", row.run_id, row.blocked) for row in rows if row.is_damaged],
            runs=[row.run_id for row in rows if not row.is_damaged],
            after=(until, 0),
            last=self._last(tx, Part.RUNS),
        )

    def _entries(self, tx: Transaction, after: int, judges: Judges) -> Examined:
        found: list[Disagreement] = []
        gone: dict[int, None] = {}
        rows = self._slice(tx, Part.ENTRIES, after)
        for _, run, position, crc, data, is_gone in rows:
            is_whole = crc32(data) == crc
            if is_gone:
                gone[run] = None
            elif not is_whole or judges.entry("", position - 1, data):
                found.append(entry_flaw(self._name(tx, run), position, data, is_whole=is_whole, judges=judges))
            else:
                for digest in judges.bodies(data):
                    if tx.execute(self._sql["is_named"], (digest, run)).get is None:
                        run_id = self._name(tx, run)
                        found.append(
                            Disagreement("body_gone", run_id, str(EntryDamagedError(run_id, position - 1, digest)))
                        )
        return self._examined(tx, Part.ENTRIES, rows, [*found, *self._gone(tx, gone, judges)])

    def _bodies(self, tx: Transaction, after: int, _: Judges) -> Examined:
        rows = self._slice(tx, Part.BODIES, after)
        found = bodies_flawed((salvaged_text(digest), data, salvaged_text(run_id)) for _, digest, data, run_id in rows)
        return self._examined(tx, Part.BODIES, rows, found)

    def _controls(self, tx: Transaction, after: int, judges: Judges) -> Examined:
        found: list[Disagreement] = []
        gone: dict[int, None] = {}
        rows = self._slice(tx, Part.CONTROLS, after)
        for num, run, run_id, event_id, sent_at, data, waits, is_gone in rows:
            if is_gone:
                gone[run] = None
            elif waits:
                names = (salvaged_text(run_id), salvaged_text(event_id))
                control = ControlRow(
                    number=num, run_id=names[0], event_id=names[1], type="", sent_at=sent_at, data=data
                )
                if says := judges.control(control):
                    found.append(Disagreement("control_damaged", control.run_id, says))
        return self._examined(tx, Part.CONTROLS, rows, [*found, *self._gone(tx, gone, judges)])

    def _pauses(self, tx: Transaction, after: int, judges: Judges) -> Examined:
        found: list[Disagreement] = []
        rows = self._slice(tx, Part.PAUSES, after)
        for num, is_of_nobody in rows:
            pause = self._reading.pause_row(tx, num)
            says = judges.pause(pause)
            if says:
                found.append(Disagreement("pause_damaged", pause.token, says))
            else:
                found += check_pause(pause, is_known=not is_of_nobody)
        return self._examined(tx, Part.PAUSES, rows, found)

    def _groups(self, tx: Transaction, after: int, _: Judges) -> Examined:
        rows = self._slice(tx, Part.GROUPS, after)
        suspects = [(Identity(*whose), group_id) for _, *whose, group_id, is_suspect in rows if is_suspect]
        if not rows:
            return Examined()
        return Examined(groups=suspects, after=(rows[-1][0], 0), last=self._last(tx, Part.GROUPS))

    def _sessions(self, tx: Transaction, after: int, judges: Judges) -> Examined:
        rows = self._slice(tx, Part.SESSIONS, after)
        if not rows:
            return Examined()
        last = rows[-1][0]
        sessions = [self._reading.session_row(tx, num) for (num,) in rows]
        suspects = {num for (num,) in tx.execute(self._sql["suspect_sessions"], {"after": after, "until": last})}
        flaws = {one.number: says for one in sessions if (says := judges.session(one))}
        return Examined(
            found=[
                Disagreement("session_damaged", one.who.session_id, flaws[one.number])
                for one in sessions
                if one.number in flaws
            ],
            sessions=[one.who for one in sessions if one.number in suspects and not one.is_damaged],
            after=(last, 0),
            last=self._last(tx, Part.SESSIONS),
        )

    def _events(self, tx: Transaction, after: int, judges: Judges) -> Examined:
        found: list[Disagreement] = []
        gone: dict[int, None] = {}
        rows = self._slice(tx, Part.EVENTS, after)
        for sequence, session, place, run, kind, at, crc, data, is_gone in rows:
            if is_gone:
                gone[session] = None
            elif sequence % EVENT_STEP or crc32(data) != crc or not _is_text(run, kind) or judges.event(at, data):
                name = self._reading.session_row(tx, session).who.session_id
                found.append(event_flaw(name, place, sequence, judges.event(at, data)))
        found += map(session_gone, gone)
        return self._examined(tx, Part.EVENTS, rows, found)

    # ── What they share ─────────────────────────────────────────────────────────────────────────────────────────────

    def _slice(self, tx: Transaction, part: Part, after: int) -> list[Any]:
        return tx.execute(self._sql[part], {"after": after, "size": SIZES[part]}).fetchall()

    def _examined(self, tx: Transaction, part: Part, rows: list[Any], found: list[Disagreement]) -> Examined:
        if not rows:
            return Examined(found=found)
        return Examined(found=found, after=(rows[-1][0], 0), last=self._last(tx, part))

    def _last(self, tx: Transaction, part: Part) -> int:
        last: Any = tx.execute(self._sql[f"{part}_last"]).get
        return int(last or 0)

    def _name(self, tx: Transaction, run: int) -> str:
        found: Any = tx.execute(self._sql["run_name"], (run,)).get
        return salvaged_text(found)

    def _gone(self, tx: Transaction, runs: dict[int, None], judges: Judges) -> list[Disagreement]:
        return [run_gone(run, _value(tx.execute(self._sql["first_entry"], (run,)).get), judges) for run in runs]


async def page_flaws(database: Database) -> list[str]:
    """What is wrong with the pages of a file and its indexes; each table is one look, which no writer waits for.

    Raises:
        DatabaseError: it cannot be read on.
    """
    sql = statements("audit")["tables"]
    tables: list[Any] = await database.read(lambda tx: tx.execute(sql).fetchall())
    found: list[str] = []
    for (table,) in tables:
        check = f"PRAGMA quick_check('{table}')"
        said: list[Any] = await database.read(lambda tx, check=check: tx.execute(check).fetchall())  # type: ignore[misc]
        found += [str(flaw) for (flaw,) in said if flaw != "ok"]
    return found


def _is_text(*texts: bytes) -> bool:
    try:
        for text in texts:
            text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _value(found: Any) -> bytes | None:
    return None if found is None else bytes(found)
