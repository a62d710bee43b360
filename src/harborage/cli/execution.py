"""`harborage run` and `harborage resume` after their options were read: find the agent and the run, and execute it.

A run that is over needs no agent: its journal says how it ended.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import sys
import threading
import traceback
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.text import Text

from harborage import codec
from harborage.app import Agent, TargetError, assistant, is_target, load_agent, refuse_mistyped
from harborage.app.keeping import FolderGoneError, Origin
from harborage.app.own_sessions import own_session
from harborage.app.replays import has_attachments, recorded_agent
from harborage.app.started import remember_started
from harborage.cli.feed import Following, watched
from harborage.cli.journal_view import Recorded
from harborage.cli.open_session import Wishes
from harborage.cli.outcome import CANCELLED, FAILED, WRONG_USE, Ending, ending_of, failed
from harborage.cli.output import Output, OutputLostError, Style
from harborage.cli.place import DEFAULT_STORAGE, absolute
from harborage.cli.session import Session
from harborage.cli.status import agent_of, roots, standing_of, status_of
from harborage.cli.storage import allow_agent, artifacts_of, find_open, free_orphans, kept_runs, prepare
from harborage.cli.text import duration, one_line, printable
from harborage.cli.view import fold_past, header
from harborage.cli.view_state import new_view
from harborage.clock import SYSTEM_CLOCK
from harborage.errors import HarborageError
from harborage.identity import Identity
from harborage.ids import new_id
from harborage.planner import Finish
from harborage.runtime.durable import RunFailedError
from harborage.runtime.engines.histories import read_entries, request_of
from harborage.runtime.history import all_runs, read_run
from harborage.runtime.journal import Ended
from harborage.store import LIVE, RunQuery, RunRow
from harborage.store.times import moment

if TYPE_CHECKING:
    from harborage.cli.screen import Screen
    from harborage.state.storage import Storage

__all__ = ["Resumed", "Wanted", "carry", "chosen", "execute", "fault", "go_on"]

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


class Resumed(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asks for: which run, kept where, by which agent on which model; empty for the obvious."""

    url: str
    run: str = ""
    model: str = ""
    agent: str = ""
    approves: bool = False


class _Found(msgspec.Struct, frozen=True, kw_only=True):
    """The run, its whole goal, and whether it has got files; of one that is over also what it did."""

    record: RunRow
    goal: str
    past: Sequence[Recorded] = ()
    has_attachments: bool = False


def go_on(wanted: Resumed, style: Style) -> int:
    """Go on with the run that is wanted; returns the exit code."""
    output = Output(style)
    try:
        found = asyncio.run(_find(wanted, is_asking=output.can_ask))
        if isinstance(found, Ending):
            return output.end(found)
        if found.record.status.is_final:
            return _told(found, output)
        return _carried(found, wanted, output, style)
    except OutputLostError as error:
        return output.gone(error)
    except Exception as error:  # noqa: BLE001 - whatever an agent's file raises is told in one line
        return output.end(fault(error, WRONG_USE, style))


async def _find(wanted: Resumed, *, is_asking: bool) -> _Found | Ending:
    async with kept_runs(wanted.url) as storage:
        await free_orphans(storage)
        if wanted.run:
            record = await find_open(storage.store, wanted.run, where=wanted.url)
        else:
            several = roots(await all_runs(storage.store, RunQuery(statuses=LIVE)))
            picked = chosen(several, SYSTEM_CLOCK.now(), is_asking=is_asking)
            if isinstance(picked, Ending):
                return picked
            record = picked
        entries = await read_run(storage.store, record.run_id)
        goal = request_of(record.run_id, read_entries(record.run_id, entries)).goal
        if record.status.is_final:
            return _Found(record=record, goal=goal, past=await _past(storage, record))
    return _Found(record=record, goal=goal, has_attachments=has_attachments(entries))


