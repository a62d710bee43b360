"""What `harborage doctor` does: check a storage, list its pending work, and end orphans.

A check changes nothing but what opening a database changes: missing migrations are applied. Any number of workers may
work on the storage meanwhile.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from harborage import codec
from harborage.clock import SYSTEM_CLOCK, Timers
from harborage.errors import HarborageError, error_text
from harborage.events import DurableEventBus
from harborage.events.rows import decode_event
from harborage.runtime.durable import ControlUnreadableError, RunRequest
from harborage.runtime.engines.reader import RunReader
from harborage.runtime.journal import JournalCorruptError, Started, decode_entry
from harborage.runtime.pauses import Coordinator
from harborage.runtime.steering.controls import ControlEvent
from harborage.runtime.survey import Places, Settled, settle, survey
from harborage.runtime.waits import Party, Wait, WaitKind
from harborage.sessions import SessionCorruptError, SessionPolicy, SessionRegistry
from harborage.sessions.model import session_of
from harborage.state.errors import DatabaseError, DatabaseReadOnlyError
from harborage.state.storage import Storage, open_storage
from harborage.store import ControlRow, EventQuery, RunQuery, SessionQuery
from harborage.store.errors import StoreError
from harborage.tasks import InProcessTaskRegistry
from harborage.tasks.shelf import Shelf

if TYPE_CHECKING:
    from harborage.identity import Identity
    from harborage.state.storage import Storage
    from harborage.store.sqlite import Database

__all__ = ["Finding", "Party", "Settled", "Wait", "WaitKind", "check_storage", "list_pending", "settle_orphans"]

T = TypeVar("T")
_MOST_FLAWS: Final = 5
_PAGE: Final = 500
_LITTLE_ROOM: Final = 100 * 1024 * 1024


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One result of a check: `what` was checked, `told` is what was found, `is_well` whether that is in order."""

    what: str
    told: str
    is_well: bool = True


async def check_storage(url: str, path: Path | None) -> list[Finding]:
    """Check the storage that `url` names, a file at `path` if it is one; a finding that is not well says what to do."""
    found = [] if path is None else _lost_log(path)
    try:
        storage = await open_storage(url)  # which checks place, file system, right to write, and migrations
    except DatabaseReadOnlyError as error:
        found.append(Finding(what="access", told=str(error), is_well=False))
        if path is None:
            return found
        from harborage.state.sqlite import open_to_read

        try:
            storage = await open_to_read(url, SYSTEM_CLOCK)
        except DatabaseError as error:
            return [*found, Finding(what="database", told=str(error), is_well=False)]
    except DatabaseError as error:
        return [*found, Finding(what="database", told=str(error), is_well=False)]
    async with storage:
        try:
            records = await _records(storage)
        except DatabaseError as error:
            records = [Finding(what="records", told=str(error), is_well=False)]
    if path is None:
        return [Finding(what="database", told="it answers, and its tables are those of this version"), *records]
    return [*found, *await _integrity(path, is_read_only=storage.is_read_only), *records, *_place(path)]


def _lost_log(path: Path) -> list[Finding]:
    """Find a write-ahead log that is gone while its shared memory is there: the last commits went with it."""
    real = path.resolve()
    log, shared = real.with_name(f"{real.name}-wal"), real.with_name(f"{real.name}-shm")
    if log.exists() or not shared.exists():
        return []
    told = f"{log} is gone while {shared.name} is there: the last commits are lost; restore both, or a copy"
    return [Finding(what="log", told=told, is_well=False)]


