"""`harborage freeze`: a recorded run turned into a test that passes offline."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from harborage.cli.place import storage_url
from harborage.cli.storage import artifacts_of, carry_out, kept_runs

__all__ = ["freeze"]

_RUN = "Which run: its id, or as much of its beginning as no other has."
_OUT = "The folder that gets the test."
_AGENT = "The agent to test, such as agent.py."
_STORAGE = "The database, such as sqlite:FILE or postgres://…"


def freeze(
    run: Annotated[str, Parameter(help=_RUN)],
    /,
    *,
    out: Annotated[Path, Parameter(name=["--out", "-o"], help=_OUT)] = Path("tests"),
    agent: Annotated[str, Parameter(help=_AGENT, show_default="the one that ran it")] = "",
    force: Annotated[bool, Parameter(help="Overwrite files that are there.", negative="", show_default=False)] = False,
    storage: Annotated[
        str, Parameter(help=_STORAGE, show_default="HARBORAGE_STORAGE, else .harborage/harborage.db")
    ] = "",
    debug: Annotated[bool, Parameter(help="Show where errors come from.", negative="", show_default=False)] = False,
) -> int:
    """Write a pytest file that replays a run, and the record it replays beside it.

    The test needs no key, no network and no plugin. It passes as long as the
    agent decides what it decided in this run, and shows the first difference when
    it does not. Secrets are hidden in what is written. A run that does not replay
    now is not frozen.

    Exit codes:
      0  both files are written
      1  the run is still going, does not replay, or a file is there already
      2  wrong use: no such database, run or agent
    """
    url = storage_url(storage, os.environ)
    return carry_out(lambda: _freeze(url, run.strip(), agent.strip(), out, force=force), debug=debug)


_HIDDEN = (
    "is not frozen: secrets are hidden in a frozen run, and without them the agent decides something else; keep them "
    "out of what it decides by, for example in the environment of its tools"
)


async def _freeze(url: str, wanted: str, agent: str, out: Path, *, force: bool) -> int:
    from harborage.app.freezing import FrozenRun, attached_to, cleaner, write_frozen
    from harborage.app.freezing import freeze as frozen_files
    from harborage.app.replays import as_it_ran, recorded_agent, replay_agent
    from harborage.artifacts import ArtifactConfig, open_artifacts
    from harborage.cli.status import agent_of
    from harborage.cli.storage import allow_agent
    from harborage.cli.text import masked, printable
    from harborage.codec import decode
    from harborage.runtime.history import find_run, read_run

    async with kept_runs(url) as storage:
        record = await find_run(storage.store, wanted, where=url)
        entries = await read_run(storage.store, record.run_id)
    target = agent or agent_of(record)
    if target and not agent:
        allow_agent(target, Path.cwd(), run_id=record.run_id, command="freeze")
    with recorded_agent(target, Path.cwd()) as today:
        found = as_it_ran(today, entries, artifacts=artifacts_of(url, Path.cwd()))
        artifacts = await open_artifacts(ArtifactConfig(found.options.artifact_driver, found.options.artifact_root))
        attached = await attached_to(entries, artifacts)
        await artifacts.aclose()
        files = frozen_files(entries, agent=target, root=Path.cwd(), out=out, attached=attached)
        # What is written is what is tried: hiding secrets may not have changed what the planner makes of the rest.
        frozen: FrozenRun = decode(files.run_data, FrozenRun)
        replayed = await replay_agent(found, frozen.record, artifacts=await frozen.artifacts(), clean=cleaner())
        is_by_hiding = replayed.difference is not None and (await replay_agent(found, entries)).difference is None
    if replayed.difference is not None:
        what = _HIDDEN if is_by_hiding else "does not replay, so it is not frozen"
        why = printable(str(masked(replayed.told())))
        sys.stderr.write(f"harborage: run {record.run_id} {what}: {why}\n")
        return 1
    write_frozen(files, force=force)
    sys.stdout.write(f"{files.test}\n{files.run}\n")
    return 0
