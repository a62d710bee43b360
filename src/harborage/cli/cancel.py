"""`harborage cancel`: the end of a run, from any terminal."""

from __future__ import annotations

import os
import sys
from typing import Annotated

from cyclopts import Parameter

from harborage.cli.place import storage_url
from harborage.cli.storage import carry_out

__all__ = ["cancel"]

_RUN = "Which run: its id, or as much of its beginning as no other has."
_NOW = "Cut the call that is under way; without, the planner is asked once more."
_STORAGE = "The database, such as sqlite:FILE or postgres://…"


def cancel(
    run: Annotated[str, Parameter(help=_RUN)],
    /,
    *,
    now: Annotated[bool, Parameter(help=_NOW, negative="", show_default=False)] = False,
    storage: Annotated[
        str, Parameter(help=_STORAGE, show_default="HARBORAGE_STORAGE, else .harborage/harborage.db")
    ] = "",
    debug: Annotated[bool, Parameter(help="Show where errors come from.", negative="", show_default=False)] = False,
) -> int:
    """End a run that is not over.

    The wish is kept with the run. The process that carries the run acts on it;
    where there is none, whoever resumes the run does.

    Exit codes:
      0  the wish is kept
      1  the database refused
      2  wrong use: no such run, or it is over
    """
    url = storage_url(storage, os.environ)
    return carry_out(lambda: _cancel(url, run.strip(), is_hard=now), debug=debug)


async def _cancel(url: str, wanted: str, *, is_hard: bool) -> int:
    from harborage.cli.address import addressed, open_run, what_now

    async with addressed(url, wanted) as to:
        record = open_run(to.record)
        await to.run.cancel(hard=is_hard)
        sys.stdout.write(f"cancelling run {record.run_id}; {what_now(record)}\n")
    return 0
