"""`harborage fork`: a new run out of the first steps of another."""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import Parameter
from cyclopts.validators import Number

from harborage.cli.limits import Deadline, MaxCost, MaxSteps
from harborage.cli.place import storage_url
from harborage.cli.storage import artifacts_of, carry_out, kept_runs

if TYPE_CHECKING:
    from harborage.cli.outcome import Ending
    from harborage.runtime.host import Run

__all__ = ["fork"]

_RUN = "Which run: its id, or as much of its beginning as no other has."
_AT = "The step that is decided anew, counted from 1; those before it are taken over."
_GOAL = "What the new run shall do from that step on."
_MODEL = "Which model decides from that step on, such as openai:gpt-5."
_LIVE = "Let tools act. Without, a call that has effects is refused, and so is a task."
_AGENT = "The agent that goes on, such as agent.py."
_STORAGE = "The database, such as sqlite:FILE or postgres://…"
_POSITIVE = Number(gt=0)
_LOOK_S = 0.25
_WAITS = 3


class _Wanted(msgspec.Struct, frozen=True, kw_only=True):
    url: str
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


def fork(
    run: Annotated[str, Parameter(help=_RUN)],
    /,
    *,
    at: Annotated[int, Parameter(help=_AT, validator=_POSITIVE)],
    goal: Annotated[str, Parameter(help=_GOAL, show_default="that of the run")] = "",
    model: Annotated[str, Parameter(help=_MODEL, show_default="that of the agent")] = "",
    live: Annotated[bool, Parameter(help=_LIVE, negative="", show_default=False)] = False,
    agent: Annotated[str, Parameter(help=_AGENT, show_default="the one that ran it")] = "",
    max_steps: MaxSteps = None,
    max_cost: MaxCost = None,
    deadline: Deadline = None,
    json: Annotated[bool, Parameter(help="Print the outcome as JSON.", negative="", show_default=False)] = False,
    storage: Annotated[
        str, Parameter(help=_STORAGE, show_default="HARBORAGE_STORAGE, else .harborage/harborage.db")
    ] = "",
    debug: Annotated[bool, Parameter(help="Show where errors come from.", negative="", show_default=False)] = False,
) -> int:
    """Start a new run from any step of another, and show where the two part.

    What the run decided and found before that step is taken over; nothing of it
    happens again. The run itself stays as it is. From that step on the agent of
    today decides, and unless --live is given nothing that has effects is done.

    Exit codes:
      0    the goal was reached
      1    the run failed with an error
      2    wrong use: no such database, run, step or agent
      3    ended without reaching the goal, or waits for an answer
      4    out of time or steps, or at another limit
      130  cancelled
    """
    wanted = _Wanted(
        url=storage_url(storage, os.environ),
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
    return carry_out(lambda: _fork(wanted), debug=debug)


async def _fork(wanted: _Wanted) -> int:
    from harborage.app import with_model
    from harborage.app.keeping import Origin
    from harborage.app.own_sessions import bring_artifacts, close_own, is_own, own_session
    from harborage.app.replays import as_it_ran, open_kept, recorded_agent
    from harborage.cli.status import agent_of
    from harborage.cli.storage import allow_agent
    from harborage.clock import SYSTEM_CLOCK
    from harborage.identity import Identity
    from harborage.ids import new_id
    from harborage.runtime.history import find_run, fork_at, read_run
    from harborage.runtime.limits import Limits

    async with kept_runs(wanted.url, writes=True) as storage:
        record = await find_run(storage.store, wanted.run, where=wanted.url)
        parent = await read_run(storage.store, record.run_id)
        fork_at(parent, wanted.at, now=SYSTEM_CLOCK.now())  # whether there is such a step, before anything is opened
        target = wanted.agent or agent_of(record)
        if target and not wanted.agent:
            allow_agent(target, Path.cwd(), run_id=record.run_id, command="fork")
        with recorded_agent(target, Path.cwd()) as found:
            agent, chosen = await with_model(found, wanted.model, os.environ)
            # Under a mark of its own: whoever carries this run must not carry others of the agent on beside it.
            model = "" if chosen is None else chosen.model
            mark, who = new_id(), record.who
            session = own_session(mark) if is_own(who.session_id) else who.session_id  # the run's own may be closed
            mine = Identity(who.tenant_id, who.user_id, session)
            origin = Origin(target=target, mark=mark, folder=str(Path.cwd()), model=model)
            artifacts = artifacts_of(wanted.url, Path.cwd())
            as_then = as_it_ran(agent, parent, artifacts=artifacts)
            async with open_kept(as_then, storage, origin.text) as runtime:
                if mine != who:
                    await bring_artifacts(runtime.artifacts, who, mine)
                run = await runtime.fork(
                    record.run_id,
                    at=wanted.at,
                    who=who,
                    session=session,
                    goal=wanted.goal,
                    live=wanted.is_live,
                    max_steps=wanted.max_steps,
                    limits=None if wanted.max_cost is None else Limits(cost=wanted.max_cost),
                    deadline=_deadline(wanted, SYSTEM_CLOCK.now()),
                )
                by = f", decided by {chosen.model}" if chosen is not None else ""
                sys.stderr.write(f"run {run.id}: a fork of {record.run_id} at step {wanted.at}{by}\n")
                ending = await _ended(run)
                entries = await run.history()
                await close_own(runtime, storage.store, mine)
    return _tell(wanted, parent, entries, ending)


def _deadline(wanted: _Wanted, now: datetime) -> datetime | None:
    return None if wanted.deadline_s is None else now + timedelta(seconds=wanted.deadline_s)


async def _ended(run: Run) -> Ending | None:
    """How the run ended; None when it waits for somebody's answer."""
    from harborage.cli.outcome import ending_of
    from harborage.runtime.durable import RunBlockedError, RunFailedError

    while True:
        try:
            async with asyncio.timeout(_LOOK_S):
                return ending_of(await run.result())
        except (RunFailedError, RunBlockedError) as error:
            return ending_of(error)
        except TimeoutError:
            if await run.waiting():
                return None


def _tell(wanted: _Wanted, parent: list[bytes], entries: list[bytes], ending: Ending | None) -> int:
    from harborage import codec
    from harborage.cli.text import masked, printable
    from harborage.runtime.history import compare, history_of, told

    before, after = history_of(parent), history_of(entries)
    differs = compare(before, after, clean=masked)
    code = _WAITS if ending is None else ending.code
    if wanted.is_json:
        reason = "waiting" if ending is None else ending.reason
        out = {
            "run": after.run_id,
            "parent": before.run_id,
            "at": wanted.at,
            "reason": reason,
            "answer": "" if ending is None else ending.answer,
            "exit_code": code,
            "difference": differs,
        }
        sys.stdout.write(codec.encode(out).decode() + "\n")
        return code
    lines = [*told(after, clean=masked), "", differs or "both runs took the same steps"]
    sys.stdout.write("".join(f"{printable(line)}\n" for line in lines))
    if ending is None:
        way = f"'harborage resume {after.run_id}' goes on"
        sys.stderr.write(f"harborage: run {after.run_id} waits for an answer; it is kept as it stands: {way}\n")
    elif code:
        sys.stderr.write(f"harborage: {printable(ending.told)}\n")
    return code
