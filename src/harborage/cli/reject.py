"""`harborage reject`: a no to what a run waits for, from any terminal."""

from __future__ import annotations

import os
import sys
from typing import Annotated

from cyclopts import Parameter

from harborage.cli.place import storage_url
from harborage.cli.storage import carry_out

__all__ = ["reject"]

_RUN = (
    "Which one: the whole token of the question. At a terminal also a run, or the beginning of either: the question "
    "is shown then, before anything is sent."
)
_REASON = "Why, for the record and for the agent."
_STORAGE = "The database, such as sqlite:FILE or postgres://…"


def reject(
    run: Annotated[str, Parameter(help=_RUN)],
    /,
    *,
    reason: Annotated[str, Parameter(help=_REASON, show_default=False)] = "",
    storage: Annotated[
        str, Parameter(help=_STORAGE, show_default="HARBORAGE_STORAGE, else .harborage/harborage.db")
    ] = "",
    debug: Annotated[bool, Parameter(help="Show where errors come from.", negative="", show_default=False)] = False,
) -> int:
    """Say no to the call, or the pause, that a run waits with.

    A call that is refused is not made, and the agent is told why; a run whose
    pause is refused ends; a call that was interrupted is not made again, and the
    agent is told that its outcome is unknown. The answer is kept with the run,
    like that of 'approve'.

    Exit codes:
      0  the answer is kept
      1  the answer was refused, another came first, or the database refused
      2  wrong use: no such run, nothing or too much to answer, not confirmed
    """
    url = storage_url(storage, os.environ)
    return carry_out(lambda: _reject(url, run.strip(), reason), debug=debug)


async def _reject(url: str, wanted: str, reason: str) -> int:
    from harborage.cli.address import addressed, asked, what_now
    from harborage.runtime.steering.controls import ControlType

    async with addressed(url, wanted) as to:
        question = to.question("reject")
        to.confirm(question, "harborage reject")
        await to.deliver(question, ControlType.REJECT, {"token": question.token, "reason": reason})
        sys.stdout.write(f"refused: {asked(question)}; {what_now(to.record)}\n")
    return 0
