"""`harborage runs`: the runs that are kept, listed and shown.

Reading the help must stay cheap, so what reads runs is imported when it is asked for.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from harborage.cli.place import storage_url
from harborage.cli.storage import carry_out, free_orphans, kept_runs

if TYPE_CHECKING:
    from harborage.store import RunRow, Status

__all__ = ["runs"]

_ACTION = "`list` shows the latest runs, `show` one of them with every step."
_RUN = "Which run: its id, or as much of its beginning as no other has."
_STATUS = "Only runs with this status."
_STORAGE = "The database, such as sqlite:FILE or postgres://…"
_JSON = "Print JSON: a run a line, or the whole history."


def runs(
    action: Annotated[Literal["list", "show"], Parameter(help=_ACTION)],
    run: Annotated[str, Parameter(help=_RUN, show_default=False)] = "",
    /,
    *,
    status: Annotated[
        Literal["running", "ready", "parked", "interrupted", "blocked", "finished", "failed"] | None,
        Parameter(help=_STATUS, show_default=False),
    ] = None,
    agent: Annotated[str, Parameter(help="Only runs of this agent.", show_default=False)] = "",
    user: Annotated[str, Parameter(help="Only runs of this user.", show_default=False)] = "",
    session: Annotated[str, Parameter(help="Only runs of this session.", show_default=False)] = "",
    limit: Annotated[int, Parameter(help="How many runs at most.", validator=Number(gt=0))] = 20,
    json: Annotated[bool, Parameter(help=_JSON, negative="", show_default=False)] = False,
    storage: Annotated[
        str, Parameter(help=_STORAGE, show_default="HARBORAGE_STORAGE, else .harborage/harborage.db")
    ] = "",
) -> int:
    """List the runs that are kept, newest first, or show what one of them did.

    `show` tells each step: what was decided, with which calls and what they
    brought, what people said meanwhile, what it waited for, what it cost.

    Exit codes:
      0  done
      1  the database refused, or a record is damaged
      2  wrong use: no such database, no such run, an id that several begin with
    """
    url = storage_url(storage, os.environ)
    if action == "show":
        if not run.strip():
            sys.stderr.write("harborage: say which run: harborage runs show RUN; 'harborage runs list' shows them\n")
            return 2
        return carry_out(lambda: _show(url, run.strip(), is_json=json))
    return carry_out(lambda: _list(url, user, session, status=status or "", agent=agent, limit=limit, is_json=json))


async def _list(url: str, user: str, session: str, *, status: str, agent: str, limit: int, is_json: bool) -> int:
    from harborage.cli.status import agent_of, status_of
    from harborage.runtime.history import all_runs
    from harborage.store import RunQuery

    async with kept_runs(url) as storage:
        await free_orphans(storage)
        found = await all_runs(storage.store, RunQuery(user=user, session=session, statuses=_statuses(status)))
    found = [one for one in found if agent in ("", agent_of(one))]
    found = [one for one in found if status in ("", status_of(one))]
    shown = found[-limit:][::-1]
    if is_json:
        _print_lines(_row_json(one) for one in shown)
    elif shown:
        _print_lines(_table([_row(one) for one in shown]))
    else:
        is_narrowed = bool(status or agent or user or session)
        sys.stderr.write(f"no run {'that fits ' if is_narrowed else ''}is kept in {url}\n")
    if not is_json and len(found) > len(shown):
        sys.stderr.write(f"{len(found) - len(shown)} more; --limit shows them\n")
    return 0


async def _show(url: str, wanted: str, *, is_json: bool) -> int:
    from harborage.app.freezing import shown_json
    from harborage.cli.status import agent_of, status_of, why
    from harborage.cli.text import for_machines, masked, printable
    from harborage.runtime.history import find_run, history_of, read_run, told

    async with kept_runs(url) as storage:
        await free_orphans(storage)
        record = await find_run(storage.store, wanted, where=url)
        history = history_of(await read_run(storage.store, record.run_id))
    if is_json:
        sys.stdout.write(for_machines(shown_json(history.to_json())) + "\n")
        return 0
    lines = told(history, clean=masked)
    if not record.status.is_final:
        status = status_of(record)
        reason = str(masked(why(record))).removeprefix(f"{status}: ")
        lines.insert(1, f"  {status}{f': {reason}' if reason else ''}")
    lines += [f"  agent {agent_of(record) or '(the standard assistant)'}, user {record.who.user_id}"]
    _print_lines(printable(line) for line in lines)
    return 0


def _statuses(status: str) -> tuple[Status, ...]:
    """The statuses among which the runs are that stand so."""
    from harborage.store import LIVE, Status

    match status:
        case "":
            return ()
        case "finished":
            return (Status.COMPLETE, Status.CANCELLED)
        case "failed":
            return (Status.FAILED,)
        case _:
            return LIVE


def _row(record: RunRow) -> tuple[str, ...]:
    from harborage.cli.status import agent_of, status_of
    from harborage.cli.text import masked, one_line
    from harborage.store.times import moment

    when = moment(record.created_at).astimezone().strftime("%Y-%m-%d %H:%M")
    return record.run_id, when, status_of(record), agent_of(record) or "-", one_line(masked(record.about), 60)


def _row_json(record: RunRow) -> str:
    from harborage import codec
    from harborage.cli.status import agent_of, status_of, why
    from harborage.cli.text import for_machines, masked
    from harborage.store.times import moment

    row: dict[str, Any] = {
        "run": record.run_id,
        "status": status_of(record),
        "reason": masked(why(record)),
        "goal": masked(record.about),
        "agent": agent_of(record),
        "user": record.who.user_id,
        "session": record.who.session_id,
        "entries": record.position,
        "created_at": moment(record.created_at),
        "updated_at": moment(record.updated_at),
        "wake_at": None if record.wake_at is None else moment(record.wake_at),
        "waits_for": record.awaits,
    }
    return for_machines(codec.encode(row))


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    return [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]) for row in rows
    ]


def _print_lines(lines: Any) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
