"""`harborage topology`: the tree of what a run on a server did: calls, approvals, pauses, runs below it.

Reading help must stay cheap, so what speaks to the server is imported when the command is used.
"""

from __future__ import annotations

import re
import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from cyclopts import Parameter

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

_PREFIX: Final = "inspect_topology_"
_CODES: Final = Codes(
    bind=f"{_PREFIX}bind_invalid",
    token=f"{_PREFIX}auth_missing",
    connection=f"{_PREFIX}connect_failed",
    refusal=f"{_PREFIX}http_status",
    run=f"{_PREFIX}run_not_found",
)
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m)?")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0}
_NARROWEST, _WIDEST = 20, 1024
_BEYOND_IDLE_S: Final = 10.0

RunName = Annotated[str, Parameter(help="The id of the run.", show_default=False)]
Width = Annotated[int, Parameter(help=f"Columns, from {_NARROWEST} to {_WIDEST}.")]
Idle = Annotated[str, Parameter(name="--idle-timeout", help="Stop when the server was silent for so long.")]


def topology(
    run: RunName = "",
    /,
    *,
    session: Session = "",
    width: Width = 80,
    idle_timeout: Idle = "1.5s",
    url: Bind = "",
    json: Json = False,
    debug: DebugErrors = False,
) -> int:
    """Show the tree of what a run on a server did, made of its events.

    Exit codes:
      0  done
      1  no such run, or the server refused or did not answer
    """
    asked = Asked(bind=url, session=session)
    work = partial(_show, asked, run.strip(), width, idle_timeout, is_json=json)
    return run_pinned("topology", work, _CODES, is_json=json, debug=debug)


def inspect_topology(
    run: RunName = "",
    /,
    *,
    bind: Bind = "",
    tenant: Tenant = "",
    user: User = "",
    session: Session = "",
    width: Width = 80,
    idle_timeout: Idle = "1.5s",
    json: Json = False,
    quiet: Quiet = False,
    debug: DebugErrors = False,
) -> int:
    """Show the tree of what a run did: the form that scripts of the original use.

    Exit codes:
      0  done
      1  any error
    """
    asked = Asked(bind=bind, tenant=tenant, user=user, session=session)
    work = partial(_show, asked, run.strip(), width, idle_timeout, is_json=json)
    return run_pinned("inspect-topology", work, _CODES, is_json=json, debug=debug)


async def _show(asked: Asked, run: str, width: int, idle: str, *, is_json: bool) -> int:
    from harborage.cli.event_lines import render_topology
    from harborage.cli.event_lines import topology as tree_of
    from harborage.client.events import EventStream, StreamOptions

    if not run:
        raise PinnedError(f"{_PREFIX}run_id_missing", "no run", "example: harborage topology RUN")
    if not _NARROWEST <= width <= _WIDEST:
        raise PinnedError(f"{_PREFIX}width_invalid", f"--width {width}", f"a number from {_NARROWEST} to {_WIDEST}")
    idle_s = _seconds(idle)
    found: list[WireEvent] = []

    def accept(event: WireEvent, _: bytes) -> bool:
        found.append(event)
        return event.type == "planner.finish" and event.run_id == run

    async with open_asked(asked, _CODES) as (remote, who):
        options = StreamOptions(run=run, children=True, after=0)
        stream = EventStream(remote.connection, who, options)
        await watch(stream, accept, idle_s=idle_s, most_s=idle_s + _BEYOND_IDLE_S)
    mine = next((one for one in found if one.run_id == run), None)
    if mine is None:
        raise PinnedError(
            f"{_PREFIX}run_not_found", f"no events of run {run!r} are kept", "--session names its session"
        )
    nodes = tree_of(found, run)
    owner = (mine.tenant, mine.user, mine.session)
    if is_json:
        shown = {"run_id": run, "tenant": mine.tenant, "user": mine.user, "session": mine.session, "nodes": nodes}
        sys.stdout.write(msgspec.json.encode(shown).decode() + "\n")
    else:
        sys.stdout.write("".join(f"{line}\n" for line in render_topology(nodes, run, owner, width)))
    return 0


def _seconds(text: str) -> float:
    found = _DURATION.fullmatch(text.strip())
    seconds = float(found[1]) * _UNITS[found[2] or "s"] if found else 0.0
    if not 0 < seconds <= 3600:
        raise PinnedError("invocation_error", f"--idle-timeout {text!r} is no duration", "such as 1.5s or 500ms")
    return seconds
