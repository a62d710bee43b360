"""`harborage run` carried out: the agent found, the run carried, its end told, what goes wrong put into one line."""

from __future__ import annotations

import asyncio
import getpass
import os
import sys
import threading
import traceback
from pathlib import Path

import msgspec

from harborage.app import Agent, TargetError, assistant, is_target, load_agent, refuse_mistyped
from harborage.app.keeping import Origin
from harborage.app.own_sessions import own_session
from harborage.app.started import remember_started
from harborage.cli.outcome import CANCELLED, FAILED, WRONG_USE, Ending, failed
from harborage.cli.place import DEFAULT_STORAGE
from harborage.cli.session import Session, Wishes
from harborage.cli.stage import Output, OutputLostError, Style
from harborage.cli.storing import artifacts_of, prepare
from harborage.cli.text import printable
from harborage.errors import HarborageError
from harborage.identity import Identity
from harborage.ids import new_id

__all__ = ["Wanted", "carry", "execute", "fault"]

_GRACE_S = 1.0


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asks for: the words of it, and its options; `max_cost` is in US dollars."""

    words: tuple[str, ...]
    storage: str = DEFAULT_STORAGE
    model: str = ""
    attached: tuple[Path, ...] = ()
    approves: bool = False
    user: str = ""
    max_steps: int = 0
    max_cost: float | None = None
    deadline_s: float | None = None


def execute(wanted: Wanted, style: Style) -> int:
    """Run the agent that is wanted towards its goal; returns the exit code."""
    output = Output(style)
    try:
        agent, goal = _agent(wanted)
        prepare(wanted.storage)
    except Exception as error:  # noqa: BLE001 - whatever an agent's file raises is told in one line
        return output.end(fault(error, WRONG_USE, style))
    remember_started(_target(wanted), Path.cwd())
    mark = new_id()
    wishes = Wishes(
        goal=goal,
        who=Identity("local", wanted.user or _signed_in(), own_session(mark)),
        storage=wanted.storage,
        artifacts=artifacts_of(wanted.storage, Path.cwd()),
        origin=Origin(target=_target(wanted), mark=mark, folder=str(Path.cwd())),
        model=wanted.model,
        attached=wanted.attached,
        approves=wanted.approves,
        max_steps=wanted.max_steps,
        max_cost=wanted.max_cost,
        deadline_s=wanted.deadline_s,
    )
    return carry(agent, wishes, output, style)


def carry(agent: Agent, wishes: Wishes, output: Output, style: Style) -> int:
    """Start a run, or go on with one, and stay with it to its end; returns the exit code."""
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
        return fault(error, FAILED if session.run_id else WRONG_USE, style)
    if session.error is not None and style.has_tracebacks:
        _show_traceback(session.error)
    return ending


def _agent(wanted: Wanted) -> tuple[Agent, str]:
    """The agent and the goal in the words; its neighbours can be imported, after everything that is installed."""
    target, *rest = wanted.words
    if not is_target(target):
        refuse_mistyped(target)
        return assistant(Path.cwd()), " ".join(wanted.words)
    if not any(word.strip() for word in rest):
        raise TargetError(target, "say what it shall do: harborage run AGENT GOAL")
    place = target.rpartition(":")[0] or target
    # Beyond this call: a tool may import a neighbour when it is first called.
    sys.path.append(str(Path(place).resolve().parent if place.endswith(".py") else Path.cwd()))
    return load_agent(target), " ".join(rest)


def _target(wanted: Wanted) -> str:
    """What names the agent on a command line; empty for the standard assistant."""
    return wanted.words[0] if is_target(wanted.words[0]) else ""


def _show_traceback(error: BaseException) -> None:
    """Where an error comes from; it may quote anything, so its control characters are spelled out."""
    sys.stderr.write(printable("".join(traceback.format_exception(error))))


def fault(error: Exception, code: int, style: Style) -> Ending:
    """The ending of a command that failed before, or around, its run."""
    if style.has_tracebacks:
        _show_traceback(error)
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
