"""`harborage run` and `harborage resume` after their options were read: find the agent and the run, and execute it.

A run that has ended needs no agent: its journal has the result.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec
from rich.text import Text

from harborage import codec
from harborage.app import Agent, TargetError, assistant, is_target, load_agent, refuse_mistyped
from harborage.app.agent_runtime import has_attachments, recorded_agent
from harborage.app.project import FolderGoneError, Origin, command_session, remember_started
from harborage.cli.conversations import last_messages
from harborage.cli.feed import JournalFollower, observe_storage
from harborage.cli.find import find_named_run
from harborage.cli.journal_view import RecordedEntry, new_view
from harborage.cli.open_session import SessionOptions
from harborage.cli.output import Output, OutputLostError, Style
from harborage.cli.session import Session
from harborage.cli.status import (
    CANCELLED,
    FAILED,
    WAITING,
    WRONG_USE,
    Ending,
    agent_of,
    describe_status,
    ending_of,
    failed,
    root_runs,
    status_of,
)
from harborage.cli.storage import (
    DEFAULT_STORAGE,
    absolute_url,
    allow_agent,
    artifacts_folder,
    is_memory,
    open_kept_storage,
    release_expired_leases,
)
from harborage.cli.text import duration, one_line, plural, printable
from harborage.cli.view import render_header, render_past
from harborage.clock import SYSTEM_CLOCK
from harborage.errors import HarborageError
from harborage.identity import Identity
from harborage.ids import new_id
from harborage.planner import Finish
from harborage.runtime.durable.engine import RunFailedError
from harborage.runtime.durable.histories import request_of
from harborage.runtime.durable.journal import Ended, decode_entries
from harborage.runtime.history import all_runs, read_run
from harborage.store import LIVE, RunQuery, RunRow
from harborage.store.times import moment

if TYPE_CHECKING:
    from harborage.cli.screen import Screen
    from harborage.runtime.messages import Message
    from harborage.state.storage import Storage

_GRACE_S = 1.0


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The words and options of `harborage run`; `max_cost` is in US dollars, `deadline_s` in seconds from the start."""

    words: tuple[str, ...]
    storage: str = DEFAULT_STORAGE
    model: str = ""
    attached: tuple[Path, ...] = ()
    approves: bool = False
    rejects: bool = False
    user: str = ""
    max_steps: int = 0
    max_calls: int | None = None
    max_tokens: int | None = None
    max_cost: float | None = None
    deadline_s: float | None = None
    goes_on: bool = False
    key: str = ""
    tags: dict[str, str] = {}
    detaches: bool = False


class ResumeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `harborage resume`; an empty `run`, `model` or `agent` means the one that is recorded."""

    url: str
    run: str = ""
    model: str = ""
    agent: str = ""
    approves: bool = False
    rejects: bool = False


def execute_run(options: RunOptions, style: Style) -> int:
    """Run the agent that the words name towards their goal; returns the exit code."""
    output = Output(style)
    try:
        agent, goal = _agent_and_goal(options)
    except Exception as error:  # noqa: BLE001 - an agent's file may raise anything; it becomes one line
        return output.finish(error_ending(error, WRONG_USE, style))
    target, user = _target(options), options.user or signed_in_user()
    messages: tuple[Message, ...] = ()
    if options.goes_on:
        try:
            messages = asyncio.run(last_messages(options.storage, user, target))
        except HarborageError as error:
            return output.finish(error_ending(error, WRONG_USE, style))
    if options.detaches and is_memory(options.storage):
        why = "--detach: a run in memory: ends with its process; leave --storage out, or name a database"
        return output.finish(failed("WrongUseError", why, WRONG_USE))
    remember_started(target, Path.cwd())
    mark = f"key-{quote(options.key, safe='')}" if options.key else new_id()
    session = SessionOptions(
        goal=goal,
        who=Identity("local", user, command_session(mark)),
        storage=options.storage,
        artifacts=artifacts_folder(options.storage, Path.cwd()),
        origin=Origin(target=target, mark=mark, folder=str(Path.cwd())),
        model=options.model,
        attached=options.attached,
        approves=options.approves,
        rejects=options.rejects,
        max_steps=options.max_steps,
        max_calls=options.max_calls,
        max_tokens=options.max_tokens,
        max_cost=options.max_cost,
        deadline_s=options.deadline_s,
        messages=messages,
        key=options.key,
        tags=options.tags,
        detaches=options.detaches,
    )
    if options.detaches:
        return _run_detached(agent, session, output, style)
    return run_session(agent, session, output, style)


def _run_detached(agent: Agent, options: SessionOptions, output: Output, style: Style) -> int:
    """Start the run, and a process in the background that resumes it; returns the exit code."""
    try:
        code, run_id = show_run(agent, options, output, style)
    except OutputLostError as error:
        return output.report_lost(error)
    if run_id and code == WAITING:
        answers = [name for name, is_given in (("--yes", options.approves), ("--no", options.rejects)) if is_given]
        words = ["resume", run_id, "--storage", absolute_url(options.storage), *answers]
        program = "import sys; from harborage.cli.main import main; sys.exit(main())"
        # No pipe of this process is kept open: who waits for its output must not wait for the run.
        subprocess.Popen(
            [sys.executable, "-P", "-c", program, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    return code


def run_session(agent: Agent, options: SessionOptions, output: Output, style: Style) -> int:
    """Start or resume a run and show it until it ends; returns the exit code."""
    try:
        code, _ = show_run(agent, options, output, style)
        if code == CANCELLED:
            exit_after_grace(output)
        return code
    except OutputLostError as error:
        return output.report_lost(error)


def show_run(
    agent: Agent, options: SessionOptions, output: Output, style: Style, *, queued: list[str] | None = None
) -> tuple[int, str]:
    """Start or resume a run and show it until it ends; returns the exit code, and the id of the run if it began.

    `queued` gets the messages that are to follow this answer of a conversation.

    Raises:
        OutputLostError: its reader is gone.
    """
    session = Session(agent, options, output.terminal(queued))
    watchdog: threading.Timer | None = None
    runner = asyncio.Runner()
    try:
        code = output.finish(_run_session(runner, session, style), session.run_id)
        watchdog = exit_after_grace(output) if code == CANCELLED else None
        return code, session.run_id
    finally:
        runner.close()
        if watchdog is not None:
            watchdog.cancel()


def _run_session(runner: asyncio.Runner, session: Session, style: Style) -> Ending:
    try:
        ending = runner.run(session.run())
    except OutputLostError:
        raise
    except Exception as error:  # noqa: BLE001 - it becomes one line; --debug shows the traceback
        return error_ending(error, FAILED if session.run_id else WRONG_USE, style)
    if session.error is not None and style.has_tracebacks:
        _show_traceback(session.error)
    return ending


def _agent_and_goal(options: RunOptions) -> tuple[Agent, str]:
    """The agent and the goal in the words. The agent's folder becomes importable, after all installed packages."""
    target, *rest = options.words
    if not is_target(target):
        refuse_mistyped(target)
        return assistant(Path.cwd()), " ".join(options.words)
    if not any(word.strip() for word in rest):
        raise TargetError(target, f'no goal; example: harborage run {target} "Order 7 arrived broken"')
    make_importable(target)
    return load_agent(target), " ".join(rest)


