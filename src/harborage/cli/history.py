"""`harborage replay`, `freeze` and `fork`: what a recorded run can be used for.

Reading help must stay cheap, so what reads and executes runs is imported when a command is used.
"""

from __future__ import annotations

import os
import sys
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import Parameter
from cyclopts.validators import Number

from harborage.cli.storage import (
    Deadline,
    Debug,
    MaxCost,
    MaxSteps,
    RunId,
    ServerUrl,
    StorageUrl,
    WrongUseError,
    artifacts_folder,
    flag,
    is_server,
    open_kept_storage,
    place_of,
    run_command,
)

if TYPE_CHECKING:
    from harborage.cli.status import Ending

_AT = "The step that the new run decides anew, counted from 1; earlier steps are copied."
_LIVE = "Let tools act. Without it, calls with effects and background tasks are refused."
_SAME_AGENT = "the one that ran it"
_WAITING = 5


def replay(
    run: RunId,
    /,
    *,
    agent: Annotated[
        str, Parameter(help="The agent to replay it with, such as agent.py.", show_default=_SAME_AGENT)
    ] = "",
    json: Annotated[bool, flag("Print the result as JSON.")] = False,
    storage: StorageUrl = "",
    url: ServerUrl = "",
    debug: Debug = False,
) -> int:
    """Replay a run offline with the agent as it is now, and compare each decision.

    At each step the agent's planner gets what it was shown then, with the answers
    that models, tools and people gave then. No tool is called and no model is
    opened; an attempt to use the network is refused and reported. The first
    difference is shown: a changed prompt, decision, argument or result.

    Exit codes:
      0  every decision is as recorded
      1  something differs, or the journal cannot be read
      2  wrong use: no such database, run or agent
    """
    place = partial(place_of, storage, url, os.environ)
    return run_command(lambda: _replay(place(), run.strip(), agent.strip(), is_json=json), debug=debug)


async def _replay(url: str, run: str, agent: str, *, is_json: bool) -> int:
    if is_server(url):
        from harborage.cli.server_history import replay

        return await replay(url, run, agent, is_json=is_json)
    from harborage.app.agent_runtime import as_it_ran, recorded_agent, replay_agent
    from harborage.cli.find import find_named_run
    from harborage.cli.status import agent_of
    from harborage.cli.storage import allow_agent
    from harborage.cli.text import masked, printable, wire_json
    from harborage.runtime.history import read_run
    from harborage.runtime.history.freezing import shown_json

    async with open_kept_storage(url) as storage:
        record = await find_named_run(storage.store, run, where=url)
        entries = await read_run(storage.store, record.run_id)
    target = agent or agent_of(record)
    if target and not agent:
        allow_agent(target, Path.cwd(), run_id=record.run_id, command="replay")
    with recorded_agent(target, Path.cwd()) as found:
        as_then = as_it_ran(found, entries, artifacts=artifacts_folder(url, Path.cwd()))
        replayed = await replay_agent(as_then, entries)
    if is_json:
        sys.stdout.write(wire_json(shown_json(replayed.to_json())) + "\n")
        return 0 if replayed.is_same else 1
    sys.stdout.write(f"run {replayed.run_id}: {printable(str(masked(replayed.summary())))}\n")
    return 0 if replayed.is_same else 1


def freeze(
    run: RunId,
    /,
    *,
    out: Annotated[Path, Parameter(name=["--out", "-o"], help="The folder for the test.")] = Path("tests"),
    agent: Annotated[str, Parameter(help="The agent to test, such as agent.py.", show_default=_SAME_AGENT)] = "",
    force: Annotated[bool, flag("Overwrite existing files.")] = False,
    storage: StorageUrl = "",
    url: ServerUrl = "",
    debug: Debug = False,
) -> int:
    """Write a pytest file that replays a run, with its journal beside it.

    The test needs no key, no network and no plugin. It passes as long as the
    agent decides as it did in this run, and shows the first difference when it
    does not. Secrets are masked in what is written. A run that does not replay
    now is not frozen.

    Exit codes:
      0  both files are written
      1  the run has not ended, does not replay, or a file exists already
      2  wrong use: no such database, run or agent
    """
    place = partial(place_of, storage, url, os.environ)
    return run_command(lambda: _freeze(place(), run.strip(), agent.strip(), out, force=force), debug=debug)


_MASKED_DIFFER = (
    "is not frozen: without the secrets that a frozen run masks, the agent decides differently; keep them out of what "
    "it decides by, for example in the environment of its tools"
)


