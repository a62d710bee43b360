"""`harborage approve`: a yes to what a run waits for, from any terminal."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

from cyclopts import Parameter

from harborage.cli.place import storage_url
from harborage.cli.storage import carry_out

__all__ = ["approve"]

_RUN = (
    "Which one: the whole token of the question. At a terminal also a run, or the beginning of either: the question "
    "is shown then, before anything is sent."
)
_REASON = "Why, for the record and for the agent."
_ARGS = "The arguments to make the call with in place of its own, as a JSON object."
_STORAGE = "The database, such as sqlite:FILE or postgres://…"


def approve(
    run: Annotated[str, Parameter(help=_RUN)],
    /,
    *,
    reason: Annotated[str, Parameter(help=_REASON, show_default=False)] = "",
    args: Annotated[str, Parameter(help=_ARGS, show_default="its own")] = "",
    storage: Annotated[
        str, Parameter(help=_STORAGE, show_default="HARBORAGE_STORAGE, else .harborage/harborage.db")
    ] = "",
    debug: Annotated[bool, Parameter(help="Show where errors come from.", negative="", show_default=False)] = False,
) -> int:
    """Say yes to the call, or the pause, that a run waits with.

    The answer is kept with the run. The process that carries the run acts on it
    at once; where there is none, whoever resumes the run does, days later if need
    be. It counts once, and for the very arguments that were shown. A call that
    was interrupted, so that nobody knows whether it acted, is made again.

    Exit codes:
      0  the answer is kept
      1  the answer was refused, another came first, or the database refused
      2  wrong use: no such run, nothing to answer, not confirmed, no JSON object
    """
    url = storage_url(storage, os.environ)
    return carry_out(lambda: _approve(url, run.strip(), reason, args.strip()), debug=debug)


async def _approve(url: str, wanted: str, reason: str, args: str) -> int:
    from harborage.cli.address import addressed, asked, what_now
    from harborage.cli.answers import Allow, edited
    from harborage.cli.questions import announced_args, is_gate, schema_of
    from harborage.runtime.steering.controls import ControlType

    async with addressed(url, wanted) as to:
        question = to.question("approve")
        payload: dict[str, object] = {"token": question.token, "reason": reason}
        meant: dict[str, Any] | None = None
        if args:
            typed = edited(args, announced_args((question.payload or {}).get("args_summary")), schema_of(question))
            if not isinstance(typed, Allow) or not is_gate(question):
                why = "only a call has arguments" if isinstance(typed, Allow) else typed.message
                sys.stderr.write(f"harborage: --args: {why}\n")
                return 2
            meant = typed.args
            if meant is not None:
                payload["args"] = meant
        to.confirm(question, "harborage approve")
        await to.deliver(question, ControlType.APPROVE, payload)
        sys.stdout.write(f"approved: {asked(question, meant)}; {what_now(to.record)}\n")
    return 0
