"""`harborage resume` carried out: the run found or chosen, its agent found again, the run gone on with.

A run that is over needs no agent: its record alone says what came of it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.text import Text

from harborage import codec
from harborage.app import TargetError
from harborage.app.keeping import FolderGoneError, Origin
from harborage.app.replays import has_attachments, recorded_agent
from harborage.cli.aboard import Wishes
from harborage.cli.consent import allow_agent
from harborage.cli.execute import carry, fault
from harborage.cli.following import Following
from harborage.cli.outcome import WRONG_USE, Ending, ending_of, failed
from harborage.cli.place import absolute
from harborage.cli.recording import watched
from harborage.cli.records import Recorded
from harborage.cli.seen import new_view
from harborage.cli.stage import Output, OutputLostError, Style
from harborage.cli.standing import agent_of, roots, standing_of, status_of
from harborage.cli.storing import artifacts_of, find_open, free_orphans, kept_runs
from harborage.cli.text import duration, one_line, printable
from harborage.cli.view import fold_past, header
from harborage.clock import SYSTEM_CLOCK
from harborage.planner import Finish
from harborage.runtime.durable import RunFailedError
from harborage.runtime.engines.histories import read_entries, request_of
from harborage.runtime.history import all_runs, read_run
from harborage.runtime.journal import Ended
from harborage.store import LIVE, RunQuery, RunRow
from harborage.store.times import moment

if TYPE_CHECKING:
    from harborage.cli.live import Screen
    from harborage.state.storage import Storage

__all__ = ["Resumed", "chosen", "go_on"]


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
