"""What `harborage doctor` does: check a storage, list its pending work, and end orphans.

A check changes nothing but what opening a database changes: missing migrations are applied. Any number of workers may
work on the storage meanwhile.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from msgspec.structs import replace

from harborage.app.examination import Flaws, OnProgress, examine
from harborage.clock import SYSTEM_CLOCK, Timers
from harborage.errors import HarborageError
from harborage.events import DurableEventBus
from harborage.runtime.durable.orphans import EndedItem, PendingSources, collect_pending, end_orphaned_work
from harborage.runtime.effects.task_runs import TaskRuns
from harborage.runtime.pauses import Coordinator
from harborage.sessions import SessionPolicy, SessionRegistry
from harborage.state.errors import DatabaseError, DatabaseReadOnlyError
from harborage.state.storage import Storage, open_storage
from harborage.store import RunQuery
from harborage.tasks import InProcessTaskRegistry, TaskCorruptError
from harborage.tasks.rows import task_of

if TYPE_CHECKING:
    from harborage.runtime.durable.pending import PendingItem
    from harborage.state.storage import Storage

T = TypeVar("T")
_MOST_FLAWS: Final = 5
_PAGE: Final = 500
_LITTLE_ROOM: Final = 100 * 1024 * 1024
_CLOSING_S: Final = 0.2


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One result of a check: `what` was checked, `detail` is the result, `is_ok` whether that is in order."""

    what: str
    detail: str
    is_ok: bool = True


async def check_storage(
    url: str, path: Path | None, *, is_whole: bool = False, on_progress: OnProgress | None = None
) -> list[Finding]:
    """Check the storage that `url` names, a file at `path` if it is one; a finding that is not ok says what to do.

    The check says whether it can be used. With `is_whole` every row is read, in slices that keep no worker waiting, and
    `on_progress` is called.
    """
    found = [] if path is None else await _lost_log(path)
    try:
        storage = await open_storage(url)  # checks the path, the file system, the permission to write, and migrations
    except DatabaseReadOnlyError as error:
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
    return [Finding(what="log", detail=why, is_ok=False)] if why else []


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
    return f"{log} is missing, and {why}: the last commits are lost; restore both files, or a whole copy"


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
