"""`harborage replay`: a recorded run, run again offline with the agent as it is now."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from harborage.cli.place import storage_url
from harborage.cli.storage import artifacts_of, carry_out, kept_runs

__all__ = ["replay"]

_RUN = "Which run: its id, or as much of its beginning as no other has."
_AGENT = "The agent to replay it with, such as agent.py."
_STORAGE = "The database, such as sqlite:FILE or postgres://…"


def replay(
    run: Annotated[str, Parameter(help=_RUN)],
    /,
    *,
    agent: Annotated[str, Parameter(help=_AGENT, show_default="the one that ran it")] = "",
    json: Annotated[bool, Parameter(help="Print the outcome as JSON.", negative="", show_default=False)] = False,
    storage: Annotated[
        str, Parameter(help=_STORAGE, show_default="HARBORAGE_STORAGE, else .harborage/harborage.db")
    ] = "",
    debug: Annotated[bool, Parameter(help="Show where errors come from.", negative="", show_default=False)] = False,
) -> int:
    """Run a recorded run again, offline, and compare every decision with the record.

    The agent's planner is asked again at each step, with what it was shown then
    and the answers that models, tools and people gave then. No tool is called, no
    model is opened, and whatever tries to use the network is refused and named.
    The first difference is shown: a changed prompt, decision, argument or ending.

    Exit codes:
      0  everything came out as it was recorded
      1  something differs, or the record cannot be read
      2  wrong use: no such database, run or agent
    """
    url = storage_url(storage, os.environ)
    return carry_out(lambda: _replay(url, run.strip(), agent.strip(), is_json=json), debug=debug)


async def _replay(url: str, wanted: str, agent: str, *, is_json: bool) -> int:
    from harborage.app.freezing import shown_json
    from harborage.app.replays import as_it_ran, recorded_agent, replay_agent
    from harborage.cli.status import agent_of
    from harborage.cli.storage import allow_agent
    from harborage.cli.text import for_machines, masked, printable
    from harborage.runtime.history import find_run, read_run

    async with kept_runs(url) as storage:
        record = await find_run(storage.store, wanted, where=url)
        entries = await read_run(storage.store, record.run_id)
    target = agent or agent_of(record)
    if target and not agent:
        allow_agent(target, Path.cwd(), run_id=record.run_id, command="replay")
    with recorded_agent(target, Path.cwd()) as found:
        as_then = as_it_ran(found, entries, artifacts=artifacts_of(url, Path.cwd()))
        replayed = await replay_agent(as_then, entries)
    if is_json:
        sys.stdout.write(for_machines(shown_json(replayed.to_json())) + "\n")
        return 0 if replayed.is_same else 1
    sys.stdout.write(f"run {replayed.run_id}: {printable(str(masked(replayed.told())))}\n")
    return 0 if replayed.is_same else 1
