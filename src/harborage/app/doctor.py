"""What `harborage doctor` does: check a whole storage, list its pending work, and end orphans.

A check looks for damaged rows, missing ones, and rows that contradict each other. It changes nothing but what opening a
database changes: missing migrations are applied. Any number of workers may work on the storage meanwhile.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from msgspec.structs import replace

from harborage import codec
from harborage.clock import SYSTEM_CLOCK, Timers
from harborage.errors import HarborageError, error_text
from harborage.events import DurableEventBus
from harborage.events.rows import event_flaw
from harborage.runtime.durable.bodies import digests_of
from harborage.runtime.durable.engine import ControlUnreadableError
from harborage.runtime.durable.journal import JournalCorruptError, Started, decode_entry, is_outdated
from harborage.runtime.durable.orphans import EndedItem, PendingSources, collect_pending, end_orphaned_work
from harborage.runtime.durable.pauses.rows import describe_damage
from harborage.runtime.effects.task_runs import TaskRuns
from harborage.runtime.loop.controls import ControlEvent
from harborage.runtime.loop.seam import RunRequest
from harborage.runtime.pauses import Coordinator
from harborage.sessions import SessionCorruptError, SessionPolicy, SessionRegistry
from harborage.sessions.model import session_of
from harborage.state.errors import DatabaseError, DatabaseLockedError, DatabaseReadOnlyError
from harborage.state.storage import Storage, open_storage
from harborage.store import RunQuery
from harborage.store.examining import Judges
from harborage.store.suspects import check_everything
from harborage.tasks import InProcessTaskRegistry, TaskCorruptError
from harborage.tasks.rows import task_of

if TYPE_CHECKING:
    from harborage.runtime.durable.pending import PendingItem
    from harborage.store import ControlRow, SessionRow, Store
    from harborage.store.check import Disagreement

OnProgress = Callable[[str, float], None]
"""Called with the part that is being checked, and how much of it is done, from 0 to 1."""

_SHOWN: Final = 5
_BODY: Final = b'"$body"'
# What waits for no one that could end it is listed with the pending work, with the way to end it.
_PENDING: Final = frozenset({"pause_of_ended", "sleeps_with_mail", "waits_for_nothing"})
_NOUNS: Final = {"event": "session", "group": "group", "pause": "pause", "session": "session"}


class Flaws:
    """The flaws that were found: the texts of the first ones, and the number of all."""

    def __init__(self) -> None:
        self._shown: list[str] = []
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._count)

    def add(self, says: str) -> None:
        """Add a flaw; one with the same text is counted once."""
        if says not in self._shown:
            self._count += 1
            if len(self._shown) < _SHOWN:
                self._shown.append(says)

    def summary(self) -> str:
        """Return the first flaws, the number of others, and what to do."""
        more = f"; {self._count - _SHOWN} more" if self._count > _SHOWN else ""
        return f"{'; '.join(self._shown)}{more}; restore a copy that is whole"


async def examine(store: Store, flaws: Flaws, on_progress: OnProgress | None = None) -> None:
    """Add every flaw of the store to `flaws`; any number of workers may work on it meanwhile.

    Raises:
        DatabaseError: the database cannot be read on.
    """
    async for one in check_everything(store, JUDGES, on_progress=on_progress):
        if one.kind not in _PENDING:
            flaws.add(_named(one))


def _named(one: Disagreement) -> str:
    """Return the text of a flaw, after the name of its subject."""
    if one.kind.endswith(("_damaged", "_gone", "_missing")):
        return one.says
    return f"{_NOUNS.get(one.kind.partition('_')[0], 'run')} {one.subject}: {one.says}"


def _entry(run_id: str, index: int, data: bytes) -> str:
    if _BODY in data and is_outdated(data):
        return ""  # it is brought up to date once its bodies are in their places
    try:
        decode_entry(data, run_id, index)
    except JournalCorruptError as error:
        return str(error)
    return ""


def _bodies(data: bytes) -> Iterable[str]:
    return digests_of(decode_entry(data, "", 0)).values() if _BODY in data and not is_outdated(data) else ()


def _run(first_entry: bytes) -> str:
    try:
        entry = decode_entry(first_entry, "", 0)
        return codec.decode(bytes(entry.request), RunRequest).who.run_id if isinstance(entry, Started) else ""
    except (HarborageError, msgspec.MsgspecError, ValueError, RecursionError):
        return ""


def _control(sent: ControlRow) -> str:
    try:
        codec.decode(sent.data, ControlEvent)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        return error_text(ControlUnreadableError(sent.run_id, sent.number, sent.event_id, error_text(error)))
    return ""


def _session(row: SessionRow) -> str:
    if not row.is_opened and not row.is_damaged:
        return ""
    try:
        session_of(row)
    except SessionCorruptError as error:
        return str(error)
    return ""


JUDGES: Final = Judges(
    entry=_entry, bodies=_bodies, run=_run, event=event_flaw, control=_control, pause=describe_damage, session=_session
)
"""What can be read by the code of today."""


T = TypeVar("T")
_MOST_FLAWS: Final = 5
_PAGE: Final = 500
_LITTLE_ROOM: Final = 100 * 1024 * 1024
_CLOSING_S: Final = 0.2
_LOG: Final = "log"
_LOSS: Final = (
    ": the last commits are lost; restore both files, or a whole copy, or go on without them: "
    "`harborage doctor --accept-loss`"
)


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One result of a check: `what` was checked, `detail` is the result, `is_ok` whether that is in order."""

    what: str
    detail: str
    is_ok: bool = True