async def _records(storage: Storage) -> list[Finding]:
    """Find what of the runs cannot be read: rows, entries with checksums and counts, bodies, events, tasks, pauses."""
    reader = RunReader(storage.store)
    flaws: list[str] = []
    sessions: set[Identity] = set()
    for row in await reader.rows(RunQuery(oldest_first=True)):
        if row.is_damaged:
            flaws.append(row.blocked)  # which names the row
            continue
        sessions.add(row.who)
        try:
            await reader.entries(row.run_id)
        except (JournalCorruptError, StoreError) as error:
            flaws.append(str(error))
    flaws += [flaw for who in sessions for flaw in await _event_flaws(storage, who)]
    flaws += [*await _task_flaws(storage), *await _session_flaws(storage)]
    flaws += await _tried(flaws, "the list of pauses", Coordinator(store=storage.store).flaws()) or []
    return _flawed(flaws)


def _flawed(flaws: Sequence[str]) -> list[Finding]:
    if not flaws:
        return []
    shown = "; ".join(flaws[:_MOST_FLAWS])
    more = f"; {len(flaws) - _MOST_FLAWS} more" if len(flaws) > _MOST_FLAWS else ""
    return [Finding(what="records", told=f"{shown}{more}; restore a copy that is whole", is_well=False)]


async def _event_flaws(storage: Storage, who: Identity) -> list[str]:
    """Find the events of a session that cannot be read or are gone."""
    flaws: list[str] = []
    place = 0
    query = EventQuery(tenant=who.tenant_id, user=who.user_id, session=who.session_id, limit=_PAGE)
    while kept := await storage.store.events(query):
        for one in kept:
            if one.place != place + 1:
                flaws.append(f"session {who.session_id}, events {place + 1} to {one.place - 1}: they are gone")
            place = one.place
            try:
                decode_event(one)
            except Exception as error:  # noqa: BLE001 - one damaged event does not hide the others
                flaws.append(f"session {who.session_id}, event {one.place}: {error}")
        query = replace(query, after=kept[-1].sequence)
    return flaws


async def _task_flaws(storage: Storage) -> list[str]:
    """Find the lists of tasks and the tasks that cannot be read."""
    shelf = Shelf(storage.state)
    flaws: list[str] = []
    for session in await _tried(flaws, "the list of sessions that have tasks", shelf.sessions()) or []:
        where = f"session {session.session_id}"
        for task_id in await _tried(flaws, f"{where}: its list of tasks", shelf.ids(session)) or []:
            await _tried(flaws, f"{where}, task {task_id}", shelf.task(session, task_id))
    return flaws


async def _session_flaws(storage: Storage) -> list[str]:
    """What of the sessions cannot be read."""
    flaws: list[str] = []
    asked: SessionQuery | None = SessionQuery(only_opened=True, include_closed=True, limit=_PAGE)
    while asked is not None and (page := await _tried(flaws, "the list of sessions", storage.store.sessions(asked))):
        for row in page.rows:
            try:
                session_of(row)
            except SessionCorruptError as error:
                flaws.append(str(error))
        asked = None if page.cursor is None else replace(asked, after=page.cursor)
    return flaws


async def _tried(flaws: list[str], what: str, reading: Awaitable[T]) -> T | None:
    """Return what is read; None, and one more flaw, if that fails."""
    try:
        return await reading
    except HarborageError as error:
        flaws.append(f"{what}: {error}")
        return None


async def _rows(database: Database) -> list[str]:
    """Find rows of a file that are gone while others refer to them, and controls that cannot be read."""
    from harborage.store.sqlite import audit

    flaws: list[str] = []
    for gone in await audit.rows_gone(database):
        run_id = _run_of(gone.first_entry) or f"number {gone.number}"
        flaws.append(f"run {run_id}: its row in harborage_runs is gone")
    flaws += [
        f"run {run_id}: of {count} controls that wait for it some are gone"
        for run_id, count in await audit.controls_gone(database)
    ]
    flaws += [
        f"session number {number}: its row is gone, its events are kept"
        for number in await audit.sessions_gone(database)
    ]
    after = 0
    while sent := await audit.controls_after(database, after, limit=_PAGE):
        flaws += [flaw for one in sent if (flaw := _control_flaw(one))]
        after = sent[-1].number
    return flaws