def chosen(several: Sequence[RunRow], now: datetime, *, is_asking: bool) -> RunRow | Ending:
    """The run to go on with when none was named: the only one, else the one that a person picks from the list."""
    if not several:
        return failed("RunUnknownError", "every run that is kept here is over; 'harborage runs list' shows them", 2)
    if len(several) == 1:
        return several[0]
    newest = list(reversed(several))
    rows = [_row(number, record, now) for number, record in enumerate(newest, 1)]
    sys.stderr.write(f"{len(newest)} runs are not over:\n" + "".join(f"{row}\n" for row in rows))
    if is_asking:
        return _picked(newest)
    return failed("RunUnknownError", "say which one: harborage resume RUN", WRONG_USE)


def _picked(newest: Sequence[RunRow]) -> RunRow | Ending:
    """The one whose number is typed; anything else is asked again, an empty line is none."""
    while True:
        sys.stderr.write(f"Which one (1-{len(newest)}, Return for none)? ")
        sys.stderr.flush()
        typed = sys.stdin.readline().strip()
        if not typed:
            return failed("RunUnknownError", "no run was chosen", WRONG_USE)
        if typed.isdecimal() and 1 <= int(typed) <= len(newest):
            return newest[int(typed) - 1]


def _row(number: int, record: RunRow, now: datetime) -> str:
    ago = duration(max(0.0, (now - moment(record.updated_at)).total_seconds()))
    agent = agent_of(record) or "assistant"
    return printable(
        f"  {number}  {record.run_id}  {status_of(record)}, {ago} ago  {agent}  {one_line(record.about, 60)}"
    )


async def _past(storage: Storage, record: RunRow) -> list[Recorded]:
    _, store = watched(storage, lambda *_: None)
    return await Following(store, record.run_id, record.who, may_be_shared=True).look()


def _told(found: _Found, output: Output) -> int:
    """A run that is over: what it did in short, and what came of it."""
    record, now = found.record, SYSTEM_CLOCK.now()
    screen: Screen = output.stage().open_screen(lambda _: ())
    screen.show(
        header(agent_of(record) or "assistant", found.goal, record.quadruple, standing=standing_of(record, now))
    )
    screen.show([*fold_past(new_view(record.run_id, now), found.past, now), Text()])
    screen.close()
    return output.end(_ending(found), record.run_id)


def _ending(found: _Found) -> Ending:
    ends = [one.entry for one in found.past if one.run_id == found.record.run_id and isinstance(one.entry, Ended)]
    last = ends[-1]
    if last.finish is not None:
        return ending_of(codec.decode(bytes(last.finish), Finish))
    return ending_of(RunFailedError(found.record.run_id, last.error, last.message))


def _carried(found: _Found, wanted: Resumed, output: Output, style: Style) -> int:
    """A run that is not over, where it was begun: what its agent reads and writes is there."""
    record = found.record
    origin = Origin.of(record.agent)
    target = wanted.agent or origin.target
    url, artifacts = absolute(wanted.url), artifacts_of(wanted.url, Path.cwd())
    if origin.folder and not wanted.agent:
        if not Path(origin.folder).is_dir():
            raise FolderGoneError(origin.folder)
        os.chdir(origin.folder)
    if not wanted.agent:
        allow_agent(target, Path.cwd(), run_id=record.run_id, command="resume")
    wishes = Wishes(
        goal=found.goal,
        who=record.who,
        storage=url,
        artifacts=artifacts,
        origin=origin,
        model=wanted.model,
        approves=wanted.approves,
        record=record,
        has_attachments=found.has_attachments,
    )
    try:
        with recorded_agent(target, Path.cwd()) as agent:
            return carry(agent, wishes, output, style)
    except TargetError as error:
        way = f"the run is kept: bring its agent back, or name another: harborage resume {record.run_id} --agent FILE"
        return output.end(failed("TargetError", f"{error}; {way}", WRONG_USE))