async def check_storage(
    url: str,
    path: Path | None,
    *,
    is_whole: bool = False,
    accepts_loss: bool = False,
    on_progress: OnProgress | None = None,
) -> list[Finding]:
    """Check the storage that `url` names, a file at `path` if it is one; a finding that is not ok says what to do.

    The check says whether it can be used. With `is_whole` every row is read, in slices that keep no worker waiting, and
    `on_progress` is called. A log that was lost is reported until a check `accepts_loss`.
    """
    found = [] if path is None else await _lost_log(path)
    try:
        storage = await open_storage(url)  # checks the path, the file system, the permission to write, and migrations
    except (DatabaseReadOnlyError, DatabaseLockedError) as error:
        found.append(Finding(what="access", detail=str(error), is_ok=False))
        if path is None:
            return found
        from harborage.state.sqlite import open_to_read

        try:
            storage = await open_to_read(url, SYSTEM_CLOCK)
        except DatabaseError as error:
            return [*found, Finding(what="database", detail=str(error), is_ok=False)]
    except DatabaseError as error:
        return [*found, Finding(what="database", detail=str(error), is_ok=False)]
    async with storage:
        if path is not None:
            found = await _kept_loss(storage, found, accepts_loss=accepts_loss)
        if is_whole:
            async with asyncio.TaskGroup() as both:  # the pages of a file beside its rows, which take another processor
                pages = both.create_task(_pages(path, is_read_only=storage.is_read_only))
                rows = both.create_task(_records(storage, on_progress))
            found += [*pages.result(), *rows.result()]
        else:
            found.append(_usable(path, "it answers"))
    return found if path is None else [*found, *_place(path)]


def _usable(path: Path | None, state: str) -> Finding:
    where = "" if path is None else f"{path}: "
    return Finding(what="database", detail=f"{where}{state}, its tables are those of this version")


async def _lost_log(path: Path) -> list[Finding]:
    """Find a write-ahead log that is gone although the database was not closed, or its shared memory is there."""
    if not _why_lost(path):
        return []
    await asyncio.sleep(_CLOSING_S)  # another process may be about to close the file
    why = _why_lost(path)
    return [Finding(what=_LOG, detail=why, is_ok=False)] if why else []


async def _kept_loss(storage: Storage, found: list[Finding], *, accepts_loss: bool) -> list[Finding]:
    """Return the findings with the loss of a log that an earlier process found, or without any once it is accepted."""
    from harborage.store.sqlite import Database

    file = storage.beneath
    if not isinstance(file, Database):
        return found
    if accepts_loss and not storage.is_read_only:
        await file.accept_lost_log()
        return [one for one in found if one.what != _LOG]
    at = await file.lost_log()
    if not at or any(one.what == _LOG for one in found):
        return found
    day = datetime.fromtimestamp(at / 1_000_000, UTC)
    why = f"{file.path}: its log was missing on {day:%Y-%m-%d at %H:%M} UTC"
    return [*found, Finding(what=_LOG, detail=f"{why}{_LOSS}", is_ok=False)]


