"""`harborage doctor`: what waits, on whom and until when; what nobody would ever end, and the end of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import Parameter

from harborage.cli.place import absolute, file_of, storage_url
from harborage.cli.storage import carry_out, check_there, free_orphans, kept_runs

if TYPE_CHECKING:
    from harborage.app.waiting import Settled, Wait

__all__ = ["doctor"]

_STORAGE = "The database, such as sqlite:FILE or postgres://…"
DATABASE = "database"
_HEALTHY, _UNWELL = 0, 1


def _flag(text: str) -> Parameter:
    return Parameter(help=text, negative="", show_default=False)


class _Wanted(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    settles: bool
    is_sure: bool
    is_json: bool


def doctor(
    *,
    settle: Annotated[bool, _flag("End what nobody else would end; asks first, in a terminal.")] = False,
    yes: Annotated[bool, _flag("Do not ask first.")] = False,
    json: Annotated[bool, _flag("Print everything as one JSON object.")] = False,
    storage: Annotated[
        str, Parameter(help=_STORAGE, show_default="HARBORAGE_STORAGE, else .harborage/harborage.db")
    ] = "",
    debug: Annotated[bool, _flag("Show where errors come from.")] = False,
) -> int:
    """Check the database, and list pending work: on whom it waits, until when.

    Runs, pauses, approvals, background tasks, groups and sessions are looked at,
    whoever they belong to. What no worker, timer or person will ever end is an
    orphan: a pause of a run that is over, a task whose run never began. --settle
    ends each in the way that it says, and lets answers that are overdue take
    their default.

    Exit codes:
      0  all is well, and whatever waits ends by itself
      1  something needs a person: an answer, other code, an orphan, a repair
      2  wrong use: no such database
    """
    wanted = _Wanted(url=storage_url(storage, os.environ), settles=settle, is_sure=yes, is_json=json)
    return carry_out(lambda: _doctor(wanted), debug=debug)


async def _doctor(wanted: _Wanted) -> int:
    from harborage.app.checkup import check_storage
    from harborage.cli.status import findings_lines, needs_person, report
    from harborage.cli.text import for_machines

    check_there(wanted.url)
    findings = await check_storage(absolute(wanted.url), file_of(wanted.url))
    if not wanted.is_json:
        _print(findings_lines(findings))
    waits: list[Wait] = []
    settled: list[Settled] = []
    if all(one.is_well for one in findings if one.what == DATABASE):
        waits, settled = await _look(wanted)
    if wanted.is_json:
        sys.stdout.write(for_machines(report(findings, waits, settled)) + "\n")
    is_well = all(one.is_well for one in findings) and not any(map(needs_person, waits))
    return _HEALTHY if is_well else _UNWELL


async def _look(wanted: _Wanted) -> tuple[list[Wait], list[Settled]]:
    """What waits, and what was settled; told on the way, since a person decides on it."""
    from harborage.app.waiting import settle_orphans, waiting
    from harborage.cli.status import settled_lines, waits_lines
    from harborage.clock import SYSTEM_CLOCK

    async with kept_runs(wanted.url, writes=wanted.settles) as storage:
        await free_orphans(storage)
        waits = await waiting(storage)
        if not wanted.is_json:
            _print(waits_lines(waits, SYSTEM_CLOCK.now(), settles=wanted.settles))
        can_settle = [one for one in waits if one.is_orphan or one.is_overdue]
        if not wanted.settles or not can_settle or not _agreed(wanted, len(can_settle)):
            return waits, []
        settled = await settle_orphans(storage)
        if not wanted.is_json:
            _print(settled_lines(settled))
        return await waiting(storage), settled


def _agreed(wanted: _Wanted, count: int) -> bool:
    """Whether to go ahead: in a terminal a person is asked, elsewhere the option has said so."""
    if wanted.is_sure or wanted.is_json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return True
    sys.stderr.write(f"Settle {count} of them (y/n)? ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _print(lines: Iterable[str]) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()
