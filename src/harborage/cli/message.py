"""`harborage message`: a word to a run, from any terminal."""

from __future__ import annotations

import os
import sys
from typing import Annotated

from cyclopts import Parameter

from harborage.cli.place import storage_url
from harborage.cli.storage import carry_out

__all__ = ["message"]

_RUN = "Which run: its id, or as much of its beginning as no other has."
_TEXT = "What to say."
_STORAGE = "The database, such as sqlite:FILE or postgres://…"


def message(
    run: Annotated[str, Parameter(help=_RUN)],
    /,
    *text: Annotated[str, Parameter(help=_TEXT)],
    storage: Annotated[
        str, Parameter(help=_STORAGE, show_default="HARBORAGE_STORAGE, else .harborage/harborage.db")
    ] = "",
    debug: Annotated[bool, Parameter(help="Show where errors come from.", negative="", show_default=False)] = False,
) -> int:
    """Tell a run something, or answer what it waits to hear.

    A run that has asked goes on with the answer; any other sees it before its
    next step. It is kept with the run, and whoever carries the run, now or later,
    acts on it. A call that waits for approval is answered by 'approve' and
    'reject'.

    Exit codes:
      0  the message is kept
      1  it was refused, another answer came first, or the database refused
      2  wrong use: no such run, it is over, nothing to say
    """
    url, said = storage_url(storage, os.environ), " ".join(text).strip()
    if not said:
        sys.stderr.write("harborage: say what to tell the run: harborage message RUN TEXT\n")
        return 2
    return carry_out(lambda: _message(url, run.strip(), said), debug=debug)


async def _message(url: str, wanted: str, text: str) -> int:
    from harborage.cli.address import addressed, asked, open_run, what_now
    from harborage.cli.questions import is_doubt, is_gate
    from harborage.runtime.steering.controls import ControlType

    async with addressed(url, wanted) as to:
        record = open_run(to.record)
        questions = [one for one in to.questions if not (is_gate(one) or is_doubt(one))]
        if len(questions) == 1:
            await to.deliver(questions[0], ControlType.RESUME, {"token": questions[0].token, "message": text})
            sys.stdout.write(f"answered: {asked(questions[0])}; {what_now(record)}\n")
        else:
            await to.run.message(text)
            sys.stdout.write(f"told run {record.run_id}; {what_now(record)}\n")
    return 0
