"""`harborage doctor`: checks the database, in part or whole, lists pending work, and ends orphans.

Reading help must stay cheap, so what reads the database is imported when the command is used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Annotated

import msgspec

from harborage.cli.storage import (
    Debug,
    ServerUrl,
    StorageUrl,
    absolute_url,
    database_file,
    flag,
    local_place,
    open_kept_storage,
    release_expired_leases,
    require_database,
    run_command,
)

if TYPE_CHECKING:
    from harborage.runtime.durable.orphans import EndedItem
    from harborage.runtime.durable.pending import PendingItem

DATABASE = "database"
_HEALTHY, _NEEDS_PERSON = 0, 1
_CLEAR = "\x1b[K"  # to the end of the line


class _Options(msgspec.Struct, frozen=True, kw_only=True):
    is_whole: bool
    settles: bool
    accepts_loss: bool
    is_confirmed: bool
    is_json: bool
    url: str = ""


def doctor(
    *,
    all: Annotated[bool, flag("Read everything that is stored, and check that it agrees.")] = False,
    settle: Annotated[bool, flag("End orphans and overdue items; asks first, in a terminal.")] = False,
    accept_loss: Annotated[bool, flag("Report a lost log of the database no more.")] = False,
    yes: Annotated[bool, flag("Do not ask first.")] = False,
    json: Annotated[bool, flag("Print everything as one JSON object.")] = False,
    storage: StorageUrl = "",
    url: ServerUrl = "",
    debug: Debug = False,
) -> int:
    """Check the database and list pending work: for whom it waits, and until when.

    --all also reads every run, entry, event, pause and session, and every page
    of a file: what is damaged, gone or does not agree is named with its row.
    It takes up to a minute for a million runs; workers go on meanwhile.

    The list has the runs, pauses, approvals, background tasks, groups and
    sessions of all users. An orphan is one that no worker, timer or person will
    ever end: a pause of a run that has ended, a task whose run never started.
    --settle ends each orphan in the way that is shown, and applies the default
    answer of each overdue item.

    A database that was copied or left without its log lacks its last commits.
    That is reported until --accept-loss, also if the file is opened meanwhile.

    Exit codes:
      0  nothing needs you
      1  something needs a person: an answer, a resume, other code, a repair
      2  wrong use: no such database
    """
    options = _Options(
        is_whole=all,
        settles=settle,
        accepts_loss=accept_loss,
        is_confirmed=yes,
        is_json=json,
    )
    why = "reads the database itself, on the machine of the server"
    place = partial(local_place, storage, url, os.environ, command="doctor", why=why)
    return run_command(lambda: _doctor(msgspec.structs.replace(options, url=place())), debug=debug)


async def _doctor(options: _Options) -> int:
    from harborage.app.doctor import check_storage
    from harborage.cli.status import needs_person, pending_json, render_findings
    from harborage.cli.text import wire_json

    require_database(options.url)
    on_progress = _show_progress if options.is_whole and sys.stderr.isatty() else None
    findings = await check_storage(
        absolute_url(options.url),
        database_file(options.url),
        is_whole=options.is_whole,
        accepts_loss=options.accepts_loss,
        on_progress=on_progress,
    )
    if on_progress is not None:
        _clear_progress()
    if not options.is_json:
        _print(render_findings(findings))
    waits: list[PendingItem] = []
    ended: list[EndedItem] = []
    if all(one.is_ok for one in findings if one.what == DATABASE):
        waits, ended = await _list_pending(options)
    if options.is_json:
        sys.stdout.write(wire_json(pending_json(findings, waits, ended)) + "\n")
    is_ok = all(one.is_ok for one in findings) and not any(map(needs_person, waits))
    return _HEALTHY if is_ok else _NEEDS_PERSON


async def _list_pending(options: _Options) -> tuple[list[PendingItem], list[EndedItem]]:
    """Return the pending work and what was ended; both are printed first, because a person decides on the list."""
    from harborage.app.doctor import end_orphans, list_pending
    from harborage.cli.status import render_ended, render_pending
    from harborage.clock import SYSTEM_CLOCK

    async with open_kept_storage(options.url, writes=options.settles) as storage:
        await release_expired_leases(storage)
        waits = await list_pending(storage)
        if not options.is_json:
            _print(render_pending(waits, SYSTEM_CLOCK.now(), settles=options.settles))
        can_end = [one for one in waits if one.is_orphan or one.is_overdue]
        if not options.settles or not can_end or not _confirm(options, len(can_end)):
            return waits, []
        ended = await end_orphans(storage)
        if not options.is_json:
            _print(render_ended(ended))
        return await list_pending(storage), ended


def _show_progress(part: str, share: float) -> None:
    """Show in one line of the terminal how much of a part was checked; the next line takes its place."""
    sys.stderr.write(f"\r{_CLEAR}checking {part} {share:.0%}")
    sys.stderr.flush()


def _clear_progress() -> None:
    sys.stderr.write(f"\r{_CLEAR}")
    sys.stderr.flush()


def _confirm(options: _Options, count: int) -> bool:
    """Whether to end so many items: a person is asked in a terminal; elsewhere --settle is enough."""
    if options.is_confirmed or options.is_json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return True
    sys.stderr.write(f"End {count} of them (y/n)? ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _print(lines: Iterable[str]) -> None:
    from harborage.cli.text import fit_terminal

    lines = fit_terminal(lines, sys.stdout)
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()
