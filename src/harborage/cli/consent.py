"""The question before an agent is executed that a database names and that this user has not started there."""

from __future__ import annotations

import sys
from pathlib import Path

from harborage.app.started import agent_place, is_started, remember_started
from harborage.cli.text import printable
from harborage.errors import HarborageError

__all__ = ["AgentNotAllowedError", "allow_agent"]


class AgentNotAllowedError(HarborageError):
    """The agent of a run was not executed, because this user has neither started it nor allowed it now."""


def allow_agent(target: str, folder: Path, *, run_id: str, command: str) -> None:
    """Accept the agent that a database names for a run: one that this user has started in `folder`, or allows now.

    Raises:
        AgentNotAllowedError: the user refused, or there is no terminal to ask at; the text says what to do.
    """
    if is_started(target, folder):
        return
    what = f"{printable(agent_place(target, folder), keep='')} in {printable(str(folder.resolve()), keep='')}"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        way = f"name it yourself: harborage {command} {run_id} --agent AGENT" if target else "answer at a terminal"
        raise AgentNotAllowedError(f"run {run_id} would execute {what}, which you have not started; to allow it, {way}")
    sys.stderr.write(f"Run {run_id} would execute {what}, which you have not started.\nExecute it (y/N)? ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise AgentNotAllowedError(f"{what} was not executed")
    remember_started(target, folder)
