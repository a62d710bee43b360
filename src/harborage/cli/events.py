"""`harborage events`: the events of a server as they come, narrowed by run and kind.

Reading help must stay cheap, so what speaks to the server is imported when the command is used.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated, Final

import msgspec
from cyclopts import Parameter
from cyclopts.validators import Number

from harborage.cli.server_commands import (
    PATIENCE_S,
    Asked,
    Bind,
    Codes,
    DebugErrors,
    Json,
    Quiet,
    Session,
    Tenant,
    User,
    open_asked,
    run_pinned,
    watch,
)
from harborage.cli.storage import flag

_FOLLOWS_S: Final = 600.0
_QUIET_S: Final = 1.0
_MOST_S: Final = 20.0
_TYPE: Final = "Only events of this type; may be repeated."
_AFTER: Final = "Begin behind this number; 0 begins with the oldest event that is kept."
_FOLLOW: Final = "Go on with what comes; without, stop at what is there."
_RUN: Final = "Only events of this run and of those below it."


class _Wanted(msgspec.Struct, frozen=True, kw_only=True):
    run: str
    types: tuple[str, ...]
    after: int | None
    follows: bool
    is_json: bool


def events(
    run: Annotated[str, Parameter(help=_RUN, show_default=False)] = "",
    /,
    *,
    type: Annotated[list[str] | None, Parameter(help=_TYPE, show_default=False, negative="")] = None,
    after: Annotated[int | None, Parameter(help=_AFTER, show_default=False, validator=Number(gte=0))] = None,
    follow: Annotated[bool, flag(_FOLLOW)] = False,
    session: Session = "",
    url: Bind = "",
    json: Json = False,
    debug: DebugErrors = False,
) -> int:
    """Show the events of a server, one a line.

    Without --follow those that are kept; with it those that come, after those
    behind --after. A connection that is cut is opened again, and nothing is
    lost or repeated. With --json each line is the event as the server sends it.

    Exit codes:
      0    done
      1    the server refused, or did not answer
      130  ended by Ctrl-C
    """
    start = after if after is not None else (None if follow else 0)
    wanted = _Wanted(run=run.strip(), types=tuple(type or ()), after=start, follows=follow, is_json=json)
    asked = Asked(bind=url, session=session)
    return run_pinned("events", partial(_show, asked, wanted), Codes(), is_json=json, debug=debug)


def inspect_events(
    *,
    bind: Bind = "",
    tenant: Tenant = "",
    user: User = "",
    session: Session = "",
    run: Annotated[str, Parameter(help=_RUN, show_default=False)] = "",
    type: Annotated[list[str] | None, Parameter(help=_TYPE, show_default=False, negative="")] = None,
    since: Annotated[int | None, Parameter(help=_AFTER, show_default=False, validator=Number(gte=0))] = None,
    follow: Annotated[bool, Parameter(name=["--follow", "-f"], help=_FOLLOW)] = True,
    json: Json = False,
    quiet: Quiet = False,
    debug: DebugErrors = False,
) -> int:
    """Show the events of a server, one a line: the form that scripts of the original use.

    Exit codes:
      0  done
      1  any error
    """
    start = since if since is not None else (None if follow else 0)
    wanted = _Wanted(run=run.strip(), types=tuple(type or ()), after=start, follows=follow, is_json=json)
    asked = Asked(bind=bind, tenant=tenant, user=user, session=session, needs_identity=True)
    return run_pinned("inspect-events", partial(_show, asked, wanted), Codes(), is_json=json, debug=debug)


async def _show(asked: Asked, wanted: _Wanted) -> int:
    from harborage.cli.event_lines import WireEvent, event_line
    from harborage.client.events import EventStream, StreamOptions

    def show(event: WireEvent, data: bytes) -> None:
        sys.stdout.write(f"{data.decode() if wanted.is_json else event_line(event)}\n")
        sys.stdout.flush()

    def comment(text: str) -> None:
        if wanted.is_json and asked.needs_identity:
            sys.stdout.write(msgspec.json.encode({"comment": text}).decode() + "\n")
            sys.stdout.flush()
        elif text != "keepalive":
            sys.stderr.write(f"{text}\n")

    options = StreamOptions(run=wanted.run, children=True, types=wanted.types, after=wanted.after)
    async with open_asked(asked, Codes(), patience_s=_FOLLOWS_S if wanted.follows else PATIENCE_S) as (remote, who):
        stream = EventStream(remote.connection, who, options, on_comment=comment)
        await watch(stream, show, idle_s=None if wanted.follows else _QUIET_S, most_s=_MOST_S)
    return 0