async def _freeze(url: str, run: str, agent: str, out: Path, *, force: bool) -> int:
    if is_server(url):
        from harborage.cli.server_history import freeze

        return await freeze(url, run, agent, out, force=force)
    from harborage.app.agent_runtime import as_it_ran, recorded_agent, replay_agent
    from harborage.artifacts import ArtifactConfig, MemoryArtifactStore, open_artifacts
    from harborage.cli.find import find_named_run
    from harborage.cli.status import agent_of
    from harborage.cli.storage import allow_agent
    from harborage.cli.text import masked, printable
    from harborage.codec import decode
    from harborage.runtime.history import read_run
    from harborage.runtime.history.freezing import FrozenRun, attached_to, cleaner, write_frozen
    from harborage.runtime.history.freezing import freeze as frozen_files

    async with open_kept_storage(url) as storage:
        record = await find_named_run(storage.store, run, where=url)
        entries = await read_run(storage.store, record.run_id)
    target = agent or agent_of(record)
    if target and not agent:
        allow_agent(target, Path.cwd(), run_id=record.run_id, command="freeze")
    with recorded_agent(target, Path.cwd()) as today:
        found = as_it_ran(today, entries, artifacts=artifacts_folder(url, Path.cwd()))
        artifacts = await open_artifacts(ArtifactConfig(found.options.artifact_driver, found.options.artifact_root))
        attached = await attached_to(entries, artifacts)
        await artifacts.aclose()
        files = frozen_files(entries, agent=target, root=Path.cwd(), out=out, attached=attached)
        # Replay what will be written: masking secrets may have changed what the planner decides.
        frozen: FrozenRun = decode(files.run_data, FrozenRun)
        kept = await frozen.put_into(MemoryArtifactStore())
        replayed = await replay_agent(found, frozen.record, artifacts=kept, clean=cleaner())
        is_by_masking = replayed.difference is not None and (await replay_agent(found, entries)).difference is None
    if replayed.difference is not None:
        what = _MASKED_DIFFER if is_by_masking else "does not replay, so it is not frozen"
        why = printable(str(masked(replayed.summary())))
        sys.stderr.write(f"harborage: run {record.run_id} {what}: {why}\n")
        return 1
    write_frozen(files, force=force)
    sys.stdout.write(f"{files.test}\n{files.run}\n")
    return 0


