"""`harborage run` carried out: the agent found, the run carried, its end told, what goes wrong put into one line."""

from __future__ import annotations

import asyncio
import getpass
import os
import sys
import threading
import traceback
from pathlib import Path

from harborage.app import Agent, load_agent
from harborage.cli.outcome import CANCELLED, FAILED, WRONG_USE, Ending, failed
from harborage.cli.session import Session, Wishes
from harborage.cli.stage import Output, OutputLostError, Style
from harborage.errors import HarborageError
from harborage.identity import Identity
from harborage.ids import new_id

__all__ = ["execute"]

_GRACE_S = 1.0


def execute(
    target: str,
    goal: str,
    style: Style,
    *,
    approves: bool = False,
    user: str = "",
    max_steps: int = 0,
    deadline_s: float | None = None,
) -> int:
    """Run the agent that `target` names towards `goal`; returns the exit code."""
    output = Output(style)
    try:
        agent = _load(target)
    except Exception as error:  # noqa: BLE001 - whatever an agent's file raises is told in one line
        return output.end(_fault(error, WRONG_USE, style))
    who = Identity("local", user or _signed_in(), f"cli-{new_id()}")
    wishes = Wishes(goal=goal, who=who, approves=approves, max_steps=max_steps, deadline_s=deadline_s)
    session = Session(agent, wishes, output.stage())
    runner = asyncio.Runner()
    try:
        code = output.end(_carry(runner, session, style), session.run_id)
        if code == CANCELLED:
            _insist(output)
        return code
    except OutputLostError as error:
        return output.gone(error)
    finally:
        runner.close()


def _carry(runner: asyncio.Runner, session: Session, style: Style) -> Ending:
    try:
        ending = runner.run(session.carry())
    except OutputLostError:
        raise
    except Exception as error:  # noqa: BLE001 - told in one line; --debug shows where it came from
        return _fault(error, FAILED if session.run_id else WRONG_USE, style)
    if session.error is not None and style.has_tracebacks:
        traceback.print_exception(session.error)
    return ending


def _load(target: str) -> Agent:
    """The agent; its neighbours can be imported as if its file had been started, or its module with `python -m`."""
    place = target.rpartition(":")[0] or target
    is_file = place.endswith(".py") or "/" in place
    sys.path.insert(0, str(Path(place).resolve().parent) if is_file else str(Path.cwd()))
    return load_agent(target)


def _fault(error: Exception, code: int, style: Style) -> Ending:
    """The ending of a command that failed before, or around, its run."""
    if style.has_tracebacks:
        traceback.print_exception(error)
    name, is_ours = type(error).__name__, isinstance(error, HarborageError)
    if is_ours:
        why = str(error)
    else:
        why = f"{name}: {error}" if code == FAILED else f"the agent could not be opened: {name}: {error}"
    return failed(name, why, code, is_strange=not is_ours or code == FAILED)


def _signed_in() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid-{os.getuid()}"


def _insist(output: Output) -> None:
    """Whoever cancelled wants to be gone: a tool's thread that does not end is not waited for very long."""
    watchdog = threading.Timer(_GRACE_S, output.leave, [CANCELLED])
    watchdog.daemon = True
    watchdog.start()
