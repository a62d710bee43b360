"""`harborage pending`: what waits for a person, the nearest deadline first.

Reading help must stay cheap, so what reads the database is imported when the command is used.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from harborage.cli.storage import (
    Debug,
    ServerUrl,
    StorageUrl,
    flag,
    is_server,
    open_kept_storage,
    place_of,
    release_expired_leases,
    run_command,
)

if TYPE_CHECKING:
    from harborage.cli.pending_list import PendingQuestion

_DONE, _SOMETHING_WAITS = 0, 5
_USER = "Only runs of this user; without, those of all users."


def pending(
    *,
    user: Annotated[str, Parameter(help=_USER, show_default=False)] = "",
    check: Annotated[bool, flag("Exit with 5 when something waits, for scripts.")] = False,
    json: Annotated[bool, flag("Print JSON: one question a line.")] = False,
    storage: StorageUrl = "",
    url: ServerUrl = "",
    debug: Debug = False,
) -> int:
    """List the questions that wait for a person, the nearest deadline first.

    Calls that need approval, interrupted calls whose outcome is unknown,
    questions of runs, and runs that a person paused. 'harborage approve RUN',
    'reject' and 'answer' answer one; 'harborage resume RUN' does so in a run.

    Exit codes:
      0  done
      1  the database failed
      2  wrong use: no such database
      5  with --check: something waits
    """
    where = partial(place_of, storage, url, os.environ)
    return run_command(lambda: _pending(where(), user, is_check=check, is_json=json), debug=debug)


async def _pending(place: str, user: str, *, is_check: bool, is_json: bool) -> int:
    from harborage.cli.pending_list import question_json, render_questions, render_rest
    from harborage.cli.terminal import look_of
    from harborage.clock import SYSTEM_CLOCK

    waits = await _list(place, user)
    now = SYSTEM_CLOCK.now()
    if is_json:
        lines = [question_json(one) for one in waits]
    else:
        lines = render_questions(waits, now, look_of(sys.stdout, os.environ))
        sys.stderr.write(render_rest(waits))
    sys.stdout.write("".join(f"{one}\n" for one in lines))
    return _SOMETHING_WAITS if is_check and waits else _DONE


async def _list(place: str, user: str) -> list[PendingQuestion]:
    from harborage.cli.pending_list import list_questions
    from harborage.cli.runs import open_pauses
    from harborage.runtime.history import all_runs
    from harborage.store import RunQuery

    if is_server(place):
        return await _list_of_server(place, user)
    async with open_kept_storage(place) as storage:
        await release_expired_leases(storage)
        pauses = await open_pauses(storage.store)
        rows = await all_runs(storage.store, RunQuery()) if pauses else []
    return list_questions(rows, [one for one in pauses if user in ("", one.identity.user_id)])


async def _list_of_server(url: str, user: str) -> list[PendingQuestion]:
    from harborage.cli.pending_list import list_questions
    from harborage.cli.server import open_server

    async with open_server(url) as server:
        found = await (server.pauses(user_ids=[user]) if user else server.pauses())
        users = {one.identity.user for one in found}
        rows = [row for one in sorted(users) for row in await server.runs(user=one, statuses=["paused", "running"])]
    pauses = [one.pause_for(server.who) for one in found]
    return list_questions(rows, [one for one in pauses if user in ("", one.identity.user_id)])