class _ForkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `fork`; `max_cost` is in US dollars, `deadline_s` in seconds from the start."""

    run: str
    at: int
    goal: str
    model: str
    agent: str
    max_steps: int
    max_cost: float | None
    deadline_s: float | None
    is_live: bool
    is_json: bool
    url: str = ""


def fork(
    run: RunId,
    /,
    *,
    at: Annotated[int, Parameter(help=_AT, validator=Number(gt=0))],
    goal: Annotated[str, Parameter(help="The goal of the new run.", show_default="that of the run")] = "",
    model: Annotated[str, Parameter(help="The model of the new run.", show_default="that of the agent")] = "",
    live: Annotated[bool, flag(_LIVE)] = False,
    agent: Annotated[str, Parameter(help="The agent, such as agent.py.", show_default=_SAME_AGENT)] = "",
    max_steps: MaxSteps = None,
    max_cost: MaxCost = None,
    deadline: Deadline = None,
    json: Annotated[bool, flag("Print the result as JSON.")] = False,
    storage: StorageUrl = "",
    url: ServerUrl = "",
    debug: Debug = False,
) -> int:
    """Start a new run from any step of another, and show where the two differ.

    The steps before it are copied, and none of them is executed again. The other
    run is not changed. From that step on the agent of today decides. Without
    --live no call with effects is made.

    Exit codes:
      0    the goal was reached
      1    the run failed
      2    wrong use: no such database, run, step or agent
      3    ended without reaching the goal
      4    a limit was reached: steps, cost, time or another one
      5    not over: waits for an answer
      130  cancelled
    """
    place = partial(place_of, storage, url, os.environ)
    options = _ForkOptions(
        run=run.strip(),
        at=at,
        goal=goal,
        model=model,
        agent=agent.strip(),
        max_steps=max_steps or 0,
        max_cost=max_cost,
        deadline_s=deadline,
        is_live=live,
        is_json=json,
    )
    return run_command(lambda: _fork(msgspec.structs.replace(options, url=place())), debug=debug)


async def _fork_on_server(options: _ForkOptions) -> int:
    from harborage.cli.server_history import fork

    if options.max_cost is not None or options.deadline_s is not None:
        raise WrongUseError("--cost and --seconds are for runs of this machine: a server's fork has its run's own")
    return await fork(
        options.url,
        options.run,
        options.at,
        is_json=options.is_json,
        goal=options.goal,
        model=options.model,
        agent=options.agent,
        max_steps=options.max_steps,
        live=options.is_live,
    )


async def _fork(options: _ForkOptions) -> int:
    if is_server(options.url):
        return await _fork_on_server(options)
    from harborage.app import with_model
    from harborage.app.agent_runtime import as_it_ran, open_kept_runtime, recorded_agent
    from harborage.app.project import Origin, close_command_session, command_session, copy_artifacts, is_command_session
    from harborage.cli.find import find_named_run
    from harborage.cli.status import agent_of, end_or_wait
    from harborage.cli.storage import allow_agent
    from harborage.clock import SYSTEM_CLOCK
    from harborage.identity import Identity
    from harborage.ids import new_id
    from harborage.runtime.history import fork_at, read_run
    from harborage.runtime.loop.limits import Limits

    async with open_kept_storage(options.url, writes=True) as storage:
        record = await find_named_run(storage.store, options.run, where=options.url)
        parent = await read_run(storage.store, record.run_id)
        fork_at(parent, options.at, now=SYSTEM_CLOCK.now())  # refuses a step that is not there before anything opens
        target = options.agent or agent_of(record)
        if target and not options.agent:
            allow_agent(target, Path.cwd(), run_id=record.run_id, command="fork")
        with recorded_agent(target, Path.cwd()) as found:
            agent, chosen = await with_model(found, options.model, os.environ)
            # Under a mark of its own, so that the worker of this run resumes no other runs of the agent.
            model = "" if chosen is None else chosen.model
            mark, who = new_id(), record.who
            session = (
                command_session(mark) if is_command_session(who.session_id) else who.session_id
            )  # the run's own may be closed
            mine = Identity(who.tenant_id, who.user_id, session)
            origin = Origin(target=target, mark=mark, folder=str(Path.cwd()), model=model)
            artifacts = artifacts_folder(options.url, Path.cwd())
            as_then = as_it_ran(agent, parent, artifacts=artifacts)
            async with open_kept_runtime(as_then, storage, origin.text) as runtime:
                if mine != who:
                    await copy_artifacts(runtime.artifacts, who, mine)
                run = await runtime.fork(
                    record.run_id,
                    at=options.at,
                    who=who,
                    session=session,
                    goal=options.goal,
                    live=options.is_live,
                    max_steps=options.max_steps,
                    limits=None if options.max_cost is None else Limits(cost=options.max_cost),
                    deadline=_deadline(options, SYSTEM_CLOCK.now()),
                )
                by = f", model {chosen.model}" if chosen is not None else ""
                sys.stderr.write(f"run {run.id}: fork of {record.run_id} at step {options.at}{by}\n")
                ending = await end_or_wait(run.finished, run.waiting)
                entries = await run.history()
                await close_command_session(runtime, storage.store, mine)
    return _show_fork(options, parent, entries, ending)


def _deadline(options: _ForkOptions, now: datetime) -> datetime | None:
    return None if options.deadline_s is None else now + timedelta(seconds=options.deadline_s)


def _show_fork(options: _ForkOptions, parent: list[bytes], entries: list[bytes], ending: Ending | None) -> int:
    from harborage import codec
    from harborage.cli.text import masked, printable
    from harborage.runtime.history import build_history, compare, render_history

    before, after = build_history(parent), build_history(entries)
    difference = compare(before, after, clean=masked)
    code = _WAITING if ending is None else ending.code
    if options.is_json:
        out = {
            "run": after.run_id,
            "parent": before.run_id,
            "at": options.at,
            "reason": "waiting" if ending is None else ending.reason,
            "answer": "" if ending is None else ending.answer,
            "exit_code": code,
            "difference": difference,
        }
        sys.stdout.write(codec.encode(out).decode() + "\n")
        return code
    lines = [*render_history(after, clean=masked), "", difference or "both runs took the same steps"]
    sys.stdout.write("".join(f"{printable(line)}\n" for line in lines))
    if ending is None:
        sys.stderr.write(
            f"harborage: run {after.run_id} waits for an answer; continue with: harborage resume {after.run_id}\n"
        )
    elif code:
        sys.stderr.write(f"harborage: {printable(ending.message)}\n")
    return code
