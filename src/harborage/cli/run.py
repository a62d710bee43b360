"""`harborage run`: what the command takes, checked, and handed to a session.

Reading the help must stay cheap, so everything that a run needs is imported when there is one.
"""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

__all__ = ["run"]

_TARGET = "The agent: a file such as agent.py or a module such as package.agent, with :NAME unless it is called agent."
_POSITIVE = Number(gt=0)


def _flag(text: str) -> Parameter:
    return Parameter(help=text, negative="", show_default=False)


def run(
    target: Annotated[str, Parameter(help=_TARGET)],
    /,
    *goal: Annotated[str, Parameter(help="What to do, in words.")],
    yes: Annotated[bool, _flag("Approve every call that needs approval.")] = False,
    json: Annotated[bool, _flag("Print events as JSON, one a line, and a last line of type result.")] = False,
    quiet: Annotated[bool, _flag("Print the answer only.")] = False,
    max_steps: Annotated[int | None, Parameter(help="How many steps it may take.", validator=_POSITIVE)] = None,
    deadline: Annotated[float | None, Parameter(help="How many seconds it may take.", validator=_POSITIVE)] = None,
    user: Annotated[str, Parameter(help="Who runs it.", show_default="whoever is signed in")] = "",
    debug: Annotated[bool, _flag("Show where errors come from.")] = False,
) -> int:
    """Run an agent towards a goal, in this terminal.

    Shows every step as it happens and asks when a call needs approval. What you
    type goes to the agent; /help lists what else can be typed. Ctrl-C cancels,
    twice stops at once, a third time leaves. The answer goes to stdout.

    Without a terminal nobody is asked: a call that needs approval is refused,
    unless --yes is given.

    Exit codes:
      0    the goal was reached
      1    the run failed with an error
      2    wrong use: no such agent, a bad option, an agent that cannot work here
      3    ended without reaching the goal
      4    out of time or out of steps
      130  cancelled
    """
    if not any(word.strip() for word in goal):
        sys.stderr.write("harborage: say what to do: harborage run TARGET GOAL, such as: Draft the release notes\n")
        return 2
    from harborage.cli.execute import execute
    from harborage.cli.stage import Style

    return execute(
        target,
        " ".join(goal),
        Style(is_json=json, is_quiet=quiet, has_tracebacks=debug),
        approves=yes,
        user=user,
        max_steps=max_steps or 0,
        deadline_s=deadline,
    )