def _why_lost(path: Path) -> str:
    from harborage.store.sqlite.connection import is_log_lost, log_of

    real = path.resolve()
    log, shared = log_of(real), real.with_name(f"{real.name}-shm")
    if is_log_lost(real):
        why = "the file was in use when it was copied, or when its log was removed"
    elif shared.exists() and not log.exists():
        why = f"{shared.name} is there"
    else:
        return ""
    return f"{log} is missing, and {why}{_LOSS}"


async def _records(storage: Storage, on_progress: OnProgress | None) -> list[Finding]:
    """Find rows that are damaged, missing or contradictory, and what kept the others from being checked."""
    flaws = Flaws()
    found: list[Finding] = []
    try:
        await examine(storage.store, flaws, on_progress)
        for flaw in await _task_flaws(storage):
            flaws.add(flaw)
    except DatabaseError as error:
        found.append(Finding(what="records", detail=str(error), is_ok=False))
    return [Finding(what="records", detail=flaws.summary(), is_ok=False), *found] if flaws else found


async def _task_flaws(storage: Storage) -> list[str]:
    """Find the tasks that cannot be read."""
    flaws: list[str] = []
    asked: RunQuery | None = RunQuery(is_whole=True, limit=_PAGE)
    while asked is not None and (page := await _tried(flaws, "the list of tasks", storage.store.runs(asked))):
        for row in page.rows:
            try:
                task_of(row)
            except TaskCorruptError as error:
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


async def _pages(path: Path | None, *, is_read_only: bool) -> list[Finding]:
    """Check every page and index of a file, table by table, so that each look is short; a server checks its own."""
    if path is None:
        return [_usable(path, "it answers")]
    from harborage.store.sqlite import Database
    from harborage.store.sqlite.audit import page_flaws

    try:
        database = await Database.open(path, is_read_only=is_read_only)
        try:
            flaws = await page_flaws(database)
        finally:
            await database.aclose()
    except DatabaseError as error:
        return [Finding(what="database", detail=str(error), is_ok=False)]
    if not flaws:
        return [_usable(path, "whole")]
    text = f"{path}: damaged: {'; '.join(flaws[:_MOST_FLAWS])}; keep the file, and restore a copy that is whole"
    return [Finding(what="database", detail=text, is_ok=False)]


def _place(path: Path) -> list[Finding]:
    folder = path.absolute().parent
    found = []
    room = shutil.disk_usage(folder).free
    if room < _LITTLE_ROOM:
        text = f"{room:,} bytes are left on the disk of {folder}; free some space"
        found.append(Finding(what="disk", detail=text, is_ok=False))
    if not os.access(folder, os.W_OK):
        text = f"{folder} may not be written, and SQLite writes beside its file; let this user write there"
        found.append(Finding(what="folder", detail=text, is_ok=False))
    return found


async def list_pending(
    storage: Storage,
    *,
    clock: Timers = SYSTEM_CLOCK,
    sessions: SessionPolicy = SessionPolicy(),  # noqa: B008 - a frozen value
) -> list[PendingItem]:
    """List the pending work of all users: runs, pauses, approvals, tasks, groups and open sessions.

    Each item says for whom it waits and until when; those with `orphan` set will never end. `sessions` says when an
    idle session is closed.

    Raises:
        StateError: the storage cannot be read.
    """
    async with _open_sources(storage, clock, sessions) as sources:
        return await collect_pending(sources)


async def end_orphans(storage: Storage, *, clock: Timers = SYSTEM_CLOCK) -> list[EndedItem]:
    """End the orphans, and apply the default answer of overdue pauses; returns each with what was done.

    Safe while workers run: an item that a worker has taken meanwhile is left alone.

    Raises:
        StateError: the storage cannot be read or written.
    """
    async with _open_sources(storage, clock, SessionPolicy()) as sources:
        return await end_orphaned_work(sources)


@asynccontextmanager
async def _open_sources(storage: Storage, clock: Timers, policy: SessionPolicy) -> AsyncIterator[PendingSources]:
    """Open the parts that read a storage."""
    bus = DurableEventBus(storage.store, clock=clock)
    tasks = InProcessTaskRegistry(bus=bus, store=storage.store, clock=clock, runs=TaskRuns(clock))
    sessions = SessionRegistry(storage.store, bus, policy=policy, clock=clock)
    try:
        yield PendingSources(
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