def make_importable(target: str) -> None:
    """Let the agent import its neighbours, for the rest of the process: a tool may do so when it is first called."""
    place = target.rpartition(":")[0] or target
    sys.path.append(str(Path(place).resolve().parent if place.endswith(".py") else Path.cwd()))


def _target(options: RunOptions) -> str:
    """The word that names the agent; empty for the standard assistant."""
    return options.words[0] if is_target(options.words[0]) else ""


def _show_traceback(error: BaseException) -> None:
    """Write the traceback to stderr; it may quote anything, so control characters are spelled out."""
    sys.stderr.write(printable("".join(traceback.format_exception(error))))


def error_ending(error: Exception, code: int, style: Style) -> Ending:
    """Return the ending of a command that failed before its run started, or outside of it."""
    if style.has_tracebacks:
        _show_traceback(error)
    name, is_ours = type(error).__name__, isinstance(error, HarborageError)
    if is_ours:
        why = str(error)
    else:
        why = f"{name}: {error}" if code == FAILED else f"the agent could not be opened: {name}: {error}"
    return failed(name, why, code, is_unexplained=not is_ours or code == FAILED)


def signed_in_user() -> str:
    """The name of the user whose process this is."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid-{os.getuid()}"


def exit_after_grace(output: Output) -> threading.Timer:
    """End the process a second after a cancel, even if a tool's thread does not end."""
    watchdog = threading.Timer(_GRACE_S, output.exit_now, [CANCELLED])
    watchdog.daemon = True
    watchdog.start()
    return watchdog


class _Found(msgspec.Struct, frozen=True, kw_only=True):
    """The run, its whole goal, and whether files are attached to it; `past` are the entries of a run that has ended."""

    record: RunRow
    goal: str
    past: Sequence[RecordedEntry] = ()
    has_attachments: bool = False


def resume_run(options: ResumeOptions, style: Style) -> int:
    """Resume the run that is named, or show its result if it has ended; returns the exit code."""
    output = Output(style)
    try:
        found = asyncio.run(_find(options, can_ask=output.can_ask))
        if isinstance(found, Ending):
            return output.finish(found)
        if found.record.status.is_final:
            return _show_result(found, output)
        return _resume_here(found, options, output, style)
    except OutputLostError as error:
        return output.report_lost(error)
    except Exception as error:  # noqa: BLE001 - an agent's file may raise anything; it becomes one line
        return output.finish(error_ending(error, WRONG_USE, style))