def _control_flaw(sent: ControlRow) -> str:
    try:
        codec.decode(sent.data, ControlEvent)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        return error_text(ControlUnreadableError(sent.run_id, sent.number, sent.event_id, error_text(error)))
    return ""


def _run_of(first_entry: bytes) -> str:
    """Return the id of the run with this first entry; empty if that cannot be read."""
    try:
        entry = decode_entry(first_entry, "", 0)
        return codec.decode(bytes(entry.request), RunRequest).who.run_id if isinstance(entry, Started) else ""
    except (HarborageError, msgspec.MsgspecError, ValueError, RecursionError):
        return ""


async def _integrity(path: Path, *, is_read_only: bool) -> list[Finding]:
    """Check that an SQLite file is whole: every page and index, and the references between rows."""
    from harborage.store.sqlite import Database

    database = await Database.open(path, is_read_only=is_read_only)
    lost: list[Finding] = []
    try:
        flaws: list[Any] = await database.read(lambda tx: tx.execute("PRAGMA integrity_check").fetchall())
        lost = _flawed(await _rows(database))
    except DatabaseError as error:
        return [Finding(what="database", told=str(error), is_well=False)]
    finally:
        await database.aclose()
    said = [str(flaw[0]) for flaw in flaws]
    if said == ["ok"]:
        return [Finding(what="database", told=f"{path}: whole, its tables are those of this version"), *lost]
    shown = "; ".join(said[:_MOST_FLAWS])
    advice = "keep the file, and restore a copy that is whole"
    return [Finding(what="database", told=f"{path}: damaged: {shown}; {advice}", is_well=False)]


def _place(path: Path) -> list[Finding]:
    folder = path.absolute().parent
    found = []
    room = shutil.disk_usage(folder).free
    if room < _LITTLE_ROOM:
        told = f"{room:,} bytes are left on the disk of {folder}; free some space"
        found.append(Finding(what="disk", told=told, is_well=False))
    if not os.access(folder, os.W_OK):
        told = f"{folder} may not be written, and SQLite writes beside its file; let this user write there"
        found.append(Finding(what="folder", told=told, is_well=False))
    return found


async def list_pending(
    storage: Storage,
    *,
    clock: Timers = SYSTEM_CLOCK,
    sessions: SessionPolicy = SessionPolicy(),  # noqa: B008 - a frozen value
) -> list[Wait]:
    """List the pending work of all users: runs, pauses, approvals, tasks, groups and open sessions.

    Each item says for whom it waits and until when; those with `orphan` set will never end. `sessions` says when an
    idle session is closed.

    Raises:
        StateError: the storage cannot be read.
    """
    async with _open_places(storage, clock, sessions) as places:
        return await survey(places)


async def settle_orphans(storage: Storage, *, clock: Timers = SYSTEM_CLOCK) -> list[Settled]:
    """End the orphans, and apply the default answer of overdue pauses; returns each with what was done.

    Safe while workers run: an item that a worker has taken meanwhile is left alone.

    Raises:
        StateError: the storage cannot be read or written.
    """
    async with _open_places(storage, clock, SessionPolicy()) as places:
        return await settle(places)


@asynccontextmanager
async def _open_places(storage: Storage, clock: Timers, policy: SessionPolicy) -> AsyncIterator[Places]:
    """Open the parts that read a storage."""
    bus = DurableEventBus(storage.store, clock=clock)
    tasks = InProcessTaskRegistry(bus=bus, store=storage.state, clock=clock)
    sessions = SessionRegistry(storage.store, bus, policy=policy, clock=clock)
    try:
        yield Places(
            store=storage.store,
            pauses=Coordinator(bus=bus, store=storage.store, clock=clock),
            tasks=tasks,
            sessions=sessions,
            clock=clock,
        )
    finally:
        await sessions.aclose()
        await tasks.aclose()
        await bus.aclose()
