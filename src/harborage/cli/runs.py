"""`harborage runs`: lists the kept runs, and shows one.

Reading help must stay cheap, so what reads runs is imported when the command is used.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from harborage.cli.storage import (
    RunId,
    StorageUrl,
    flag,
    open_kept_storage,
    release_expired_leases,
    run_command,
    storage_url,
)

if TYPE_CHECKING:
    from harborage.store import RunRow, Status

_GOAL = 60
_LEAST_GOAL = 12

_ACTION = "`list` shows the latest runs, `show` one run with every step."
_JSON = "Print JSON: one run a line, or the history of the one."


def runs(
    action: Annotated[Literal["list", "show"], Parameter(help=_ACTION)],
    run: Annotated[RunId, Parameter(show_default=False)] = "",
    /,
    *,
    status: Annotated[
        Literal["pending", "running", "waiting", "interrupted", "blocked", "complete", "failed", "cancelled"] | None,
        Parameter(help="Only runs with this status.", show_default=False),
    ] = None,
    agent: Annotated[str, Parameter(help="Only runs of this agent.", show_default=False)] = "",
    user: Annotated[str, Parameter(help="Only runs of this user.", show_default=False)] = "",
    session: Annotated[str, Parameter(help="Only runs of this session.", show_default=False)] = "",
    limit: Annotated[int, Parameter(help="Show at most this many runs.", validator=Number(gt=0))] = 20,
    json: Annotated[bool, flag(_JSON)] = False,
    storage: StorageUrl = "",
) -> int:
    """List the kept runs, newest first, or show what one of them did.

    `show` has each step: the decision, its calls with their results, messages of
    people, what the run waited for, and its cost.

    Exit codes:
      0  done
      1  the database failed, or a journal is damaged
      2  wrong use: no such database, no such run, an id that several begin with
    """
    url = storage_url(storage, os.environ)
    if action == "show":
        if not run.strip():
            sys.stderr.write("harborage: no run; example: harborage runs show RUN; list them: harborage runs list\n")
            return 2
        return run_command(lambda: _show(url, run.strip(), is_json=json))
    return run_command(lambda: _list(url, user, session, status=status or "", agent=agent, limit=limit, is_json=json))


async def _list(url: str, user: str, session: str, *, status: str, agent: str, limit: int, is_json: bool) -> int:
    from harborage.cli.status import agent_of, status_of
    from harborage.cli.text import terminal_width
    from harborage.runtime.history import all_runs
    from harborage.store import RunQuery

    async with open_kept_storage(url) as storage:
        await release_expired_leases(storage)
        found = await all_runs(storage.store, RunQuery(user=user, session=session, statuses=_statuses(status)))
    found = [one for one in found if agent in ("", agent_of(one))]
    found = [one for one in found if status in ("", status_of(one))]
    shown = found[-limit:][::-1]
    if is_json:
        _print_lines(_row_json(one) for one in shown)
    elif shown:
        _print_lines(_table([_row(one) for one in shown], terminal_width(sys.stdout)))
    else:
        is_narrowed = bool(status or agent or user or session)
        sys.stderr.write(f"no run{' with these options' if is_narrowed else ''} in {url}\n")
    if not is_json and len(found) > len(shown):
        sys.stderr.write(f"{len(found) - len(shown)} more: --limit {len(found)}\n")
    return 0


async def _show(url: str, wanted: str, *, is_json: bool) -> int:
    from harborage.app.frozen_run import shown_json
    from harborage.cli.status import agent_of, reason_of, status_of
    from harborage.cli.text import fit_terminal, masked, printable, wire_json
    from harborage.runtime.history import build_history, find_run, read_run, render_history

    async with open_kept_storage(url) as storage:
        await release_expired_leases(storage)
        record = await find_run(storage.store, wanted, where=url)
        history = build_history(await read_run(storage.store, record.run_id))
    if is_json:
        sys.stdout.write(wire_json(shown_json(history.to_json())) + "\n")
        return 0
    lines = render_history(history, clean=masked)
    if not record.status.is_final:
        status = status_of(record)
        reason = str(masked(reason_of(record))).removeprefix(f"{status}: ")
        lines.insert(1, f"  {status}{f': {reason}' if reason else ''}")
    lines += [f"  agent {agent_of(record) or '(the standard assistant)'}, user {record.who.user_id}"]
    _print_lines(fit_terminal((printable(line) for line in lines), sys.stdout))
    return 0


def _statuses(status: str) -> tuple[Status, ...]:
    """The stored statuses of runs with this status, among others: the rest of a row decides, too."""
    from harborage.store import LIVE, Status

    match status:
        case "":
            return ()
        case "complete" | "cancelled":
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
    return record.run_id, when, status_of(record), agent_of(record) or "-", one_line(masked(record.about), _GOAL)


def _row_json(record: RunRow) -> str:
    from harborage import codec
    from harborage.cli.status import agent_of, reason_of, status_of
    from harborage.cli.text import masked, wire_json
    from harborage.store.times import moment

    row: dict[str, Any] = {
        "run": record.run_id,
        "status": status_of(record),
        "reason": masked(reason_of(record)),
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
    return wire_json(codec.encode(row))


def _table(rows: list[tuple[str, ...]], width: int | None = None) -> list[str]:
    """Align the rows in columns, cut to `width`; where that leaves the goal too little room, two lines a run."""
    from harborage.cli.text import one_line

    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    room = _GOAL if width is None else width - sum(widths) - 2 * len(widths)
    if width is not None and room < _LEAST_GOAL:
        return [line for row in rows for line in _record(row, widths, width)]
    return [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), one_line(row[-1], room)])
        for row in rows
    ]


def _record(row: tuple[str, ...], widths: list[int], width: int) -> list[str]:
    """One run in two lines: id, time and status; agent and goal."""
    from harborage.cli.text import one_line

    *facts, agent, goal = row
    first = "  ".join(cell.ljust(width) for cell, width in zip(facts, widths, strict=False)).rstrip()
    return [first, f"    {one_line(f'{agent}  {goal}', max(8, width - 4))}"]


def _print_lines(lines: Any) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
