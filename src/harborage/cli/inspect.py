"""`harborage tasks` and `inspect`: the runs of a server, and what one of them did, event by event.

Reading help must stay cheap, so what speaks to the server is imported when a command is used.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec
from cyclopts import Parameter
from cyclopts.validators import Number

from harborage.cli.server_commands import (
    Asked,
    Bind,
    Codes,
    DebugErrors,
    Json,
    PinnedError,
    Quiet,
    Session,
    Tenant,
    User,
    open_asked,
    run_pinned,
    watch,
)

if TYPE_CHECKING:
    from harborage.cli.event_lines import WireEvent
    from harborage.client.answers import TaskRow

_QUIET_S: Final = 1.0
_MOST_S: Final = 20.0
_MOST_ROWS: Final = 200
_SINCE: Final = "Begin behind this number of an event."


def tasks(
    *,
    status: Annotated[
        Literal["pending", "running", "paused", "complete", "failed", "cancelled"] | None,
        Parameter(help="Only tasks with this status.", show_default=False),
    ] = None,
    kind: Annotated[
        Literal["foreground", "background"] | None, Parameter(help="Only tasks of this kind.", show_default=False)
    ] = None,
    limit: Annotated[int, Parameter(help="Show at most this many.", validator=Number(gt=0, lte=_MOST_ROWS))] = 50,
    session: Session = "",
    url: Bind = "",
    json: Json = False,
    debug: DebugErrors = False,
) -> int:
    """List the tasks of a server, the newest first.

    They are runs, and what those started in the background. Without --session
    those of all sessions of the user.

    Exit codes:
      0  done
      1  the server refused, or did not answer
    """
    narrowed: dict[str, object] = {"statuses": [status]} if status else {}
    if kind:
        narrowed["kinds"] = [kind]
    work = partial(_tasks, Asked(bind=url, session=session), narrowed, limit, is_json=json)
    return run_pinned("tasks", work, Codes(), is_json=json, debug=debug)


async def _tasks(asked: Asked, narrowed: dict[str, object], limit: int, *, is_json: bool) -> int:
    async with open_asked(asked, Codes()) as (remote, who):
        owner = {"tenant": who.tenant_id, "user": who.user_id}
        if not asked.session:
            narrowed = {"identities": [owner], **narrowed}
        rows, after = await remote.rows(who, narrowed, limit=limit)
    for row in rows:
        sys.stdout.write(f"{_row_json(row) if is_json else _row_line(row)}\n")
    if not rows and not is_json:
        sys.stderr.write("no tasks\n")
    if after and not is_json:
        sys.stderr.write(f"{len(rows)} shown · more: --limit\n")
    return 0


def _row_json(row: TaskRow) -> str:
    fields = {key: value for key, value in msgspec.to_builtins(row).items() if value not in (None, "")}
    return msgspec.json.encode({"type": "task", **fields}).decode()


def _row_line(row: TaskRow) -> str:
    from harborage.cli.text import one_line, printable

    about = one_line(printable(row.description or row.query, keep=""), 80)
    return f"{row.id}  {row.word:<11}  {row.kind:<10}  {row.agent_name:<12}  {about}".rstrip()


def inspect(
    run: Annotated[str, Parameter(help="The id of the run.")],
    /,
    *,
    session: Session = "",
    since: Annotated[int, Parameter(help=_SINCE, validator=Number(gte=0))] = 0,
    url: Bind = "",
    json: Json = False,
    debug: DebugErrors = False,
) -> int:
    """Show what a run on a server did, event by event.

    Exit codes:
      0  done
      1  no such run, or the server refused or did not answer
    """
    asked = Asked(bind=url, session=session)
    return run_pinned("inspect", partial(_inspect, asked, run, since, is_json=json), Codes(), is_json=json, debug=debug)


def inspect_runs(
    run: Annotated[str, Parameter(help="The id of one run.", show_default=False)] = "",
    /,
    *,
    bind: Bind = "",
    tenant: Tenant = "",
    user: User = "",
    session: Session = "",
    since: Annotated[int, Parameter(help=_SINCE, validator=Number(gte=0))] = 0,
    json: Json = False,
    quiet: Quiet = False,
    debug: DebugErrors = False,
) -> int:
    """List the runs that the events of a server tell of, or show one: the form that scripts of the original use.

    Exit codes:
      0  done
      1  any error
    """
    asked = Asked(bind=bind, tenant=tenant, user=user, session=session, needs_identity=True)
    work = (
        partial(_inspect, asked, run.strip(), since, is_json=json)
        if run.strip()
        else partial(_list, asked, since, is_json=json, is_quiet=quiet)
    )
    return run_pinned("inspect-runs", work, Codes(), is_json=json, debug=debug)


async def _list(asked: Asked, since: int, *, is_json: bool, is_quiet: bool) -> int:
    from harborage.cli.event_lines import seen_runs

    found = seen_runs(await _read(asked, since))
    if is_json:
        sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
        return 0
    for run in found:
        sys.stdout.write(f"{run.run_id}  {run.status:<9}  {run.events} events  {run.last_at}  {run.last_type}\n")
    if not found and not is_quiet:
        sys.stdout.write("no runs visible in the replay window\n")
    return 0


async def _inspect(asked: Asked, run: str, since: int, *, is_json: bool) -> int:
    from harborage.cli.event_lines import run_steps, step_line

    steps = run_steps(await _read(asked, since, run), run)
    if not steps:
        hint = "it may be of another session: --session S" if not asked.session else "'harborage tasks' lists them"
        raise PinnedError("run_not_found", f"no events of run {run!r} are kept", hint)
    if is_json:
        sys.stdout.write(msgspec.json.encode({"run_id": run, "steps": steps}).decode() + "\n")
    else:
        sys.stdout.write("".join(f"{step_line(step)}\n" for step in steps))
    return 0


async def _read(asked: Asked, since: int, run: str = "") -> list[WireEvent]:
    """The events that the server keeps."""
    from harborage.client.events import EventStream, StreamOptions

    found: list[WireEvent] = []
    async with open_asked(asked, Codes()) as (remote, who):
        stream = EventStream(remote.connection, who, StreamOptions(run=run, after=since))
        await watch(stream, lambda event, _: found.append(event), idle_s=_QUIET_S, most_s=_MOST_S)
    return found
