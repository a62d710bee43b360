"""A check of everything in the tables, slice by slice: each is a few short statements, and repairs nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from harborage.identity import Identity
from harborage.state.sql_files import read_statements
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
from harborage.store.postgres.asking import fetch, fetchval, plain
from harborage.store.postgres.reading import ROWS
from harborage.store.rows import EVENT_STEP, ControlRow
from harborage.store.times import LATEST

if TYPE_CHECKING:
    from harborage.state.postgres.database import Database

_SQL: Final[Mapping[str, str]] = {
    name: plain(text) for name, text in read_statements(__package__, "statements/audit.sql").items()
}


class Audit:
    """Checks slices of the tables of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._parts: dict[Part, Callable[[Place, Judges], Awaitable[Examined]]] = {
            Part.RUNS: self._runs,
            Part.ENTRIES: self._entries,
            Part.BODIES: self._bodies,
            Part.CONTROLS: self._controls,
            Part.PAUSES: self._pauses,
            Part.GROUPS: self._groups,
            Part.SESSIONS: self._sessions,
            Part.EVENTS: self._events,
        }

    async def examine(self, part: Part, judges: Judges, after: Place) -> Examined:
        """Look at a slice of one part of the tables, behind this row."""
        return await self._parts[part](after, judges)

    async def _runs(self, after: Place, _: Judges) -> Examined:
        until = await fetchval(self._database, _SQL["runs_until"], after=after[0], size=SIZES[Part.RUNS])
        if until is None:
            return Examined()
        within = {"after": after[0], "until": until, "latest": LATEST}
        rows: Sequence[Any] = await fetch(self._database, _SQL["suspect_runs"], **within)
        found = [
            Disagreement("run_damaged", run_id, f"run {run_id}: its row in harborage_runs has status {status}")
            for run_id, status in rows
            if not 0 <= status <= 5
        ]
        damaged = {one.subject for one in found}
        return Examined(
            found=found,
            runs=[run_id for run_id, _ in rows if run_id not in damaged],
            after=(until, 0),
            last=await self._last(Part.RUNS),
        )

    async def _entries(self, after: Place, judges: Judges) -> Examined:
        run, position = after
        values = {"after": run, "position": position, "size": SIZES[Part.ENTRIES]}
        rows: Sequence[Any] = await fetch(self._database, _SQL["entries"], **values)
        found: list[Disagreement] = []
        gone: dict[int, None] = {}
        for run, position, crc, data, is_gone in rows:
            is_whole = crc32(data) == crc
            if is_gone:
                gone[run] = None
            elif not is_whole or judges.entry("", position - 1, data):
                found.append(entry_flaw(await self._name(run), position, data, is_whole=is_whole, judges=judges))
            else:
                found += await self._bodies_gone(run, position, judges.bodies(data))
        found += await self._gone(gone, judges)
        return await self._examined(Part.ENTRIES, [(run, position) for run, position, *_ in rows], found)

    async def _bodies(self, after: Place, _: Judges) -> Examined:
        rows = await self._slice(Part.BODIES, after)
        found = bodies_flawed((digest, data, run_id) for _, digest, data, run_id in rows)
        return await self._examined(Part.BODIES, _numbers(rows), found)

    async def _controls(self, after: Place, judges: Judges) -> Examined:
        found: list[Disagreement] = []
        gone: dict[int, None] = {}
        rows = await self._slice(Part.CONTROLS, after)
        for num, run, run_id, event_id, sent_at, data, waits, is_gone in rows:
            control = ControlRow(number=num, run_id=run_id, event_id=event_id, type="", sent_at=sent_at, data=data)
            if is_gone:
                gone[run] = None
            elif waits and (says := judges.control(control)):
                found.append(Disagreement("control_damaged", run_id, says))
        found += await self._gone(gone, judges)
        return await self._examined(Part.CONTROLS, _numbers(rows), found)

    async def _pauses(self, after: Place, judges: Judges) -> Examined:
        found: list[Disagreement] = []
        rows = await self._slice(Part.PAUSES, after)
        for *columns, is_of_nobody in rows:
            pause = ROWS.pause(columns)
            says = judges.pause(pause)
            if says:
                found.append(Disagreement("pause_damaged", pause.token, says))
            else:
                found += check_pause(pause, is_known=not is_of_nobody)
        return await self._examined(Part.PAUSES, _numbers(rows), found)

    async def _groups(self, after: Place, _: Judges) -> Examined:
        rows = await self._slice(Part.GROUPS, after)
        suspects = [(Identity(*whose), group_id) for _, *whose, group_id, is_suspect in rows if is_suspect]
        return await self._examined(Part.GROUPS, _numbers(rows), [], groups=suspects)

    async def _sessions(self, after: Place, judges: Judges) -> Examined:
        rows = await self._slice(Part.SESSIONS, after)
        if not rows:
            return Examined()
        sessions = [ROWS.session(row) for row in rows]
        within = {"after": after[0], "until": sessions[-1].number}
        counted: Sequence[Any] = await fetch(self._database, _SQL["suspect_sessions"], **within)
        suspects = {num for (num,) in counted}
        flaws = [(one.who.session_id, judges.session(one)) for one in sessions]
        return await self._examined(
            Part.SESSIONS,
            _numbers(rows),
            [Disagreement("session_damaged", name, says) for name, says in flaws if says],
            sessions=[one.who for one in sessions if one.number in suspects],
        )

    async def _events(self, after: Place, judges: Judges) -> Examined:
        found: list[Disagreement] = []
        gone: dict[int, None] = {}
        rows = await self._slice(Part.EVENTS, after)
        for sequence, session, place, at, crc, data, name in rows:
            if name is None:
                gone[session] = None
            elif sequence % EVENT_STEP or crc32(data) != crc or judges.event(at, data):
                found.append(event_flaw(name, place, sequence, judges.event(at, data)))
        found += map(session_gone, gone)
        return await self._examined(Part.EVENTS, _numbers(rows), found)

    # ── What they share ─────────────────────────────────────────────────────────────────────────────────────────────

    async def _slice(self, part: Part, after: Place) -> Sequence[Any]:
        found: Sequence[Any] = await fetch(self._database, _SQL[part], after=after[0], size=SIZES[part])
        return found

    async def _examined(self, part: Part, places: Sequence[Place], found: list[Disagreement], **more: Any) -> Examined:
        if not places:
            return Examined(found=found)
        last = places[-1]
        return Examined(found=found, after=last, last=await self._last(part), **more)

    async def _last(self, part: Part) -> int:
        return int(await fetchval(self._database, _SQL[f"{part}_last"]) or 0)

    async def _name(self, run: int) -> str:
        return str(await fetchval(self._database, _SQL["run_name"], number=run) or "")

    async def _bodies_gone(self, run: int, position: int, digests: Iterable[str]) -> list[Disagreement]:
        """Those of the bodies that an entry names which are not there."""
        found: list[Disagreement] = []
        for digest in digests:
            if await fetchval(self._database, _SQL["is_named"], digest=digest, number=run) is None:
                run_id = await self._name(run)
                found.append(Disagreement("body_gone", run_id, str(EntryDamagedError(run_id, position - 1, digest))))
        return found

    async def _gone(self, runs: Iterable[int], judges: Judges) -> list[Disagreement]:
        return [run_gone(run, await fetchval(self._database, _SQL["first_entry"], number=run), judges) for run in runs]


def _numbers(rows: Sequence[Any]) -> list[Place]:
    return [(row[0], 0) for row in rows]
