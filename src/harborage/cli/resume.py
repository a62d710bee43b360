"""`harborage resume`: what the command takes, checked, and handed on.

Reading the help must stay cheap, so everything that a run needs is imported when there is one.
"""

from __future__ import annotations

import os
from typing import Annotated

from cyclopts import Parameter

from harborage.cli.place import storage_url

__all__ = ["resume"]

_RUN = "Which run: its id, or as much of its beginning as no other has."
_MODEL = "Which model decides from here on, such as openai:gpt-5."
_AGENT = "The agent that goes on, such as agent.py, should the one that was named then be gone."
_STORAGE = "Where the run is kept: sqlite:FILE or postgres://…"


def _flag(text: str) -> Parameter:
    return Parameter(help=text, negative="", show_default=False)


def resume(
    run: Annotated[str, Parameter(help=_RUN, show_default="the one that is not over")] = "",
    /,
    *,
    model: Annotated[str, Parameter(help=_MODEL, show_default="the one that decided so far")] = "",
    agent: Annotated[str, Parameter(help=_AGENT, show_default="the one that began it")] = "",
    yes: Annotated[bool, _flag("Approve every call that needs approval.")] = False,
    json: Annotated[bool, _flag("Print events as JSON, one a line, and a last line of type result.")] = False,
    quiet: Annotated[bool, _flag("Print the answer only.")] = False,
    storage: Annotated[
        str, Parameter(help=_STORAGE, show_default="HARBORAGE_STORAGE, else .harborage/harborage.db")
    ] = "",
    debug: Annotated[bool, _flag("Show where errors come from.")] = False,
) -> int:
    """Resume a run that is not over, also after its process died.

    Shows in short what has been, and goes on live from the last step that was
    recorded, in the folder where the run was begun: steps are shown, questions
    put and what you type goes to the agent, as with 'harborage run'. Nothing that
    was recorded happens again.

    A run that another process carries is followed from here, and steered; should
    that process end, this one carries the run on. Of a run that is over the
    result is shown again.

    Exit codes:
      0    the goal was reached
      1    the run failed with an error, or the agent's code does not fit it
      2    wrong use: no such database, run or agent, or several runs to choose from
      3    ended without reaching the goal, or with calls refused, or was left
      4    out of time or steps, or at another limit
      130  cancelled
    """
    from harborage.cli.execution import Resumed, go_on
    from harborage.cli.output import Style

    wanted = Resumed(
        url=storage_url(storage, os.environ), run=run.strip(), model=model, agent=agent.strip(), approves=yes
    )
    return go_on(wanted, Style(is_json=json, is_quiet=quiet, has_tracebacks=debug))