async def _find(options: ResumeOptions, *, can_ask: bool) -> _Found | Ending:
    async with open_kept_storage(options.url) as storage:
        await release_expired_leases(storage)
        if options.run:
            record = await find_named_run(storage.store, options.run, where=options.url, is_unfinished=True)
        else:
            unfinished = root_runs(await all_runs(storage.store, RunQuery(statuses=LIVE)))
            if not unfinished and not (await storage.store.runs(RunQuery(limit=1))).rows:
                return failed("RunNotFoundError", f"no run was started in {options.url} so far", WRONG_USE)
            chosen = choose_run(unfinished, SYSTEM_CLOCK.now(), can_ask=can_ask)
            if isinstance(chosen, Ending):
                return chosen
            record = chosen
        entries = await read_run(storage.store, record.run_id)
        goal = request_of(record.run_id, decode_entries(entries, record.run_id)).goal
        if record.status.is_final:
            return _Found(record=record, goal=goal, past=await _read_past(storage, record))
    return _Found(record=record, goal=goal, has_attachments=has_attachments(entries))


def choose_run(unfinished: Sequence[RunRow], now: datetime, *, can_ask: bool) -> RunRow | Ending:
    """Return the run to resume when none is named: the only one, else the one that a person picks from the list."""
    if not unfinished:
        return failed("RunNotFoundError", "all runs have ended; list them: harborage runs list", WRONG_USE)
    if len(unfinished) == 1:
        return unfinished[0]
    newest = list(reversed(unfinished))
    rows = [_render_choice(number, record, now) for number, record in enumerate(newest, 1)]
    sys.stderr.write(f"{plural(len(newest), 'run')} have not ended:\n" + "".join(f"{row}\n" for row in rows))
    if can_ask:
        return _ask_for_run(newest)
    return failed("RunNotFoundError", "name one of them: harborage resume RUN", WRONG_USE)


def _ask_for_run(newest: Sequence[RunRow]) -> RunRow | Ending:
    """Ask until a number of the list is typed; an empty line chooses no run."""
    while True:
        sys.stderr.write(f"Which one (1-{len(newest)}, Enter for none)? ")
        sys.stderr.flush()
        typed = sys.stdin.readline().strip()
        if not typed:
            return failed("RunNotFoundError", "no run was chosen", WRONG_USE)
        if typed.isdecimal() and 1 <= int(typed) <= len(newest):
            return newest[int(typed) - 1]


def _render_choice(number: int, record: RunRow, now: datetime) -> str:
    ago = duration(max(0.0, (now - moment(record.updated_at)).total_seconds()))
    agent = agent_of(record) or "assistant"
    return printable(
        f"  {number}  {record.run_id}  {status_of(record)}, {ago} ago  {agent}  {one_line(record.about, 60)}"
    )


async def _read_past(storage: Storage, record: RunRow) -> list[RecordedEntry]:
    _, store = observe_storage(storage, lambda *_: None)
    return await JournalFollower(store, record.run_id, record.who, may_be_shared=True).poll()


def _show_result(found: _Found, output: Output) -> int:
    """Show the last steps of a run that has ended, and its result; returns the exit code."""
    record, now = found.record, SYSTEM_CLOCK.now()
    screen: Screen = output.terminal().open_screen(lambda _: ())
    screen.show(
        render_header(
            agent_of(record) or "assistant", found.goal, record.quadruple, status=describe_status(record, now)
        )
    )
    screen.show([*render_past(new_view(record.run_id, now), found.past, now), Text()])
    screen.close()
    return output.finish(_recorded_ending(found), record.run_id)


def _recorded_ending(found: _Found) -> Ending:
    ends = [one.entry for one in found.past if one.run_id == found.record.run_id and isinstance(one.entry, Ended)]
    last = ends[-1]
    if last.finish is not None:
        return ending_of(codec.decode(bytes(last.finish), Finish))
    return ending_of(RunFailedError(found.record.run_id, last.error, last.message))


def _resume_here(found: _Found, options: ResumeOptions, output: Output, style: Style) -> int:
    """Resume the run in the folder where it was started, because its agent reads and writes files there."""
    record = found.record
    origin = Origin.of(record.agent).whole
    target = options.agent or origin.target
    url, artifacts = absolute_url(options.url), artifacts_folder(options.url, Path.cwd())
    if origin.folder and not options.agent:
        if not Path(origin.folder).is_dir():
            raise FolderGoneError(origin.folder)
        os.chdir(origin.folder)
    if not options.agent:
        allow_agent(target, Path.cwd(), run_id=record.run_id, command="resume")
    session = SessionOptions(
        goal=found.goal,
        who=record.who,
        storage=url,
        artifacts=artifacts,
        origin=origin,
        model=options.model,
        approves=options.approves,
        rejects=options.rejects,
        record=record,
        has_attachments=found.has_attachments,
    )
    try:
        with recorded_agent(target, Path.cwd()) as agent:
            return run_session(agent, session, output, style)
    except TargetError as error:
        way = f"restore the agent's file, or name another one: harborage resume {record.run_id} --agent FILE"
        return output.finish(failed("TargetError", f"{error}; {way}", WRONG_USE))
