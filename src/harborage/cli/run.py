"""`harborage run`: what the command takes, checked, and handed to a session.

Reading the help must stay cheap, so everything that a run needs is imported when there is one.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from harborage.cli.limits import Deadline, MaxCost, MaxSteps
from harborage.cli.place import storage_url

__all__ = ["run"]

_WORDS = (
    "What to do. If the first word names an agent, that one does it: a file such as agent.py or a module such as "
    "package.agent, with :NAME unless it is called agent. Otherwise the standard assistant does."
)
_MODEL = "Which model decides, such as openai:gpt-5, ollama:qwen3 or local: for the embedded one."
_FILE = "A file for the run to work with: a picture is looked at, anything else can be read. May be repeated."
_STORAGE = Parameter(
    help="Where the run is kept: sqlite:FILE, postgres://…, or memory: for nowhere.",
    show_default="HARBORAGE_STORAGE, else .harborage/harborage.db",
)


def _flag(text: str) -> Parameter:
    return Parameter(help=text, negative="", show_default=False)


def run(
    *words: Annotated[str, Parameter(help=_WORDS)],
    model: Annotated[str, Parameter(help=_MODEL, show_default="what this machine has")] = "",
    storage: Annotated[str, _STORAGE] = "",
    attach: Annotated[list[Path] | None, Parameter(help=_FILE, negative="", show_default=False)] = None,
    yes: Annotated[bool, _flag("Approve every call that needs approval.")] = False,
    json: Annotated[bool, _flag("Print events as JSON, one a line, and a last line of type result.")] = False,
    quiet: Annotated[bool, _flag("Print the answer only.")] = False,
    max_steps: MaxSteps = None,
    max_cost: MaxCost = None,
    deadline: Deadline = None,
    user: Annotated[str, Parameter(help="Who runs it.", show_default="whoever is signed in")] = "",
    debug: Annotated[bool, _flag("Show where errors come from.")] = False,
) -> int:
    """Run an agent towards a goal, or ask the standard assistant, in this terminal.

    The assistant reads, searches and writes files of this folder, calculates and
    fetches web pages; it asks before it writes a file, fetches a page, or reads a
    file named like one of secrets. Without --model it takes the model of the
    provider whose key is set, else of an Ollama, else the embedded one.

    The run is kept: should this process end before it does, 'harborage resume'
    carries it on from its last step, and another terminal can answer for it.

    Shows every step as it happens and asks when a call needs approval. What you
    type goes to the agent; /help lists what else can be typed. Ctrl-C cancels,
    twice stops at once, a third time leaves. The answer goes to stdout.

    Without a terminal nobody is asked: a call that needs approval is refused,
    unless --yes is given.

    Exit codes:
      0    the goal was reached
      1    the run failed with an error
      2    wrong use: no such agent, a bad option, an agent that cannot work here
      3    ended without reaching the goal, or with calls refused, or was left
      4    out of time or steps, or at another limit
      130  cancelled
    """
    goal = words[1:] if words and words[0].partition(":")[0].endswith(".py") else words
    if not any(word.strip() for word in goal):
        sys.stderr.write(
            'harborage: say what to do: harborage run [AGENT] GOAL, such as: harborage run "What is new?"\n'
        )
        return 2
    from harborage.cli.execution import Wanted, execute
    from harborage.cli.output import Style

    wanted = Wanted(
        words=words,
        storage=storage_url(storage, os.environ),
        model=model,
        attached=tuple(attach or ()),
        approves=yes,
        user=user,
        max_steps=max_steps or 0,
        max_cost=max_cost,
        deadline_s=deadline,
    )
    return execute(wanted, Style(is_json=json, is_quiet=quiet, has_tracebacks=debug))
