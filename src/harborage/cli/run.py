"""`harborage run` and `harborage resume`: their options, checked and passed on.

Reading help must stay cheap, so everything that a run needs is imported when there is one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypeAlias

from cyclopts import Parameter

from harborage.cli.main import STDIN
from harborage.cli.storage import (
    URL_VARIABLE,
    Deadline,
    Debug,
    MaxCalls,
    MaxCost,
    MaxSteps,
    MaxTokens,
    RunId,
    ServerUrl,
    StorageUrl,
    flag,
    storage_url,
)

_WORDS = (
    "What to do. If the first word names an agent, that agent does it: a file such as agent.py or a module such as "
    "package.agent, followed by :NAME unless the agent is called agent. Otherwise the standard assistant does it."
)
_MODEL = "The model, such as openai:gpt-5, ollama:qwen3, or local: for the embedded one."
_FILE = "A file for the run: the model sees a picture, tools read anything else; - is what is piped in."
_AGENT = "The agent, such as agent.py, if the file that the run names is gone."
_STORAGE = Parameter(
    help="Where the run is kept: sqlite:FILE, postgres://…, or memory: for not at all.",
    show_default="HARBORAGE_STORAGE, else .harborage/harborage.db",
)
_CONTINUE = Parameter(
    name="--continue",
    help="Go on from the last run of the agent that has ended here: this one knows what was said in it.",
    negative="",
)
_KEY = "The same key and goal again is the same run: it is followed, or its result is shown."
_TAG = "A mark for the run, such as shop=porto, to find it by; may be given several times."
_DETACH = "Start the run, leave it to a process in the background, and say how to come back to it."
_OPPOSITES = "--yes and --no are opposites; give one of them"
Yes: TypeAlias = Annotated[bool, flag("Approve every call that needs approval.")]
No: TypeAlias = Annotated[bool, flag("Reject every call that needs approval.")]
Json: TypeAlias = Annotated[bool, flag("Print events as JSON, one a line; the last line has the type result.")]
Quiet: TypeAlias = Annotated[bool, flag("Print only the answer.")]


def run(
    *words: Annotated[str, Parameter(help=_WORDS)],
    model: Annotated[str, Parameter(help=_MODEL, show_default="what this machine has")] = "",
    storage: Annotated[str, _STORAGE] = "",
    attach: Annotated[list[Path] | None, Parameter(help=_FILE, negative="", show_default=False)] = None,
    continue_: Annotated[bool, _CONTINUE] = False,
    yes: Yes = False,
    no: No = False,
    json: Json = False,
    quiet: Quiet = False,
    detach: Annotated[bool, flag(_DETACH)] = False,
    key: Annotated[str, Parameter(help=_KEY, show_default=False)] = "",
    tag: Annotated[list[str] | None, Parameter(help=_TAG, negative="", show_default=False)] = None,
    max_steps: MaxSteps = None,
    max_calls: MaxCalls = None,
    max_tokens: MaxTokens = None,
    max_cost: MaxCost = None,
    deadline: Deadline = None,
    user: Annotated[str, Parameter(help="The user whose run it is.", show_default="the one who is signed in")] = "",
    debug: Debug = False,
) -> int:
    """Run an agent, or the standard assistant, towards a goal, in this terminal.

    What you type is sent to the agent. The goal may come from standard input.

    Exit codes:
      0    the goal was reached
      1    the run failed
      2    wrong use: no such agent, a bad option, an agent that cannot work here
      3    ended without reaching the goal
      4    a limit was reached: steps, cost, time or another one
      5    not over: waits for a person or a provider, or was left
      6    ended, but calls were rejected without a person
      130  cancelled
    """
    given, tags = _given_words(words, attach or []), _tags(tag or [])
    if isinstance(given, str) or isinstance(tags, str) or (yes and no):
        return _refuse(given if isinstance(given, str) else tags if isinstance(tags, str) else _OPPOSITES)
    from harborage.cli.execution import RunOptions, execute_run
    from harborage.cli.output import Style

    options = RunOptions(
        words=given,
        storage=storage_url(storage, os.environ),
        model=model,
        attached=tuple(attach or ()),
        approves=yes,
        rejects=no,
        user=user,
        max_steps=max_steps or 0,
        max_calls=max_calls,
        max_tokens=max_tokens,
        max_cost=max_cost,
        deadline_s=deadline,
        goes_on=continue_,
        key=key.strip(),
        tags=tags,
        detaches=detach,
    )
    return execute_run(options, Style(is_json=json, is_quiet=quiet, has_tracebacks=debug))


def _given_words(words: tuple[str, ...], attach: Sequence[Path]) -> tuple[str, ...] | str:
    """Return the words of the agent and the goal, which may come from standard input; a text says what is wrong."""
    target = words[:1] if words and words[0].partition(":")[0].endswith(".py") else ()
    goal = words[len(target) :]
    if goal != (STDIN,) and any(word.strip() for word in goal):
        return words
    if Path(STDIN) in attach:
        return "standard input is the goal or a file; give the goal, or leave out --attach -"
    text = _piped_text()
    return (*target, text) if text else 'no goal; example: harborage run agent.py "Order 7 arrived broken"'


def _tags(given: Sequence[str]) -> dict[str, str] | str:
    """Return the tags by their names; a text says which of them is none."""
    tags: dict[str, str] = {}
    for one in given:
        name, sign, value = one.partition("=")
        if not sign or not name.strip():
            return f"--tag {one}: a tag is NAME=VALUE; example: --tag shop=porto"
        tags[name.strip()] = value.strip()
    return tags


def _refuse(why: str) -> int:
    """Say why the command was used wrongly; returns the exit code of that."""
    sys.stderr.write(f"harborage: {why}\n")
    return 2


def _piped_text() -> str:
    """Return what is written to standard input, to its end; "" when that is a terminal, or cannot be read."""
    try:
        return "" if sys.stdin.isatty() else sys.stdin.read().strip()
    except (OSError, ValueError):
        return ""


def resume(
    run: Annotated[RunId, Parameter(show_default="the one that has not ended")] = "",
    /,
    *,
    model: Annotated[str, Parameter(help="The model from here on.", show_default="the one used so far")] = "",
    agent: Annotated[str, Parameter(help=_AGENT, show_default="the one that started it")] = "",
    yes: Yes = False,
    no: No = False,
    json: Json = False,
    quiet: Quiet = False,
    storage: StorageUrl = "",
    url: ServerUrl = "",
    debug: Debug = False,
) -> int:
    """Resume a run that has not ended, in this terminal.

    Shows the last steps in short and continues from the last recorded one, in
    the folder where the run was started, with the screen and keys of 'harborage
    run'. No recorded step is executed again.

    A run that another worker executes is followed and steered from here; if that
    worker ends, this process continues the run. A run that has ended shows its
    result again. On a server, which executes its runs itself, a run that was
    paused is resumed there; 'harborage events RUN --follow' shows it.

    Exit codes:
      0    the goal was reached
      1    the run failed, or the agent's code does not fit it
      2    wrong use: no such database, run or agent, or several runs to choose from
      3    ended without reaching the goal
      4    a limit was reached: steps, cost, time or another one
      5    not over: waits for a person or a provider, or was left
      6    ended, but calls were rejected without a person
      130  cancelled
    """
    if yes and no:
        return _refuse(_OPPOSITES)
    if url.strip() or (os.environ.get(URL_VARIABLE, "").strip() and not storage.strip()):
        from harborage.cli.steer import steer

        return steer(run, "resume", json=json, storage=storage, url=url, debug=debug)
    from harborage.cli.execution import ResumeOptions, resume_run
    from harborage.cli.output import Style

    options = ResumeOptions(
        url=storage_url(storage, os.environ),
        run=run.strip(),
        model=model,
        agent=agent.strip(),
        approves=yes,
        rejects=no,
    )
    return resume_run(options, Style(is_json=json, is_quiet=quiet, has_tracebacks=debug))
