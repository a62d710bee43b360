"""`harborage runs`: lists the kept runs, and shows one.

Reading help must stay cheap, so what reads runs is imported when the command is used.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from cyclopts import Parameter
from cyclopts.validators import Number

from harborage.cli.storage import (
    RunId,
    ServerUrl,
    StorageUrl,
    WrongUseError,
    flag,
    is_server,
    open_kept_storage,
    place_of,
    release_expired_leases,
    run_command,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harborage.cli.run_list import ListedRun
    from harborage.runtime.loop.pauses import Pause
    from harborage.store import RunRow, Store

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
    limit: Annotated[int, Parameter(help="Show at most this many, and their children.", validator=Number(gt=0))] = 20,
    all: Annotated[bool, flag("Show all of them.")] = False,
    full: Annotated[bool, flag("Show every argument, result and message of the one uncut.")] = False,
    json: Annotated[bool, flag(_JSON)] = False,
    storage: StorageUrl = "",
    url: ServerUrl = "",
) -> int:
    """List the kept runs, or show what one of them did.

    The list begins with what waits for a person, then come the newest runs.
    Children are below their parent. RUN is the name of a run in every command.

    `show` has each step: the decision, its calls with their results, messages of
    people, what the run waited for, and its cost.

    Exit codes:
      0  done
      1  the database failed, or a journal is damaged
      2  wrong use: no such database, no such run, an id that several begin with
    """
    where = partial(place_of, storage, url, os.environ)
    if action == "show":
        if not run.strip():
            sys.stderr.write("harborage: no run; example: harborage runs show RUN; list them: harborage runs list\n")
            return 2
        return run_command(lambda: _show(where(), run.strip(), is_json=json, is_full=full))
    wanted = _Wanted(status=status or "", agent=agent, user=user, session=session, limit=limit, is_all=all)
    return run_command(lambda: _list(where(), wanted, is_json=json))


class _Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs to list; "" takes any. `limit` counts runs without their children."""

    status: str
    agent: str
    user: str
    session: str
    limit: int
    is_all: bool

    @property
    def is_narrowed(self) -> bool:
        """Whether it leaves runs out."""
        return bool(self.status or self.agent or self.user or self.session)

    def takes(self, row: RunRow) -> bool:
        """Whether a run of the user and the session has this status and this agent, by its short or its whole name."""
        from harborage.cli.run_list import agent_name
        from harborage.cli.status import agent_of, status_of

        return self.status in ("", status_of(row)) and self.agent in ("", agent_of(row), agent_name(row))


async def _list(place: str, wanted: _Wanted, *, is_json: bool) -> int:
    from harborage.cli.run_list import first_trees, list_runs, render_runs, run_json
    from harborage.cli.terminal import look_of
    from harborage.clock import SYSTEM_CLOCK

    kept, pauses = await (_read_server if is_server(place) else _read_storage)(place, wanted)
    now = SYSTEM_CLOCK.now()
    found = list_runs([one for one in kept if wanted.takes(one)], pauses, known=(one.run_id for one in kept))
    shown = found if wanted.is_all else first_trees(found, wanted.limit)
    if is_json:
        _print_lines(run_json(one, now) for one in shown)
        return 0
    if shown:
        _print_lines(render_runs(shown, now, look_of(sys.stdout, os.environ)))
    else:
        sys.stderr.write(f"no run{' with these options' if wanted.is_narrowed else ''} in {place}\n")
    if len(found) > len(shown):
        sys.stderr.write(f"{_counted(shown)} of {_counted(found)} · older: --all\n")
    return 0


async def _read_storage(url: str, wanted: _Wanted) -> tuple[Sequence[RunRow], Sequence[Pause]]:
    """The kept runs of the user and the session, and what they wait for."""
    from harborage.cli.status import status_of
    from harborage.runtime.history import all_runs
    from harborage.store import RunQuery

    async with open_kept_storage(url) as storage:
        await release_expired_leases(storage)
        kept = await all_runs(storage.store, RunQuery(user=wanted.user, session=wanted.session))
        return kept, await open_pauses(storage.store) if any(status_of(one) == "waiting" for one in kept) else ()


async def _read_server(url: str, wanted: _Wanted) -> tuple[Sequence[RunRow], Sequence[Pause]]:
    """The same of a server; without a user those of the user whom the token names."""
    from harborage.cli.server import open_server
    from harborage.cli.status import status_of

    async with open_server(url) as server:
        kept = await server.runs(user=wanted.user, session=wanted.session)
        found = await server.pauses() if any(status_of(one) == "waiting" for one in kept) else []
        return kept, [one.pause_for(server.who) for one in found]


def _counted(listed: Sequence[ListedRun]) -> str:
    from harborage.cli.text import plural

    below = sum(bool(one.depth) for one in listed)
    children = f" and {plural(below, 'child', 'children')}" if below else ""
    return f"{plural(len(listed) - below, 'run')}{children}"


async def _show(place: str, wanted: str, *, is_json: bool, is_full: bool) -> int:
    if is_server(place):
        if is_full:
            raise WrongUseError("--full reads a database; a server shows all with --json")
        from harborage.cli.server_run import show_run

        return await show_run(place, wanted, is_json=is_json)
    from harborage.cli.find import find_named_run
    from harborage.cli.status import agent_of, reason_of, status_of
    from harborage.cli.text import fit_terminal, masked, printable, wire_json
    from harborage.runtime.history import build_history, read_run, render_history
    from harborage.runtime.history.freezing import shown_json

    async with open_kept_storage(place) as storage:
        await release_expired_leases(storage)
        record = await find_named_run(storage.store, wanted, where=place)
        history = build_history(await read_run(storage.store, record.run_id))
    if is_json:
        sys.stdout.write(wire_json(shown_json(history.to_json())) + "\n")
        return 0
    if is_full:
        from harborage.cli.full import render_full

        return _page("".join(f"{printable(line)}\n" for line in render_full(history, masked)))
    lines = render_history(history, clean=masked)
    if not record.status.is_final:
        status = status_of(record)
        reason = str(masked(reason_of(record))).removeprefix(f"{status}: ")
        lines.insert(1, f"  {status}{f': {reason}' if reason else ''}")
    if any("…" in line for line in lines):
        lines.append("  what ends with … is cut: --full shows it whole")
    lines += [f"  agent {agent_of(record) or '(the standard assistant)'}, user {record.who.user_id}"]
    _print_lines(fit_terminal((printable(line) for line in lines), sys.stdout))
    return 0


async def open_pauses(store: Store) -> tuple[Pause, ...]:
    """Return the open pauses of all users."""
    from harborage.events import DurableEventBus
    from harborage.runtime.pauses import Coordinator

    bus = DurableEventBus(store)
    try:
        return await Coordinator(bus=bus, store=store).list_all_open()
    finally:
        await bus.aclose()


def _page(text: str) -> int:
    """Write a text; on a terminal that it does not fit into, through the pager of the person, where there is one."""
    import shutil
    import subprocess

    size = shutil.get_terminal_size()
    pager = os.environ.get("PAGER", "less -R")
    if not sys.stdout.isatty() or text.count("\n") < size.lines or shutil.which(pager.split(" ", 1)[0]) is None:
        sys.stdout.write(text)
        return 0
    subprocess.run(pager, shell=True, input=text, text=True, check=False)
    return 0


def _print_lines(lines: Any) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
